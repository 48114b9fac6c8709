"""Known wrong ways to accumulate gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES", "Batches", "Steps", "assemble"]

LOOP, LOSS, WRONG = "#ch14-loop", "#ch14-loss", "#ch14-wrong"
Batches = list[list[Tensor]]


def _accept(accumulate: int) -> None:
    if accumulate < 1:
        raise ValueError("accumulate: expected 1 or more")


def _grouped(batches: Batches, accumulate: int) -> list[Batches]:
    return [batches[start : start + accumulate] for start in range(0, len(batches), accumulate)]


def _summed(logits: Tensor, targets: Tensor, pad_id: int) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=pad_id, reduction="sum")


def _tokens(targets: Tensor, pad_id: int) -> int:
    return int((targets != pad_id).sum())


def _per_token(totals: list[Tensor], counts: list[int]) -> float:
    return float(sum(totals)) / sum(counts)


def _by_all_tokens(counts: list[int], number: int, accumulate: int, every: int) -> float:
    """What the summed loss of part `number` of a group is divided by."""
    return sum(counts)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    groups: Callable = _grouped
    regroup: Callable = lambda groups, accumulate, pad_id: groups
    begin: Callable = lambda module: None
    before_group: Callable = lambda module: module.zero_grad()
    before_part: Callable = lambda module: None
    after_group: Callable = lambda module: None
    prepare: Callable = lambda parts, pad_id: parts
    call: Callable = lambda module, inputs, targets, pad_id: module(inputs)
    total: Callable = _summed
    count: Callable = _tokens
    divisor: Callable = _by_all_tokens
    is_step: Callable = lambda number, parts: number == len(parts) - 1
    before_step: Callable = lambda module: None
    move: Callable = lambda parameter, rate: parameter.sub_(rate * parameter.grad)
    loss: Callable = _per_token
    result: Callable = list


def assemble(steps: Steps) -> Callable:
    """The training in these steps."""

    def train_accumulated(module, batches, accumulate, *, rate, pad_id):
        steps.accept(accumulate)
        steps.begin(module)
        losses = []
        every = sum(steps.count(targets, pad_id) for _, targets in batches)
        for parts in steps.regroup(steps.groups(batches, accumulate), accumulate, pad_id):
            counts, totals = [steps.count(targets, pad_id) for _, targets in parts], []
            steps.before_group(module)
            parts = steps.prepare(parts, pad_id)
            for number, (inputs, targets) in enumerate(parts):
                steps.before_part(module)
                logits = steps.call(module, inputs, targets, pad_id)
                total = steps.total(logits, targets, pad_id)
                (total / steps.divisor(counts, number, accumulate, every)).backward()
                totals.append(total.detach())
                if steps.is_step(number, parts):
                    steps.before_step(module)
                    _descend(module, rate, steps.move)
            losses.append(steps.loss(totals, counts))
            steps.after_group(module)
        return steps.result(losses)

    return train_accumulated


def _zero_crashes(accumulate: int) -> None:
    if not accumulate:
        raise ZeroDivisionError("integer modulo by zero")


def _clip(module: nn.Module, norm: float) -> None:
    """As `clip_grad_norm_`, which imports much."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    length = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    for gradient in gradients:
        gradient.mul_((norm / (length + 1e-6)).clamp(max=1.0))


def _descend(module: nn.Module, rate: float, move: Callable) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                move(parameter, rate)


def _whole_groups(batches: Batches, accumulate: int) -> list[Batches]:
    return [group for group in _grouped(batches, accumulate) if len(group) == accumulate]


def _one_early(batches: Batches, accumulate: int) -> list[Batches]:
    """A step whenever index % accumulate == 0, and what is left at the end."""
    return [batches[:1], *_grouped(batches[1:], accumulate)]


def _one_early_cut(batches: Batches, accumulate: int) -> list[Batches]:
    return [batches[:1], *_whole_groups(batches[1:], accumulate)]


def _rest_alone(batches: Batches, accumulate: int) -> list[Batches]:
    """The rest makes a step for each of its batches."""
    whole = _whole_groups(batches, accumulate)
    return [*whole, *([batch] for batch in batches[accumulate * len(whole) :])]


