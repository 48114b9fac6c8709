"""The nucleus: the fewest tokens that have a probability of p or more together."""

import math
from dataclasses import replace

import torch

from transformer_lessons.checks.catalogue.top_k import axes, how_many, rows, small
from transformer_lessons.checks.definitions import Call, Task


def nucleus(logits, p):
    """Probabilities of the fewest tokens that have p together, zero for the others."""
    falling, places = logits.softmax(-1).sort(dim=-1, descending=True)
    before = falling.cumsum(-1) - falling
    stays = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before < p)
    return logits.masked_fill(~stays, -math.inf).softmax(-1)


LARGEST = lambda y: (y == y.amax(-1, keepdim=True)) & (y > y.amin(-1, keepdim=True))  # noqa: E731
ONE = [*small(0.5, [5.0, 1.0, 0.0]), *small(0.1, [0.0, 6.0, 1.0]), *small(0.01, [2.0, 1.0, 0.0], [[0.0]])]
EQUAL = [Call((torch.zeros(*n), p), view=how_many) for *n, p in ((4, 0.6), (5, 0.3), (4, 1.0), (1, 1, 0.3))]

TASK = Task(
    name="nucleus",
    solution=[nucleus],
    probes={
        "values": (rows(0.7, 0.8, 0.9), small(0.8, [1.0, 3.0, 2.0], [0.0, 2.0, 1.0, 1.5])),
        "one": ([replace(call, view=LARGEST) for call in ONE], ONE),
        "axes": (
            axes(0.6),
            small(0.7, [[1.0, 3.0, 2.0], [4.0, 1.0, 0.0]], [[0.0, 0.0, 1.0], [3.0, 1.0, 3.0]], [0.0, 1.0]),
        ),
        "ties": (EQUAL, EQUAL),
    },
)
