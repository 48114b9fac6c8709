"""The nucleus: the fewest tokens that have p together."""

import math

import torch

from transformer_lessons.checks.catalogue.top_k import how_many
from transformer_lessons.checks.definitions import Call, Draw, Task


def nucleus(logits, p):
    """Probabilities of the fewest tokens that have p together, zero for the others."""
    falling, places = logits.softmax(-1).sort(dim=-1, descending=True)
    before = falling.cumsum(-1) - falling
    stays = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before < p)
    return logits.masked_fill(~stays, -math.inf).softmax(-1)


def rows(draw: Draw) -> list[Call]:
    """One row."""
    return [Call((2 * draw.normal(7), p)) for p in (0.7, 0.8, 0.9)]


def axes(draw: Draw) -> list[Call]:
    """Several rows, among them as many as tokens."""
    return [Call((2 * draw.normal(*size), 0.6)) for size in ((4, 7), (2, 3, 5), (5, 5))]


def logits(*rows: list, p: float) -> list[Call]:
    """Whole numbers."""
    return [Call((torch.tensor(row), p)) for row in rows]


ONE = [*logits([5.0, 1.0, 0.0], p=0.5), *logits([0.0, 6.0, 1.0], p=0.1), *logits([2.0, 1.0, 0.0], p=0.01)]
EQUAL = [Call((torch.zeros(n), p), view=how_many) for n, p in ((4, 0.6), (5, 0.3), (4, 1.0))]

TASK = Task(
    name="nucleus",
    right=[nucleus],
    probes={
        "values": (rows, logits([1.0, 3.0, 2.0], [0.0, 2.0, 1.0, 1.5], p=0.8)),
        "one": (ONE, ONE),
        "axes": (axes, logits([[1.0, 3.0, 2.0], [4.0, 1.0, 0.0]], [[0.0, 0.0, 1.0], [3.0, 1.0, 3.0]], p=0.7)),
        "ties": (EQUAL, EQUAL),
    },
)
