"""Scores of sentences of different lengths. α = 0 hides the penalty, α = 1 hides that it is an exponent."""

import torch

from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task


def length_penalty(log_p, length, alpha):
    """Scores of sentences, comparable between lengths."""
    length = torch.as_tensor(length, dtype=log_p.dtype)
    return log_p / ((5 + length) / 6) ** alpha


def calls(draw: Draw) -> list[Call]:
    """As many lengths as sentences."""
    return [
        Call((-5 * draw.uniform(*size), draw.integers(1, 20, *size), alpha))
        for size, alpha in (((5,), 0.6), ((2, 3), 0.0), ((4,), 1.0), ((3,), 2.0))
    ]


TASK = Task(
    name="length_penalty",
    right=[length_penalty],
    arguments=("log_p", "length", "alpha"),
    requirements=(
        Requirement(
            "values",
            "log p is divided by ((5 + n)/6)^α",
            points=1.5,
            calls=calls,
            small=lambda: iter([Call((torch.tensor([-3.0, -8.0]), torch.tensor([1, 8]), 2.0))]),
            anchor="length-penalty",
        ),
        Requirement(
            "one_length",
            "one length may stand for all sentences",
            points=0.5,
            calls=lambda draw: [Call((-5 * draw.uniform(2, 3), 7, 0.6))],
            small=lambda: iter([Call((torch.tensor([-3.0, -8.0]), 7, 1.0))]),
            anchor="length-penalty",
        ),
    ),
)
