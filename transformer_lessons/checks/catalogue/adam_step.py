"""A step of Adam. The parameter's change is compared with the moments returned with it, right or wrong."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task

BETAS, RATE, LATE = (0.8, 0.95), 0.5, 3000  # so late that the correction is 1


def adam_step(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """The parameter and its two moments after a step."""
    first = betas[0] * first + (1 - betas[0]) * gradient
    second = betas[1] * second + (1 - betas[1]) * gradient**2
    mean = first / (1 - betas[0] ** step)
    square = second / (1 - betas[1] ** step)
    return parameter - rate * mean / (square.sqrt() + eps), first, second


def relative_change(step: int, eps: float = 0.0, start: Any = 0.0) -> Callable[[list], Tensor]:
    """A view of the parameter's change as a multiple of what the returned moments imply: 1 if right."""

    def view(value: list) -> Tensor:
        parameter, first, second = value
        mean, square = first / (1 - BETAS[0] ** step), second / (1 - BETAS[1] ** step)
        return (start - parameter) * (square.sqrt() + eps) / (RATE * mean)

    return view


def size(step: int) -> Callable[[list], Tensor]:
    """The view `relative_change` without its sign."""
    return lambda value: relative_change(step)(value).abs()


def count_distinct(value: list) -> list[int]:
    """The number of different entries in each result; 1 if an answer ignores its arguments."""
    return [part.unique().numel() for part in value]


def state(draw: Draw, *shape: int, scale: float = 1.0, is_first: bool = False) -> tuple[Tensor, ...]:
    """A parameter, its gradient, and its moments, which are zero if `is_first`."""
    parameter, gradient, first, second = (scale * draw.normal(1, *shape)[0] for _ in range(4))
    zeros = torch.zeros_like(parameter)
    return (parameter, gradient, *((zeros, zeros) if is_first else (first, second.square())))


def at_zero(draw: Draw, *shape: int, **options: Any) -> tuple[Tensor, ...]:
    """A `state` whose parameter is zero, so that its change loses no digits."""
    parameter, *others = state(draw, *shape, **options)
    return (torch.zeros_like(parameter), *others)


def call(args: tuple[Tensor, ...], step: int, view: Any = None, *, eps: float = 1e-9, **options: Any) -> Call:
    """A call of one step with BETAS and RATE."""
    return Call((*args, step), {"rate": RATE, "betas": BETAS, "eps": eps}, view=view, **options)


def averages(draw: Draw) -> list[Call]:
    """Steps early and late, on several shapes, judged by the returned moments."""
    shapes = (1, (3,)), (2, (2, 3)), (7, ()), (LATE, (2, 1, 3))
    return [call(state(draw, *shape), step, lambda value: value[1:]) for step, shape in shapes]


def update(draw: Draw) -> list[Call]:
    """Late steps, where the correction is 1; the last, from nonzero numbers, shows clipping and a stop at 0."""
    calls = [call(at_zero(draw, *shape), LATE, relative_change(LATE)) for shape in ((3,), (2, 3), ())]
    start, _, *old = state(draw, 3)
    given = start, torch.tensor([100.0, 0.0, 99.0]), *old
    return [*calls, call(given, LATE, relative_change(LATE, start=start))]


def correction(draw: Draw) -> list[Call]:
    """Early steps, where the correction matters, judged by the size of the change."""
    calls = [call(at_zero(draw, 4, is_first=True), 1, size(1))]
    return [*calls, *(call(at_zero(draw, 2, 3), step, size(step)) for step in (2, 3, 11))]


def epsilon(draw: Draw) -> list[Call]:
    """A large ε, late and early; then zero moments and a zero gradient, which must not give 0/0."""
    nothing = (draw.normal(3), *[torch.zeros(3)] * 3)
    calls = [call(at_zero(draw, 3), step, relative_change(step, 0.3), eps=0.3) for step in (LATE, 2)]
    return [*calls, call(nothing, 1, lambda value: value[0])]


def defaults(draw: Draw) -> list[Call]:
    """Whole steps with the default betas and ε; tiny gradients make ε visible."""
    given = state(draw, 2, 3), state(draw, 3, scale=1e-8, is_first=True)
    return [Call((*args, step), {"rate": RATE}, view=list) for args, step in zip(given, (3, 1), strict=True)]


def small(*, steps=(1, 2), eps=0.0, betas: tuple = (0.25, 0.75), least=0.0, **how: Any) -> Iterator[Call]:
    """Steps of one number, with betas for which all averages can be computed in one's head."""
    numbers = itertools.product(steps, ((0.0, 0.0), (4.0, 4.0), (1.0, 16.0)), (2.0, least, 8.0))
    for step, old, gradient in numbers:
        kwargs = {"rate": 0.5} | {name: value for name, value in (("betas", betas), ("eps", eps)) if value}
        yield Call((*(torch.tensor([x]) for x in (3.0, gradient, *old)), step), kwargs, **how)


TASK = Task(
    name="adam_step",
    solution=[adam_step],
    results=("parameter", "first", "second"),
    probes={
        "moments": (averages, small(view=lambda value: {"first": value[1], "second": value[2]})),
        "update": (update, small(steps=(100,))),
        "correction": (correction, small()),
        "epsilon": (epsilon, small(eps=1.0)),
        "defaults": (defaults, small(betas=(), least=1e-9)),
        "kept": (lambda draw: [call(state(draw, 3), 2, count_distinct, edits=True)], small(edits=True)),
    },
)
