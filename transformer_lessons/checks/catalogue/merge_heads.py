"""Merging heads. What comes straight out of a split hides that view may fail; one position hides the exchange."""

from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task


def merge_heads(x):
    """(batch, heads, positions, d_k) to (batch, positions, heads · d_k)."""
    batch, heads, length, d_k = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * d_k)


def split(x: Tensor) -> Tensor:
    """The same numbers, in memory as a split into heads leaves them: position after position."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def positions(draw: Draw) -> list[Call]:
    """All features of a position alike, in all heads; the sizes all different. The last is not out of a split."""
    sizes = ((2, 4, 5, 3), (3, 7, 2, 5), (1, 3, 4, 2), (2, 3, 5, 4))
    alike = [draw.normal(b, 1, t, 1).expand(b, h, t, d) for b, h, t, d in sizes]
    return [*(Call((split(x),)) for x in alike[:-1]), Call((alike[-1].contiguous(),))]


def in_row(merged: Tensor) -> Tensor:
    """Of a single position: all features."""
    return merged.flatten(1)


def one_by_one(merged: Tensor) -> Tensor:
    """Each feature by itself, whatever the order of the positions."""
    return merged.sort(1).values


def features(draw: Draw) -> list[Call]:
    """A single position; and several, split."""
    single = [Call((split(draw.normal(*sizes)),), view=in_row) for sizes in ((2, 4, 1, 3), (3, 2, 1, 5))]
    return [*single, Call((split(draw.normal(2, 4, 5, 3)),), view=one_by_one)]


def memory(draw: Draw) -> list[Call]:
    """In order, as a matrix product makes it; head after head, as torch.stack does; and split."""
    x = draw.normal(2, 4, 5, 3)
    return [Call((x,)), Call((x.transpose(0, 1).contiguous().transpose(0, 1),)), Call((split(x),))]


def small() -> Iterator[Call]:
    """Numbers counted up."""
    for h, t, d in ((2, 2, 1), (2, 1, 2), (2, 2, 2), (2, 3, 2)):
        yield Call((torch.arange(1.0, 1 + h * t * d).view(1, h, t, d),))
    yield Call((torch.arange(1.0, 17).view(2, 2, 2, 2),))


TASK = Task(
    name="merge_heads",
    right=[merge_heads],
    arguments=("x",),
    requirements=(
        Requirement(
            "positions",
            "the result is (batch, positions, heads · d_k), and each row has features of one position only",
            points=1,
            calls=positions,
            small=small,
            anchor="reshape",
        ),
        Requirement(
            "features",
            "in each row the features of head 0 come first, then those of head 1, and so on",
            points=0.5,
            calls=features,
            small=small,
            anchor="reshape",
        ),
        Requirement(
            "memory",
            "x may lie in memory in any order, as matrix products leave it, and gradients go back to it",
            points=0.5,
            calls=memory,
            small=small,
            anchor="reshape",
            backward=True,
        ),
    ),
)
