"""A step with a scaled loss. Whole numbers and powers of two hide float16's rounding in other probes."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task, calls

TRIPLES = [2.0, 3.0, 6.0], [1.0, 4.0, 8.0], [4.0, 4.0, 7.0]  # their lengths are 7, 9 and 9


def scaled_step(weights, gradients, scale, clean, rate, max_norm, growth):
    """Weights, scale and clean steps after a step with the gradients of `scale` × loss."""
    if not all(g.isfinite().all() for g in gradients):
        return weights, scale / 2, 0
    found = [g.float() / scale for g in gradients]
    length = torch.cat([g.flatten() for g in found]).norm().item()
    factor = max_norm / max(length, max_norm)
    moved = [w - rate * factor * g for w, g in zip(weights, found, strict=True)]
    clean = clean + 1
    if clean == growth:
        return moved, scale * 2, 0
    return moved, scale, clean


def weights(draw: Draw) -> list[Tensor]:
    """Three tensors of different shapes."""
    return [draw.normal(*shape) for shape in ((2, 3), (4,), (3,))]


def whole(draw: Draw, scale: float, number: int = 0) -> list[Tensor]:
    """Gradients whose overall norm, once they are divided by the scale, is a whole number."""
    two, one = torch.zeros(2, 3), torch.zeros(4)
    entries = torch.tensor(TRIPLES[number]) * (1.0 - 2.0 * draw.integers(0, 2, 3))
    two[:, draw.integers(0, 3, 1)], one[draw.integers(0, 4, 1)] = entries[:2, None], entries[2]
    return [(scale * tensor).half() for tensor in (two, one, torch.zeros(3))]


def step(draw: Draw) -> list[Call]:
    """Norms below and above max_norm, judged by the new weights; last, whether the given ones change."""
    rest = [
        (whole(draw, 8.0), 8.0, 1, 0.5, 1000.0, 5),
        (whole(draw, 4.0, 1), 4.0, 1, 0.5, 4.5, 5),
        (whole(draw, 128.0, 2), 128.0, 2, 2.0, 3.0, 7),
        (whole(draw, 2.0), 2.0, 1, 0.5, 14.0, 5),
    ]
    calls = [Call((weights(draw), *more), view=lambda value: value[0]) for more in rest]
    return [*calls, replace(calls[0], edits=True)]


def direction(value: list) -> Tensor:
    """The direction of a step from weights of zero, whatever its length and sign."""
    moved = torch.cat([w.flatten() for w in value[0]]).abs()
    return moved / moved.norm()


def precision(draw: Draw) -> list[Call]:
    """Gradients that float16 holds, but not their 65,536th part; then some whose squares it cannot hold."""
    zero = [torch.zeros(2, 3), torch.zeros(4)]
    fine = [(draw.normal(*w.shape)).half() for w in zero]
    large = [(draw.uniform(*w.shape) + 1).half() * 3e4 for w in zero]
    moves = Call((zero, large, 2.0, 1, 1.0, 1e6, 5), view=lambda value: bool(value[0][0].ne(0).all()))
    return [Call((zero, fine, 2.0**16, 1, 2.0**10, 1e6, 5), view=direction), moves]


def overflown(start: list[Tensor], found: list[Tensor], scale: float, clean: int) -> Call:
    """A call that shows whether the weights stay, and what becomes of scale and clean."""

    view = lambda value: [all(map(torch.equal, value[0], start)), *value[1:]]  # noqa: E731
    return Call((start, found, scale, clean, 0.5, 7.0, 5), view=view)


def overflow(draw: Draw) -> list[Call]:
    """Infinity and NaN in any tensor; last, finite gradients with an infinite sum: is the scale halved?"""
    calls = []
    for tensor, place, bad in ((0, 0, math.inf), (1, -1, -math.inf), (2, 0, math.nan), (0, 3, math.inf)):
        found = whole(draw, 16.0)
        found[tensor].view(-1)[place] = bad
        calls.append(overflown(weights(draw), found, 16.0, 3))
    everywhere = [torch.full_like(g, math.inf) for g in whole(draw, 1.0)]
    large = weights(draw), [torch.full_like(g, 6e4) for g in everywhere], 8.0, 2, 0.5, 7.0, 5
    halved = Call(large, view=lambda value: bool(value[1] < 8.0))
    return [*calls, overflown(weights(draw), everywhere, 1.0, 2), halved]


def growth(draw: Draw) -> list[Call]:
    """The step that completes the count, the one before it, and a count of one."""
    given = (8.0, 4, 5), (8.0, 3, 5), (8.0, 0, 1), (2.0**20, 0, 3), (2.0**20, 2, 3)
    cases = [(weights(draw), whole(draw, 8.0), scale, clean, 0.5, 7.0, most) for scale, clean, most in given]
    return calls(*cases, view=lambda value: value[1:])


def small(first: list, second: list, scale: float = 2.0, **changes: float) -> Call:
    """A call with two tensors of gradients, and with weights of 10 and of 20."""
    found = [torch.tensor(g).half() for g in (first, second)]
    start = [torch.full(g.shape, size) for g, size in zip(found, (10.0, 20.0), strict=True)]
    rest = {"clean": 1, "rate": 1.0, "max_norm": 10.0, "growth": 5} | changes
    return Call((start, found, scale, *rest.values()))


SHORT = small([6.0], [8.0])
OVERFLOWN = [small([math.inf], [2.0], 1.0), small([2.0], [math.nan]), small([2.0], [-math.inf])]
OVERFLOWN += [small([math.inf, 2.0], [2.0, 2.0]), small([math.inf], [math.inf], clean=4)]

TASK = Task(
    name="scaled_step",
    solution=[scaled_step],
    results=("weights", "scale", "clean"),
    planted=("unscaled_in_half", "nan_only", "lengthened", "not_doubled"),
    probes={
        "step": (step, [SHORT, small([6.0], [8.0], max_norm=2.5), replace(SHORT, edits=True)]),
        "precision": (precision, [small([0.5], [1.0], 2.0**24, rate=2.0**24), small([3e4], [4e4], 1.0)]),
        "overflow": (overflow, OVERFLOWN),
        "growth": (growth, [small([2.0], [2.0], clean=2, growth=3), small([2.0], [2.0], growth=3)]),
    },
)
