"""The known mistakes of `split_heads` and `merge_heads`, and the steps that they change."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["MERGE_MISTAKES", "SPLIT_MISTAKES", "MergeSteps", "SplitSteps", "merge_in_steps", "split_in_steps"]

RESHAPE, CLASS, WRONG, LOOP = "#ch07-reshape", "#ch07-class", "#ch07-wrong", "#ch07-loop"


def _three_axes(x: Tensor) -> None:
    if x.dim() != 3:
        raise ValueError("x: expected (batch, length, d_model)")


def _accept(x: Tensor, num_heads: int) -> None:
    if num_heads < 1 or x.size(-1) % num_heads:
        raise ValueError("num_heads: expected a divisor of d_model")


@dataclass(frozen=True)
class SplitSteps:
    """What a mistake may replace in splitting."""

    axes: Callable = _three_axes
    accept: Callable = _accept
    source: Callable = lambda x: x
    split: Callable = lambda x, h: x.unflatten(2, (h, -1)).transpose(1, 2)


def split_in_steps(steps: SplitSteps) -> Callable:
    """Heads split in these steps."""

    def split_heads(x, num_heads):
        for refused in (steps.axes(x), steps.accept(x, num_heads)):
            if refused is not None:
                return refused
        return steps.split(steps.source(x), num_heads)

    return split_heads


def _viewed(x: Tensor, h: int) -> Tensor:
    return x.reshape(x.size(0), h, x.size(1), -1)


def _interleaved(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


def _length_first(x: Tensor, h: int) -> Tensor:
    return x.reshape(x.size(0), x.size(1), h, -1).permute(1, 2, 0, 3)


def _crash(*_: object) -> None:
    raise RuntimeError("shape is invalid for input of this size")


def _crash_where(wrong: Callable) -> Callable:
    """All numbers are refused that should be, but for some, where Python or torch fails."""

    def accept(x: Tensor, num_heads: int) -> None:
        if wrong(num_heads):
            raise ZeroDivisionError("integer modulo by zero")
        _accept(x, num_heads)

    return accept


def _refused_only(some: Callable, rest: Callable) -> Callable:
    """Numbers below 1 and some others are refused; this becomes of the rest that do not divide d_model."""

    def accept(x: Tensor, num_heads: int) -> Tensor | None:
        if num_heads < 1 or some(x, num_heads):
            raise ValueError("num_heads")
        return rest(x) if x.size(-1) % num_heads else None

    return accept


def _refused_axes(*axes: int, crash: int = 0) -> Callable:
    """Of tensors of two to five axes, some are refused, some crash, and any others come back as they are."""

    def accept(x: Tensor) -> Tensor:
        if x.dim() in axes:
            raise ValueError("x: expected other axes")
        return _crash() if x.dim() == crash else x

    return accept


def _crash_unless_divisor(x: Tensor, num_heads: int) -> None:
    if num_heads < 1 or x.size(-1) % num_heads:
        _crash()


def _torch_complains(x: Tensor) -> None:
    if x.dim() != 3:
        _crash()


def _anything(x: Tensor) -> Tensor | None:
    return None if x.dim() == 3 else x


def _unless(right: int, accept: Callable) -> Callable:
    return lambda x: None if x.dim() == right else accept(x)


_DETACHED = Mistake(
    "detached",
    "you cut the gradient off: what comes out must be connected to x",
    ".data, .detach(), numpy or torch.tensor(…) make a copy without a history.",
    "All values are right, and the projections before it never learn.",
    CLASS,
    ({"source": Tensor.detach},),
)

SPLIT_MISTAKES = (
    Mistake(
        "view_only",
        "you reinterpret the memory as (batch, heads, length, d_k); the axes have to be exchanged, not renamed",
        "view or reshape to the shape wanted gives no error.",
        "A “head” is a stretch of positions with all their features, not a part of the features.",
        RESHAPE,
        ({"split": _viewed},),
    ),
    Mistake(
        "view_into_batch",
        "you reinterpret the memory as (batch · heads, length, d_k): positions and heads are mixed",
        "view(batch * heads, -1, d_k) is found in many tutorials, without the exchange that has to come before.",
        "A “head” is a stretch of positions with all their features.",
        WRONG,
        ({"split": lambda x, h: _viewed(x, h).flatten(0, 1)},),
    ),
    Mistake(
        "into_batch",
        "you fold the heads into the batch; they should be an axis of their own, the second",
        "nn.MultiheadAttention does so inside, and bmm wants three axes.",
        "The heads are right, but masks of four axes no longer fit.",
        RESHAPE,
        ({"split": lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2).flatten(0, 1)},),
    ),
    Mistake(
        "not_exchanged",
        "your result has the axes (batch, length, heads, d_k); the heads come before the length",
        "Half of the job, view or unflatten, is done; the exchange of two axes is missing.",
        "A matrix product would let heads attend to heads, within one position.",
        RESHAPE,
        ({"split": lambda x, h: x.unflatten(-1, (h, -1))},),
    ),
    Mistake(
        "interleaved",
        "you deal the features out one by one: head i should get d_k neighbouring features, not each h-th",
        "The axis was cut into (d_k, heads), not (heads, d_k).",
        "Shapes are right, but no weights made by anybody else fit.",
        RESHAPE,
        ({"split": _interleaved},),
    ),
    Mistake(
        "turned",
        "your result has the axes (batch, heads, d_k, length), the layout of keys that are already transposed",
        "Older code turns keys while it splits them.",
        "Queries and values do not fit any more.",
        RESHAPE,
        ({"split": lambda x, h: x.unflatten(-1, (h, -1)).permute(0, 2, 3, 1)},),
    ),
    Mistake(
        "heads_first",
        "your result has the axes (heads, batch, length, d_k); the batch comes first",
        "torch.stack puts its new axis in front.",
        "Masks meet heads where they should meet the batch.",
        RESHAPE,
        ({"split": lambda x, h: x.unflatten(-1, (h, -1)).permute(2, 0, 1, 3)},),
    ),
    Mistake(
        "wrong_width",
        "you took num_heads for the width of a head: there should be num_heads heads, d_model / num_heads wide",
        "The two numbers were exchanged.",
        "With 8 heads of 64 nobody is surprised by 64 heads of 8.",
        RESHAPE,
        (
            {"split": lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2)},
            {"split": lambda x, h: _viewed(x, x.size(-1) // h)},
        ),
    ),
    Mistake(
        "length_first",
        "you take the first axis for the positions and the second for the batch; it is the other way round",
        "nn.MultiheadAttention expects (length, batch, d_model) unless told otherwise.",
        "Words of different sentences attend to each other.",
        RESHAPE,
        ({"split": _length_first},),
    ),
    Mistake(
        "positions_and_features",
        "you exchanged the last two axes; those to exchange are length and heads",
        "transpose(2, 3) is what the keys need, one step later.",
        "The axes are (batch, length, d_k, heads).",
        RESHAPE,
        ({"split": lambda x, h: x.unflatten(-1, (h, -1)).transpose(2, 3)},),
    ),
    _DETACHED,
    Mistake(
        "squeezed",
        "you squeeze axes of size one away; the result has four axes, whatever their sizes",
        "squeeze() after the reshapes tidies up, or removes an axis that was added on the way.",
        "A single sentence, or a single head, comes back with too few axes.",
        RESHAPE,
        (
            {"split": lambda x, h: x.unflatten(2, (h, -1)).transpose(1, 2).squeeze()},
            {"split": lambda x, h: x.unflatten(2, (h, -1)).transpose(1, 2).squeeze(0)},
            {"split": lambda x, h: x.unflatten(2, (h, -1)).transpose(1, 2).squeeze(1)},
        ),
    ),
    Mistake(
        "divisor_unchecked",
        "you do not refuse, with ValueError, a number of heads that does not divide d_model",
        "torch complains in most cases, about sizes; rounding down loses features. An assert is no ValueError.",
        "The caller is told nothing about num_heads.",
        CLASS,
        (
            {"accept": _crash_unless_divisor},
            {"accept": lambda x, h: x if h < 1 or x.size(-1) % h else None},
            {"accept": lambda x, h: _crash() if h < 1 else x if x.size(-1) % h else None},
            {"accept": _refused_only(lambda x, h: h > x.size(-1), lambda x: x)},
            {"accept": _refused_only(lambda x, h: h > x.size(-1), _crash)},
            {"accept": _refused_only(lambda x, h: False, lambda x: x)},
            {"accept": _refused_only(lambda x, h: False, _crash)},
        ),
    ),
    Mistake(
        "zero_unchecked",
        "you do not refuse each number of heads below 1",
        "d_model % 0 is an error of its own, ZeroDivisionError, and 12 % −3 is 0.",
        "The caller reads about a division, or a shape, that is not theirs.",
        CLASS,
        (
            {"accept": _crash_where(lambda h: h < 1)},
            {"accept": _crash_where(lambda h: h == 0)},
            {"accept": _crash_where(lambda h: h < 0)},
        ),
    ),
    Mistake(
        "axes_unchecked",
        "you do not refuse an x that has another number of axes than three",
        "Negative axes work for any number of them.",
        "Heads that are split twice go unnoticed here.",
        CLASS,
        (
            {"axes": _torch_complains},
            {"axes": _anything},
            {"axes": _unless(3, _refused_axes(4))},
            {"axes": _unless(3, _refused_axes(2))},
            {"axes": _unless(3, _refused_axes(crash=2))},
        ),
    ),
)


def _four_axes(x: Tensor) -> None:
    if x.dim() != 4:
        raise ValueError("x: expected (batch, heads, length, d_k)")


@dataclass(frozen=True)
class MergeSteps:
    """What a mistake may replace in merging."""

    axes: Callable = _four_axes
    source: Callable = lambda x: x
    merge: Callable = lambda x: x.transpose(1, 2).flatten(2)


def merge_in_steps(steps: MergeSteps) -> Callable:
    """Heads merged in these steps."""

    def merge_heads(x):
        refused = steps.axes(x)
        return steps.merge(steps.source(x)) if refused is None else refused

    return merge_heads


def _four_axes_torch_complains(x: Tensor) -> None:
    if x.dim() != 4:
        _crash()


def _viewed_unless_copied(x: Tensor) -> Tensor:
    """A copy is made only of an x that lies in memory in order."""
    turned = x.transpose(1, 2)
    return (turned.contiguous() if x.is_contiguous() else turned).view(x.size(0), x.size(2), -1)


def _viewed_if_in_order(x: Tensor) -> Tensor:
    """The memory is reinterpreted wherever that gives no error."""
    return (x if x.is_contiguous() else x.transpose(1, 2)).reshape(x.size(0), x.size(2), -1)


MERGE_MISTAKES = (
    Mistake(
        "view_only",
        "you reinterpret the memory; the axes of heads and positions have to be exchanged back before",
        "reshape to (batch, length, d_model) gives no error.",
        "A position gets rows of one head, from several positions: a leak from the future too.",
        WRONG,
        (
            {"merge": lambda x: x.reshape(x.size(0), x.size(2), -1)},
            {"merge": lambda x: x.contiguous().view(x.size(0), x.size(2), -1)},
            {"merge": lambda x: x.view(x.size(0), x.size(2), -1)},
            {"merge": _viewed_if_in_order},
            {"merge": lambda x: x.view(x.size(0), x.size(2), x.size(1) * x.size(3))},
        ),
    ),
    Mistake(
        "view_after_exchange",
        "you call view on axes that were exchanged: the numbers no longer lie in memory in that order",
        "view worked on the way in.",
        "RuntimeError. flatten and reshape copy where they have to; view never does.",
        RESHAPE,
        (
            {"merge": lambda x: x.transpose(1, 2).view(x.size(0), x.size(2), -1)},
            {"merge": _viewed_unless_copied},
        ),
    ),
    Mistake(
        "interleaved",
        "you put first the first feature of all heads, then the second of all; a head's features stay together",
        "The last two axes are flattened in the other order, (d_k, heads).",
        "The shape is right, but W_o meets the features in another order.",
        RESHAPE,
        ({"merge": lambda x: x.permute(0, 2, 3, 1).flatten(-2)},),
    ),
    Mistake(
        "other_axes_exchanged",
        "you exchanged the last two axes; those to exchange are heads and positions",
        "transpose(-2, -1) is at hand from the line of the keys.",
        "The shape is right, and positions are mixed with features.",
        WRONG,
        (
            {"merge": lambda x: x.transpose(2, 3).reshape(x.size(0), x.size(2), -1)},
            {"merge": lambda x: x.transpose(1, 3).reshape(x.size(0), x.size(2), -1)},
        ),
    ),
    Mistake(
        "not_flattened",
        "your result still has the axes (batch, length, heads, d_k); the last two should become one",
        "Half of the job is done.",
        "W_o cannot be applied: it takes d_model features.",
        RESHAPE,
        ({"merge": lambda x: x.transpose(1, 2)},),
    ),
    Mistake(
        "heads_added",
        "you added or averaged the heads, so the width is d_k; concatenated, they are h · d_k = d_model wide",
        "“Combining” heads sounds like a sum, and some texts say that the result is d_model / h wide.",
        "What the heads found apart is mixed again.",
        LOOP,
        tuple({"merge": merge} for merge in (lambda x: x.sum(1), lambda x: x.mean(1))),
    ),
    Mistake(
        "in_series",
        "you put the heads one after the other along the positions; they belong side by side, along the features",
        "“Concatenated” does not say along which axis, and dim=1 is the first that comes to mind.",
        "There are h times as many positions.",
        LOOP,
        ({"merge": lambda x: x.flatten(1, 2)},),
    ),
    Mistake(
        "batch_for_heads",
        "you concatenated over the batch: a loop over a tensor runs through its first axis; heads are the second",
        "torch.cat([head for head in x], dim=-1) reads as if it ran through the heads.",
        "Sentences stand side by side.",
        LOOP,
        ({"merge": lambda x: torch.cat(list(x), dim=-1)},),
    ),
    Mistake(
        "reversed",
        "you put the heads side by side in the opposite order",
        "They were put in front of what was there already.",
        "W_o meets the heads in another order.",
        LOOP,
        ({"merge": lambda x: x.flip(1).transpose(1, 2).flatten(-2)},),
    ),
    _DETACHED,
    Mistake(
        "squeezed",
        "you squeeze axes of size one away; the result has three axes, whatever their sizes",
        "squeeze() after the reshapes tidies up, or removes an axis that was added on the way.",
        "A single sentence, or a single position, comes back with too few axes.",
        RESHAPE,
        (
            {"merge": lambda x: x.transpose(1, 2).flatten(2).squeeze()},
            {"merge": lambda x: x.transpose(1, 2).flatten(2).squeeze(0)},
            {"merge": lambda x: x.transpose(1, 2).flatten(2).squeeze(1)},
        ),
    ),
    Mistake(
        "axes_unchecked",
        "you do not refuse an x that has another number of axes than four",
        "A tensor of three axes can be transposed and flattened too.",
        "A forgotten split goes unnoticed here.",
        CLASS,
        (
            {"axes": _four_axes_torch_complains},
            {"axes": lambda x: None if x.dim() == 4 else x},
            {"axes": _unless(4, _refused_axes(2, 3))},
            {"axes": _unless(4, _refused_axes(3, crash=2))},
            {"axes": _unless(4, _refused_axes(crash=2))},
        ),
    ),
)
