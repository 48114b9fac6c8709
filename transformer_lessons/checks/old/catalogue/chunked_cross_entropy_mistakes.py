"""Known wrong ways to write `chunked_cross_entropy`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_lessons.checks.old.core import Mistake

__all__ = ["LOSS", "MEASURED", "MISTAKES", "ONLINE", "Steps", "assemble"]

LOSS, ONLINE, MEASURED = "#ch14-loss", "#ch17-online", "#ch17-measured"


def _accept(chunk: int) -> None:
    if chunk < 1:
        raise ValueError("chunk: expected 1 or more")


def _chunk_sums(hidden: Tensor, weight: Tensor, targets: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Of one chunk: the logarithm of the summed exponentials, and the target's logit, or 0 if it is elsewhere."""
    logits = hidden @ weight.T
    place = targets - start
    inside = (place >= 0) & (place < len(weight))
    picked = logits.gather(1, place.clamp(0, len(weight) - 1)[:, None])[:, 0]
    return logits.logsumexp(1), picked.masked_fill(~inside, 0.0)


def _recomputed(function: Callable, *args) -> tuple[Tensor, Tensor]:
    return checkpoint(function, *args, use_reentrant=False)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    inputs: Callable = lambda hidden, weight: (hidden, weight)
    starts: Callable = lambda vocab, chunk: range(0, vocab, chunk)
    part: Callable = lambda weight, start, chunk: weight[start : start + chunk]
    sums: Callable = _chunk_sums
    run: Callable = _recomputed
    join: Callable = torch.logaddexp
    loss: Callable = lambda total, picked: total - picked
    real: Callable = lambda targets, pad_id: targets != pad_id
    divide: Callable = lambda total, count, rows: total / max(count, 1)
    outer: Callable = lambda losses, *args: losses(*args)
    result: Callable = lambda loss: loss


def assemble(steps: Steps) -> Callable:
    """The loss in these steps."""

    def losses(hidden, weight, targets, chunk):
        total, picked = None, 0
        for start in steps.starts(len(weight), chunk):
            here, found = steps.run(steps.sums, hidden, steps.part(weight, start, chunk), targets, start)
            total, picked = here if total is None else steps.join(total, here), picked + found
        return steps.loss(total, picked)

    def chunked(hidden, weight, targets, chunk, pad_id):
        steps.accept(chunk)
        hidden, weight = steps.inputs(hidden, weight)
        real = steps.real(targets, pad_id)
        loss = steps.outer(losses, hidden, weight, targets, chunk).masked_fill(~real, 0.0).sum()
        return steps.result(steps.divide(loss, int(real.sum()), len(targets)))

    return chunked


