"""The causal mask: True where the key is not later than the query. Leading axes of size one are optional."""

from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Task, calls
from transformer_lessons.masks import causal_mask


def booleans(mask: Tensor) -> Tensor:
    """A mask of any dtype, or a list, as the booleans that it means; being boolean is a separate requirement."""
    mask = torch.as_tensor(mask)
    return mask == 0 if mask.is_floating_point() and (mask <= 0).all() else mask.bool()  # additive: 0 and −∞


def matrix(mask: Tensor) -> Tensor:
    """The mask as booleans, without leading axes of size one."""
    visible = torch.atleast_2d(booleans(mask))
    while visible.dim() > 2 and visible.size(0) == 1:
        visible = visible[0]
    return visible


def form(mask: Tensor) -> dict[str, Any]:
    """What the mask is, and whether it is more than a constant."""
    kind = f"a tensor of {mask.dtype}" if isinstance(mask, Tensor) else "a list or array"
    return {"the mask": kind, "hides some keys and shows others": booleans(mask).unique().numel() > 1}


TASK = Task(
    name="causal_mask",
    solution=[causal_mask],
    probes={
        "triangle": (calls((1,), (2,), (3,), (5,), view=matrix), calls((2,), (3,), view=matrix)),
        "keys": (
            calls((2, 5), (1, 4), (3, 4), (3, 3), view=matrix),
            calls((1, 2), (2, 3), (2, 5), view=matrix),
        ),
        "boolean": (calls((2,), (3,), view=form), calls((2,), view=form)),
    },
)