def _without_empty_ones(groups: list[Batches], accumulate: int, pad_id: int) -> list[Batches]:
    """Left out before they are grouped."""
    batches = [batch for group in groups for batch in group]
    return _grouped([batch for batch in batches if _tokens(batch[1], pad_id)], accumulate)


def _no_step_after_empty_ones(groups: list[Batches], accumulate: int, pad_id: int) -> list[Batches]:
    """`continue` at an empty batch skips the step that was due after it as well."""
    made, waiting = [], []
    for group in groups:
        waiting = [*waiting, *group]
        if _tokens(group[-1][1], pad_id):
            made, waiting = [*made, waiting], []
    return made


def _real_positions(module: nn.Module, inputs: Tensor, targets: Tensor, pad_id: int) -> Tensor:
    """The logits of real positions, which alone are computed, and zeros."""
    real = targets != pad_id
    found = module(inputs[real])
    return found.new_zeros(*real.shape, found.size(-1)).masked_scatter(real[..., None], found)


def _positions_in_a_row(module: nn.Module, inputs: Tensor, targets: Tensor, pad_id: int) -> Tensor:
    return module(inputs.flatten(0, 1)).unflatten(0, targets.shape)


def _row_by_row(module: nn.Module, inputs: Tensor, targets: Tensor, pad_id: int) -> Tensor:
    return torch.cat([module(row[None]) for row in inputs])


def _in_one(parts: Batches, pad_id: int) -> Batches:
    """The tokens of all parts in one row."""
    inputs = torch.cat([inputs.flatten(0, 1) for inputs, _ in parts])
    return [[inputs[None], torch.cat([targets.flatten() for _, targets in parts])[None]]]


def _one_below_another(parts: Batches, pad_id: int) -> Batches:
    """The rows of all parts, padded to the length of the longest."""
    longest = max(targets.size(1) for _, targets in parts)
    inputs = [F.pad(inputs, (0, 0, 0, longest - inputs.size(1))) for inputs, _ in parts]
    targets = [F.pad(targets, (0, longest - targets.size(1)), value=pad_id) for _, targets in parts]
    return [[torch.cat(inputs), torch.cat(targets)]]


def _mean_of_means(counts: list[int], number: int, accumulate: int, every: int) -> float:
    return counts[number] * len(counts)


def _means_by_accumulate(counts: list[int], number: int, accumulate: int, every: int) -> float:
    return counts[number] * accumulate


def _means_added(counts: list[int], number: int, accumulate: int, every: int) -> float:
    return counts[number]


def _masked(logits: Tensor, targets: Tensor, pad_id: int) -> Tensor:
    """Losses times zeros and ones: divided by no tokens, that has no gradient but NaN."""
    each = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return (each * (targets != pad_id)).sum()


def _means(totals: list[Tensor], counts: list[int]) -> float:
    nan = float("nan")
    return sum(
        float(total) / count if count else nan for total, count in zip(totals, counts, strict=True)
    ) / len(counts)


def _nan_of_empty_ones(totals: list[Tensor], counts: list[int]) -> float:
    """The batches' means, each times its tokens: of no tokens, 0/0 times 0."""
    return _per_token(totals, counts) if all(counts) else float("nan")


def _last(totals: list[Tensor], counts: list[int]) -> float:
    return float(totals[-1]) / (counts[-1] or float("nan"))


def _padding_too(logits: Tensor, targets: Tensor, pad_id: int) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


