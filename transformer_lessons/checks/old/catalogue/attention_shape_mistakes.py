"""Mistakes of any attention that show with inputs of some shapes, and not with others."""

import math

from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["CONTIGUOUS_ONLY", "SHAPES", "THREE_AXES_AS_BATCH", "three_axes_as_batch"]


def _viewed(*inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.view(-1, *x.shape[-2:]).view(x.shape) for x in inputs)


def three_axes_as_batch(mask: Tensor | None, axes: int) -> Tensor | None:
    """A mask of three axes, given another for the heads, if the inputs have four."""
    return mask[:, None] if mask is not None and mask.dim() == 3 and axes == 4 else mask


def _rounded_scale(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) / math.isqrt(query.size(-1))


CONTIGUOUS_ONLY = Mistake(
    "contiguous_only",
    "you call view on an input whose axes may have been exchanged before; reshape copies where it has to",
    "Tensors made for a try lie in memory in order. Queries, keys and values that were split into heads do not.",
    "RuntimeError, as soon as it stands in a model.",
    "#ch07-reshape",
    ({"inputs": _viewed},),
)
THREE_AXES_AS_BATCH = Mistake(
    "mask_three_axes_as_batch",
    "you take a mask of three axes for (batch, queries, keys); as shapes are lined up from the right, it is "
    "(heads, queries, keys)",
    "Padding masks have a batch axis, so every mask seems to have one in front.",
    "A mask for each head fails, or masks each sentence with another one's.",
    "#ch04-broadcast",
    ({"read": lambda mask, scores: three_axes_as_batch(mask, scores.dim())},),
)
SHAPES = (
    CONTIGUOUS_ONLY,
    THREE_AXES_AS_BATCH,
    Mistake(
        "scale_rounded",
        "you round √d_k to a whole number",
        "isqrt, int(…) or // is written where widths are computed, which are whole.",
        "With d_k = 64 nothing shows; with most others the softmax is a little too peaked.",
        "#ch05-scale",
        ({"scores": _rounded_scale},),
    ),
)
