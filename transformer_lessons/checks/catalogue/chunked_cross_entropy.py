"""The check of `chunked_cross_entropy`: the loss over a large vocabulary without all its logits."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_lessons.checks.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

LOSS, ONLINE, MEASURED = "#ch14-loss", "#ch17-online", "#ch17-measured"


def _sizes(seed: int) -> dict[str, int]:
    order = random.Random(seed)
    tokens, vocab = order.choice([11, 13]), order.choice([17, 19, 23])
    width, chunk = order.sample([3, 5, 7], 2)
    return {"tokens": tokens, "vocab": vocab, "width": width, "chunk": chunk}


def _inputs(
    draw: Draw, tokens: int, vocab: int, width: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Hidden vectors, the projection, and targets all over the vocabulary; one in four is padding."""
    targets = (draw.integers(0, vocab, 1) + torch.arange(tokens) * max(vocab // tokens, 1)) % vocab
    targets[targets == 0] = 1
    targets[::4] = 0
    return [draw.normal(tokens, width, dtype=dtype), draw.normal(vocab, width, dtype=dtype), targets]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    n, vocab, width, chunk = (s[name] for name in ("tokens", "vocab", "width", "chunk"))
    hidden, weight, targets = plain = _inputs(draw, n, vocab, width)
    unpadded = torch.where(targets == 0, 1, targets)
    other = torch.where(targets == 0, 2, torch.where(targets == 2, 3, targets))
    low = [hidden.abs() + 0.5, -2e4 * (weight.abs() + 0.5), targets]
    shown, halves = _inputs(draw, 29, 101, 2), _inputs(draw, 29, 74, 2)
    column = 29 * 8
    one = torch.tensor(1.0, dtype=torch.float64)
    return {
        "one_chunk": Probe([hidden, weight, unpadded, vocab + 4, 0]),
        "padded": Probe([*plain, vocab + 4, 0]),
        "dividing": Probe([*_inputs(draw, n, 3 * chunk, width), chunk, 0]),
        "plain": Probe([*plain, chunk, 0], cotangents=[one]),
        "pad_id": Probe([hidden, weight, other, vocab + 4, 2]),
        "float32": Probe([*_inputs(draw, n, vocab, width, torch.float32), chunk, 0]),
        "large": Probe([hidden * 300, weight * 10, targets, chunk, 0]),
        "low": Probe([*low, chunk, 0]),
        "only_padding": Probe([hidden, weight, torch.zeros_like(targets), chunk, 0], cotangents=[one]),
        "one_token": Probe([hidden[:1], weight, unpadded[:1], 1, 0]),
        "training": Probe(
            [*shown, 13, 0],
            cotangents=[one],
            meter=True,
            enough={"largest": 13 * column, "saved": 25 * column, "peak": 90 * column},
        ),
        "halves": Probe([*halves, 37, 0], cotangents=[one], meter=True, enough={"saved": 18 * column}),
        "no_chunk": Probe([*plain, 0, 0], refused="chunk=0"),
        "negative_chunk": Probe([*plain, -chunk, 0], refused=f"chunk={-chunk}"),
    }


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
    result: Callable = lambda loss: loss


def assemble(steps: Steps) -> Callable:
    """The loss in these steps."""

    def chunked(hidden, weight, targets, chunk, pad_id):
        steps.accept(chunk)
        hidden, weight = steps.inputs(hidden, weight)
        total, picked = None, 0
        for start in steps.starts(len(weight), chunk):
            here, found = steps.run(steps.sums, hidden, steps.part(weight, start, chunk), targets, start)
            total, picked = here if total is None else steps.join(total, here), picked + found
        real = steps.real(targets, pad_id)
        loss = steps.loss(total, picked).masked_fill(~real, 0.0).sum()
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

TASK = Task(
    name="chunked_cross_entropy",
    signature="chunked_cross_entropy(hidden, weight, targets, chunk, pad_id)",
    arguments=("hidden", "weight", "targets", "chunk", "pad_id"),
    returns=("loss",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor without axes.", ("one_chunk",), MEASURED, ("structure",)
        ),
        Requirement(
            "values",
            "loss = −log softmax(hidden weightᵀ)[target], its mean over the tokens.",
            ("one_chunk",),
            LOSS,
        ),
        Requirement(
            "padding", "tokens whose target is pad_id count for nothing.", ("padded", "pad_id"), LOSS
        ),
        Requirement(
            "chunks",
            "chunk classes at a time share one softmax; chunk need not divide their number.",
            ("dividing", "plain"),
            ONLINE,
        ),
        Requirement("extremes", "logits of any size work: no overflow, no NaN.", ("large", "low"), ONLINE),
        Requirement("gradients", "gradients reach hidden and weight.", ("plain",), MEASURED, ("gradients",)),
        Requirement("dtype", "the loss has the dtype of hidden.", ("float32", "plain"), LOSS, ("dtype",)),
        Requirement("inputs", "the caller's tensors are left unchanged.", ("plain",), LOSS, ("inputs",)),
        Requirement(
            "only_padding",
            "without a single real token, loss and gradients are 0.",
            ("only_padding",),
            LOSS,
            ("gradients",),
        ),
        Requirement(
            "largest",
            "no tensor holds the logits of all classes, forwards or backwards.",
            ("training",),
            MEASURED,
            ("largest",),
        ),
        Requirement(
            "saved",
            "nothing of the size of all logits is kept for the way back.",
            ("training", "halves"),
            MEASURED,
            ("gradients", "saved"),
        ),
        Requirement(
            "peak", "nor is it there at once on the way back.", ("training",), MEASURED, ("gradients", "peak")
        ),
        Requirement(
            "refusals",
            "a chunk below 1 is refused with ValueError.",
            ("one_token", "no_chunk", "negative_chunk"),
            LOSS,
        ),
    ),
    sizes=_sizes,
    small=(
        {"tokens": 2, "vocab": 3, "width": 1, "chunk": 2},
        {"tokens": 2, "vocab": 5, "width": 2, "chunk": 2},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=9,  # what is neither refused nor counted
)
