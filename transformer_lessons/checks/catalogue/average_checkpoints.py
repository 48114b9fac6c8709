"""The mean of several checkpoints. Whole numbers are looked at by themselves."""

from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Remark, Requirement, Task

State = dict[str, Tensor]


def average_checkpoints(states):
    """The mean of several state dicts, the latest of which is the last."""
    average = {}
    for name, latest in states[-1].items():
        average[name] = latest.clone()
        if latest.is_floating_point():
            average[name] = sum(state[name] for state in states) / len(states)
    return average


def whole(state: State) -> State:
    """What cannot be averaged."""
    return {name: state[name] for name in ("steps", "seen") if name in state}


def different(state: State) -> int:
    """How many different weights: in an answer that looks at nothing, one or none."""
    return state["weight"].unique().numel()


def states(draw: Draw, number: int, *, with_whole: bool = False) -> list[State]:
    """Checkpoints with two or four entries."""
    floats = [{"weight": draw.normal(2, 3), "bias": draw.normal(3)} for _ in range(number)]
    if not with_whole:
        return floats
    others = [{"steps": torch.tensor(100 * n + 7), "seen": draw.mask(1, 4)[0]} for n in range(number)]
    return [{**one, **other} for one, other in zip(floats, others, strict=True)]


def mean(draw: Draw) -> list[Call]:
    """Of one, of two, and of more."""
    return [Call((states(draw, number),)) for number in (2, 5, 3, 1)]


def latest(draw: Draw) -> list[Call]:
    """A counter and a mask."""
    return [Call((states(draw, number, with_whole=True),), view=whole) for number in (3, 2)]


def kept(draw: Draw) -> list[Call]:
    """As they were."""
    given = states(draw, 3, with_whole=True), states(draw, 2)
    return [Call((one,), edits=True, view=different) for one in given]


def small(*columns: list, **options: Any) -> Any:
    """One entry in two checkpoints, of whole numbers or with a counter."""
    pairs = [[{name: torch.tensor(value)} for value in values] for name, values in columns]
    return lambda: [Call((pair,), **options) for pair in pairs]


HALVES = [{"weight": torch.tensor([40_000.0]).half()}] * 2

TASK = Task(
    name="average_checkpoints",
    right=[average_checkpoints],
    arguments=("states",),
    requirements=(
        Requirement(
            "mean",
            "each entry of floating-point numbers is the mean over all checkpoints",
            points=2,
            calls=mean,
            small=small(("weight", [1.0, 3.0]), ("weight", [[1.0, 2.0], [3.0, 6.0], [8.0, 4.0]])),
            anchor="training-loop",
        ),
        Requirement(
            "whole",
            "whatever else there is, such as a counter or a mask, is the last checkpoint's",
            points=1,
            calls=latest,
            small=small(("steps", [10, 30]), ("seen", [[False, True], [True, True]])),
            anchor="training-loop",
        ),
        Requirement(
            "kept",
            "the checkpoints stay as they were",
            points=1,
            calls=kept,
            small=small(("weight", [1.0, 3.0]), ("steps", [10, 30]), edits=True),
            anchor="training-loop",
        ),
    ),
    remarks=(
        Remark(
            "the sum of large float16 numbers is infinite; .float() before it and .half() after it helps.",
            Call((HALVES,), view=lambda state: bool(state["weight"].isfinite().all())),
        ),
    ),
)