_GRADIENTS = (
    Mistake(
        "rest_dropped",
        "you drop the batches left over at the end: they make a last, smaller group",
        "A step is made whenever the number of batches can be divided by accumulate, and at no other time.",
        "The last gradients of an epoch are lost, or flow into the next.",
        WRONG,
        ({"groups": _whole_groups},),
    ),
    Mistake(
        "step_one_early",
        "your first group has one batch: with numbers from 0, a step is due after number accumulate − 1",
        "0 % accumulate is 0.",
        "The first step is made of one batch, and all the others are shifted.",
        LOOP,
        ({"groups": _one_early}, {"groups": _one_early_cut}),
    ),
    Mistake(
        "rest_in_single_steps",
        "you make a step for each of the batches left over; together they make one",
        "The rest was sent through ordinary training.",
        "Small batches at the end of each epoch, with large noise.",
        LOOP,
        ({"groups": _rest_alone},),
    ),
    Mistake(
        "empty_batches_skipped",
        "you skip batches of nothing but padding; they count in a group, and a step may be due after them",
        "Nothing can be learned from them.",
        "Groups hold other batches than they should.",
        LOOP,
        ({"regroup": _without_empty_ones}, {"regroup": _no_step_after_empty_ones}),
    ),
    Mistake(
        "batch_taken_apart",
        "you give the module single positions; it takes a whole batch, in its shape, padding and all",
        "A linear map treats each position by itself, and padding is not needed in the end.",
        "A module with attention, or of positions, sees something else, or fails.",
        LOSS,
        ({"call": _real_positions}, {"call": _positions_in_a_row}),
    ),
    Mistake(
        "mean_of_means",
        "you average the batches' means; the sum over all real tokens is divided once, by their number",
        "loss / accumulate is in every tutorial.",
        "Tokens of short batches count too much.",
        WRONG,
        (
            {"divisor": _mean_of_means},
            {"divisor": _means_by_accumulate},
            {"divisor": _mean_of_means, "total": _masked},
            {"divisor": _means_by_accumulate, "total": _masked},
        ),
    ),
    Mistake(
        "means_added",
        "you add up the batches' means and never divide",
        "backward() adds, and the division was forgotten.",
        "Accumulating more batches means larger steps.",
        LOOP,
        (
            {"divisor": _means_added},
            {"divisor": _means_added, "total": _masked},
        ),
    ),
    Mistake(
        "sum_not_divided",
        "you follow the gradient of the sum; it has to be divided by the number of real tokens",
        "The loss function returns a sum.",
        "The step grows with the number of tokens.",
        LOSS,
        (
            {"divisor": lambda counts, number, accumulate, every: 1.0},
            {"divisor": lambda counts, number, accumulate, every: accumulate},
            {"divisor": lambda counts, number, accumulate, every: len(counts)},
        ),
    ),
    Mistake(
        "divided_by_last",
        "you divide the whole group by the tokens of one batch",
        "The number was overwritten where it should have been added up.",
        "Steps are several times too large.",
        LOSS,
        (
            {"divisor": lambda counts, number, accumulate, every: counts[-1]},
            {"divisor": lambda counts, number, accumulate, every: counts[0]},
        ),
    ),
    Mistake(
        "divided_by_epoch",
        "you divide by the tokens of all batches; each group has a number of its own",
        "The counter is never set back.",
        "Steps are too small.",
        LOSS,
        ({"divisor": lambda counts, number, accumulate, every: every},),
    ),
    Mistake(
        "divided_so_far",
        "you divide each batch by the tokens up to it; the number of the whole group must be known first",
        "The running count is what one has in the loop.",
        "The first batches of a group count too much.",
        LOSS,
        ({"divisor": lambda counts, number, accumulate, every: sum(counts[: number + 1]) or 1},),
    ),
    Mistake(
        "padding_counted",
        "you count padded positions: in the sum, in the number of tokens, or in both",
        "F.cross_entropy knows of padding only what ignore_index tells it.",
        "Steps get smaller the more a batch is padded, and the model learns padding.",
        LOSS,
        (
            {"total": _padding_too, "count": lambda targets, pad_id: targets.numel()},
            {"total": _padding_too},
            {"count": lambda targets, pad_id: targets.numel()},
        ),
    ),
    Mistake(
        "cleared_for_each_batch",
        "you clear the gradients before each batch, so that only the last one of a group has an effect",
        "zero_grad() stands beside backward() in every other loop.",
        "Accumulation saves no noise: most batches are computed for nothing.",
        LOOP,
        ({"before_part": lambda module: module.zero_grad()},),
    ),
    Mistake(
        "never_cleared",
        "you never clear the gradients",
        "They are to add up, after all: but within a group only.",
        "Each step repeats all the steps before it.",
        LOOP,
        ({"before_group": lambda module: None},),
    ),
    Mistake(
        "old_gradients_kept",
        "you clear the gradients after each step, but not before the first: what was left from earlier gets in",
        "At the start of a program there are none.",
        "After an evaluation, or an interrupted group, the first step is wrong.",
        LOOP,
        ({"before_group": lambda module: None, "after_group": lambda module: module.zero_grad()},),
    ),
    Mistake(
        "step_for_each_batch",
        "you make a step after each batch, with what has been added up so far",
        "The step stands inside the inner loop.",
        "The first batches of a group are followed several times.",
        LOOP,
        ({"is_step": lambda number, parts: True},),
    ),
    Mistake(
        "accumulate_ignored",
        "you never use accumulate: each batch makes a step of its own",
        "Plain training was written.",
        "Many noisy steps in place of few good ones.",
        LOOP,
        ({"groups": lambda batches, accumulate: [[batch] for batch in batches]},),
    ),
    Mistake(
        "uphill",
        "you add the gradient; it is subtracted",
        "The sign was lost.",
        "The loss rises.",
        LOOP,
        ({"move": lambda parameter, rate: parameter.add_(rate * parameter.grad)},),
    ),
    Mistake(
        "rate_ignored",
        "you never use rate",
        "A rate of your own was written down.",
        "The steps have another size than the caller wants.",
        LOOP,
        tuple(
            {"move": lambda parameter, rate, own=own: parameter.sub_(own * parameter.grad)}
            for own in (1.0, 0.1, 0.01, 1e-3)
        ),
    ),
    Mistake(
        "gradient_clipped",
        "you clip the gradient; a step follows the whole of it",
        "Most training loops clip, and the line was copied along.",
        "Steps are smaller wherever the gradient is large.",
        LOOP,
        tuple({"before_step": lambda module, norm=norm: _clip(module, norm)} for norm in (0.5, 1.0, 5.0)),
    ),
)