def _full_chunks(vocab: int, chunk: int) -> range:
    return range(0, max(vocab // chunk, 1) * chunk, chunk)


def _whole(vocab: int, chunk: int) -> range:
    return range(0, 1)


def _naive(hidden, weight, targets, start):
    _, picked = _chunk_sums(hidden, weight, targets, start)
    return (hidden @ weight.T).exp().sum(-1).log(), picked


def _within(hidden, weight, targets, start):
    """The target's logarithmic probability within its own chunk."""
    logits = hidden @ weight.T
    place = targets - start
    inside = (place >= 0) & (place < len(weight))
    log_p = logits.log_softmax(-1).gather(-1, place.clamp(0, len(weight) - 1)[:, None])[:, 0]
    return torch.zeros_like(log_p), log_p.masked_fill(~inside, 0.0)


def _not_shifted(hidden, weight, targets, start):
    logits = hidden @ weight.T
    inside = targets < len(weight)
    picked = logits.gather(-1, targets.clamp(0, len(weight) - 1)[:, None])[:, 0]
    return logits.logsumexp(1), picked.masked_fill(~inside, 0.0)


def _everywhere(hidden, weight, targets, start):
    """A logit for the target in every chunk, also where it is not."""
    logits = hidden @ weight.T
    place = (targets - start).clamp(0, len(weight) - 1)
    return logits.logsumexp(-1), logits.gather(1, place[:, None])[:, 0]


def _some_tokens(losses, hidden, weight, targets, chunk):
    """Tokens are divided, and each group meets all classes."""
    groups = zip(hidden.split(chunk), targets.split(chunk), strict=True)
    return torch.cat([checkpoint(losses, h, weight, t, len(weight), use_reentrant=False) for h, t in groups])


class _ByHand(torch.autograd.Function):
    """The gradient computed again from the log-sums; `probabilities` takes these and a chunk's logits."""

    @staticmethod
    def forward(ctx, losses, hidden, weight, targets, chunk, probabilities):
        found = losses(hidden, weight, targets, chunk)
        log_sums = found + (hidden * weight[targets]).sum(1)
        ctx.save_for_backward(hidden, weight, targets, log_sums)
        ctx.chunk, ctx.probabilities = chunk, probabilities
        return found

    @staticmethod
    def backward(ctx, back):
        hidden, weight, targets, log_sums = ctx.saved_tensors
        of_hidden, of_weight = -weight[targets] * back[:, None], torch.zeros_like(weight)
        of_weight.index_add_(0, targets, -hidden * back[:, None])
        for start in range(0, len(weight), ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            p = ctx.probabilities(hidden @ weight[rows].T, log_sums[:, None]) * back[:, None]
            of_hidden += p @ weight[rows]
            of_weight[rows] += p.T @ hidden
        return None, of_hidden, of_weight, None, None, None


def _divided_exponentials(losses, *args):
    return _ByHand.apply(losses, *args, lambda logits, log_sums: logits.exp() / log_sums.exp())


class _AlwaysOne(torch.autograd.Function):
    """What a function of one's own does that takes the loss for the last word."""

    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, back):
        return torch.ones_like(back)


def _complaining(chunk: int) -> None:
    if chunk < 1:
        raise RuntimeError("split expects split_size be non-negative")


MISTAKES = (
    Mistake(
        "all_logits",
        "you compute the logits of the whole vocabulary at once",
        "The loss function asks for them.",
        "tokens × vocabulary numbers, several times over: the largest tensor of most models in training.",
        MEASURED,
        (
            {
                "starts": _whole,
                "part": lambda weight, start, chunk: weight,
                "run": lambda f, *args: f(*args),
            },
        ),
    ),
    Mistake(
        "kept_for_backward",
        "your chunks are small, but autograd keeps the logits of every one for the way back",
        "A loop looks as if each chunk were gone when the next one comes; without gradients, that is so.",
        "In training, all logits are held after all.",
        MEASURED,
        ({"run": lambda f, *args: f(*args)},),
    ),
    Mistake(
        "checkpointed_whole",
        "you checkpoint everything at once: on the way back, the logits of all chunks are there together",
        "One call around everything makes the number of bytes kept small.",
        "The peak is only moved from the forward pass to the backward pass.",
        MEASURED,
        ({"starts": _whole, "part": lambda weight, start, chunk: weight},),
    ),
    Mistake(
        "chunks_of_tokens",
        "you divide the tokens, and each part of them meets all classes; the classes are what is to be divided",
        "Rows are independent, so dividing them needs no new softmax.",
        "One token with a large vocabulary takes as much as before.",
        MEASURED,
        ({"outer": _some_tokens},),
    ),
    Mistake(
        "chunk_is_a_number_of_parts",
        "you make `chunk` pieces; it is the number of classes in a piece, and split takes that",
        "chunk() divides into so many parts, split() into parts of so many.",
        "A large chunk makes many small pieces, and what is kept of each adds up.",
        MEASURED,
        (
            {
                "starts": lambda vocab, chunk: range(0, vocab, -(-vocab // chunk)),
                "part": lambda weight, start, chunk: weight[start : start - (-len(weight) // chunk)],
            },
        ),
    ),
    Mistake(
        "last_classes_dropped",
        "you drop the last classes where chunk does not divide their number",
        "vocab // chunk chunks are all full ones.",
        "The divisor of the softmax is too small, and some targets are never found.",
        ONLINE,
        ({"starts": _full_chunks},),
    ),
    Mistake(
        "logs_added",
        "you add up the logarithms of the chunks' sums; it is the sums that add up",
        "log-sum-exp of each chunk is at hand, and + is what sums need.",
        "The loss is far too large with two chunks or more.",
        ONLINE,
        ({"join": lambda a, b: a + b},),
    ),
    Mistake(
        "largest_chunk_only",
        "you take the largest of the chunks' log-sums in place of their log-sum",
        "The largest dominates.",
        "The loss is a little too small.",
        ONLINE,
        ({"join": torch.maximum},),
    ),
    Mistake(
        "last_chunk_only",
        "you keep the log-sum of the last chunk only",
        "The name is used again in the loop.",
        "The loss may even be negative.",
        ONLINE,
        ({"join": lambda a, b: b},),
    ),
    Mistake(
        "softmax_in_each_chunk",
        "you take a softmax within each chunk; the whole vocabulary shares one",
        "cross_entropy was called for every chunk.",
        "A model is not told about the classes in other chunks.",
        ONLINE,
        ({"sums": _within, "join": lambda a, b: a + b},),
    ),
    Mistake(
        "no_maximum",
        "you sum exponentials as they are, without a maximum to refer to",
        "log and exp look as if they cancelled.",
        "exp overflows for logits above 709, and the log of an underflow is −∞.",
        ONLINE,
        ({"sums": _naive},),
    ),
    Mistake(
        "no_maximum_on_the_way_back",
        "in your backward pass you divide exponentials by each other; exp(z − log-sum) is the same and never "
        "overflows",
        "The forward pass was made safe, and its sum is at hand.",
        "The loss is right, and one large logit makes the gradients NaN.",
        ONLINE,
        ({"outer": _divided_exponentials},),
    ),
    Mistake(
        "incoming_gradient_ignored",
        "your backward pass never uses the gradient that comes in; it is the factor of all that goes out",
        "After loss.backward() it is 1.",
        "A weighted loss, one of several, or a scaled one trains as if it stood alone.",
        MEASURED,
        ({"result": _AlwaysOne.apply},),
    ),
    Mistake(
        "target_not_shifted",
        "you look the target up in each chunk by its number in the vocabulary",
        "In the first chunk, the two numbers are the same.",
        "In every later chunk, another class is taken for the target.",
        LOSS,
        ({"sums": _not_shifted},),
    ),
    Mistake(
        "target_in_every_chunk",
        "you take a logit for the target from every chunk, also from those in which it is not",
        "clamp() stops the error about an index out of range.",
        "Classes at the edges of chunks are rewarded.",
        LOSS,
        ({"sums": _everywhere},),
    ),
    Mistake(
        "padding_counted",
        "you count padding as something to be predicted",
        "pad_id is an argument that nothing fails without.",
        "Most of what is learned is where padding stands.",
        LOSS,
        ({"real": lambda targets, pad_id: torch.ones_like(targets, dtype=torch.bool)},),
    ),
    Mistake(
        "pad_id_zero",
        "you take 0 for padding, whatever pad_id is",
        "It is 0 in most examples.",
        "With another pad_id, padding is learned and a word is not.",
        LOSS,
        ({"real": lambda targets, pad_id: targets != 0},),
    ),
    Mistake(
        "divided_by_all",
        "you divide by all tokens, padding included",
        "mean() counts what is there.",
        "The more padding, the smaller the loss.",
        LOSS,
        ({"divide": lambda total, count, rows: total / rows},),
    ),
    Mistake(
        "not_divided",
        "you return the sum; here the mean over the real tokens is wanted",
        "Sums are what one accumulates.",
        "The loss grows with the batch.",
        LOSS,
        ({"divide": lambda total, count, rows: total},),
    ),
    Mistake(
        "nan_without_tokens",
        "without a single real token you divide 0 by 0; the loss is to be 0",
        "A batch of padding alone is rare.",
        "One NaN, and all weights are.",
        LOSS,
        ({"divide": lambda total, count, rows: total / torch.tensor(count)},),
    ),
    Mistake(
        "positive",
        "you return the mean logarithm of the probability; the loss is its negative",
        "A sign.",
        "Training makes the right words less likely.",
        LOSS,
        ({"loss": lambda total, picked: picked - total},),
    ),
    Mistake(
        "weights_without_gradient",
        "hidden gets its gradient, weight does not",
        "On the way back, only the input was made to require one.",
        "The projection never learns.",
        MEASURED,
        ({"inputs": lambda hidden, weight: (hidden, weight.detach())},),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad keeps nothing for the way back, because there is none.",
        "The model stays as it was.",
        MEASURED,
        ({"result": lambda loss: loss.detach()},),
    ),
    Mistake(
        "chunk_unchecked",
        "you do not refuse a chunk below 1",
        "torch complains somewhere, or a loop runs over nothing.",
        "The caller is told nothing about chunk.",
        LOSS,
        (
            {"accept": _complaining},
            {
                "accept": lambda chunk: None,
                "starts": lambda vocab, chunk: range(0, vocab, max(chunk, 1)),
                "part": lambda weight, start, chunk: weight[start : start + max(chunk, 1)],
            },
        ),
    ),
)
