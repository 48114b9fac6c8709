"""The k likeliest tokens. Logits that all differ hide what happens to ties; one row hides the axis."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task


def top_k(logits, k):
    """Probabilities of the k likeliest tokens, zero for the others."""
    best = logits.topk(min(k, logits.size(-1)), dim=-1)
    kept = torch.full_like(logits, -math.inf).scatter(-1, best.indices, best.values)
    return kept.softmax(-1)


def rows(*ks: float) -> Callable[[Draw], list[Call]]:
    """One row, by itself or not."""
    return lambda draw: [Call((2 * draw.normal(*n, 7), k)) for n, k in zip(((), (1,), ()), ks, strict=True)]


def axes(k: float) -> Callable[[Draw], list[Call]]:
    """Several rows, among them as many as tokens."""
    return lambda draw: [Call((2 * draw.normal(*size), k)) for size in ((4, 7), (2, 3, 5), (5, 5))]


def how_many(probabilities: Tensor) -> dict[str, Tensor]:
    """How many tokens stay in each row, whichever they are, and their sum."""
    return {"the number of tokens that stay": (probabilities > 0).sum(-1), "their sum": probabilities.sum(-1)}


def small(k: float, *logits: list, view: Callable | None = None) -> list[Call]:
    """Whole numbers."""
    return [Call((torch.tensor(x), k), view=view) for x in logits]


EQUAL = small(2, [1.0, 1.0, 1.0, 0.0], [[2.0, 1.0, 1.0]], [0.0, 0.0, 0.0], view=how_many)

TASK = Task(
    name="top_k",
    right=[top_k],
    probes={
        "values": (rows(3, 1, 5), small(2, [0.0, 2.0, 1.0, 3.0], [1.0, 0.0, 3.0])),
        "axes": (axes(2), small(1, [[0.0, 2.0, 1.0], [3.0, 1.0, 4.0]], [[5.0, 2.0, 1.0], [0.0, 1.0, 2.0]])),
        "ties": (EQUAL, EQUAL[:1]),
        "all": (lambda draw: [Call((draw.normal(4), 5)), Call((draw.normal(1, 3), 3))], small(3, [0.0, 1.0])),
    },
)
