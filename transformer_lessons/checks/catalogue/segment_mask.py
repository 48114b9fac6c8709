"""The segment mask. What it shows, whatever its axes; and its axes, whatever it shows."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.causal_mask import booleans
from transformer_lessons.checks.catalogue.padding_mask import shape
from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.masks import segment_mask

SELF = ([[1, 1, 2]], [[0, 3]], [[-1, 3]], [[2, 1]], [[1, 2, 1]], [[1, 2], [1, 1]])
CROSS = ([[1, 2]], [[1, 1]]), ([[1, 2]], [[2]]), ([[1]], [[1, 2]]), ([[1, 2]], [[2, 1]])
CROSS += (([[1, 2, 2]], [[1, 2]]),)


def within(queries: Tensor, keys: Tensor, view: Any = None) -> Call:
    """A call judged by the matrix of queries and keys of each sentence, whatever the axes around it."""
    batch, rows, columns = queries.size(0), queries.size(1), keys.size(1)
    return Call((queries, keys), view=view or (lambda mask: booleans(mask).reshape(batch, rows, columns)))


def values(draw: Draw) -> list[Call]:
    """Sentences cut in different places; segments of any numbers, in any order, in one piece or two."""
    packed = draw.uniform(3, 7).gt(0.6).long().cumsum(-1)
    numbers = torch.tensor([[4, 0, -2, 9, 4, 0, 4], [0, 0, 5, 5, 5, 1, 1], [3, 3, 2, 2, 1, 1, 0]])
    return [within(packed, packed), within(numbers, numbers)]


def cross(draw: Draw) -> list[Call]:
    """Keys other than the queries: more, fewer, or as many."""
    sizes = (4, 6), (5, 3), (4, 4)
    return [within(draw.integers(-1, 2, 2, q), draw.integers(-1, 2, 2, k)) for q, k in sizes]


def shapes(draw: Draw) -> list[Call]:
    """The shape with as many keys as queries, and with more."""
    segments = draw.integers(0, 3, 3, 5)
    segments[:, :2] = torch.tensor([0, 1])
    return [within(segments, segments, shape), within(segments[:, :2], segments, shape)]


def small(pairs: tuple, view: Any = None) -> Iterator[Call]:
    """Rows of one to three tokens."""
    for pair in pairs:
        queries, keys = map(torch.tensor, pair)
        yield within(queries, keys, view)


TASK = Task(
    name="segment_mask",
    solution=[segment_mask],
    probes={
        "values": (values, small(tuple((rows, rows) for rows in SELF))),
        "cross": (cross, small(CROSS)),
        "shape": (shapes, small((([[1, 2]], [[1, 2]]), ([[1, 2], [2, 1]], [[1, 2], [2, 1]])), shape)),
    },
)