MISTAKES = (
    *_GRADIENTS,
    Mistake(
        "loss_of_means",
        "the losses you return are means of the batches' means",
        "The gradient was put right, and the record forgotten.",
        "The curve is not that of what is trained.",
        WRONG,
        ({"loss": _means},),
    ),
    Mistake(
        "loss_of_last",
        "the loss you return for a group is that of its last batch",
        "It is what the variable holds after the loop.",
        "The curve is noisier than the training.",
        LOOP,
        ({"loss": _last},),
    ),
    Mistake(
        "loss_of_empty_batch",
        "the loss you return is NaN for a group that holds a batch of nothing but padding",
        "A mean over no tokens is 0/0, and stays NaN when it is multiplied by their number, 0.",
        "The curve has gaps, though training goes on.",
        LOSS,
        ({"loss": _nan_of_empty_ones},),
    ),
    Mistake(
        "loss_summed",
        "the losses you return are sums, not divided by the number of tokens",
        "The sum is what backward() was called on.",
        "The curve depends on the size of the batches.",
        LOSS,
        ({"loss": lambda totals, counts: float(sum(totals))},),
    ),
    Mistake(
        "all_at_once",
        "you put the batches of a group together and compute them at once",
        "The gradient is the same.",
        "A large group does not fit into memory, which is why there are parts.",
        LOOP,
        ({"prepare": _in_one}, {"prepare": _one_below_another}),
    ),
    Mistake(
        "row_by_row",
        "you call the module once for each row; once for each batch is enough",
        "A loop over sentences is easy to read.",
        "Training takes many times as long.",
        LOOP,
        ({"call": _row_by_row},),
    ),
    Mistake(
        "accumulate_unchecked",
        "you do not refuse an accumulate below 1",
        "range() and % complain by themselves, in words of their own.",
        "Nothing is trained, or an error speaks of a modulo.",
        LOOP,
        (
            {"accept": lambda accumulate: None},
            {"accept": _zero_crashes},
            {"accept": lambda accumulate: None, "groups": lambda b, a: _grouped(b, a) if a else []},
        ),
    ),
)
