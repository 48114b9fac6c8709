"""Splitting into heads. Features that are all alike hide their order; a single position hides the exchange."""

from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task


def split_heads(x, num_heads):
    """(batch, positions, d_model) to (batch, heads, positions, d_k)."""
    batch, length, d_model = x.shape
    return x.reshape(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


def positions(draw: Draw) -> list[Call]:
    """All features of a position alike; the sizes all different."""
    sizes = ((2, 5, 4, 3), (3, 2, 7, 5), (1, 4, 3, 2))
    return [Call((draw.normal(b, t, 1).expand(b, t, h * d).clone(), h)) for b, t, h, d in sizes]


def in_row(heads: Tensor) -> Tensor:
    """Of a single position: its features, head by head."""
    return heads.flatten(1)


def one_by_one(heads: Tensor) -> Tensor:
    """Each feature of each head by itself, whatever the order of its positions."""
    return heads.sort(2).values


def features(draw: Draw) -> list[Call]:
    """A single position, several heads; one head; heads of one feature."""
    single = [
        Call((draw.normal(b, 1, h * d), h), view=in_row) for b, h, d in ((2, 4, 3), (3, 2, 5), (2, 3, 1))
    ]
    return [*single, Call((draw.normal(2, 5, 12), 4), view=one_by_one)]


def gradients(draw: Draw) -> list[Call]:
    """Of x."""
    return [Call((draw.normal(2, 5, 12), 4))]


def small() -> Iterator[Call]:
    """Numbers counted up."""
    for t, h, d in ((2, 2, 1), (2, 2, 2), (1, 2, 2), (2, 3, 2)):
        yield Call((torch.arange(1.0, 1 + t * h * d).view(1, t, h * d), h))
    yield Call((torch.arange(1.0, 17).view(2, 2, 4), 2))


TASK = Task(
    name="split_heads",
    right=[split_heads],
    arguments=("x", "num_heads"),
    requirements=(
        Requirement(
            "positions",
            "the result is (batch, heads, positions, d_k), and each row has features of one position only",
            points=1,
            calls=positions,
            small=small,
            anchor="reshape",
        ),
        Requirement(
            "features",
            "head i has the features from i·d_k on, d_k neighbours",
            points=0.5,
            calls=features,
            small=small,
            anchor="reshape",
        ),
        Requirement(
            "gradients",
            "gradients reach x, and x is not changed",
            points=0.5,
            calls=gradients,
            small=small,
            anchor="heads-class",
            backward=True,
        ),
    ),
)
