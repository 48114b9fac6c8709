"""Layer norm. ε is silent where entries are tens; with halves of 10 and −10, so are other deviations."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.norms import LayerNorm

TWO = {"weight": torch.full((3,), 2.0), "bias": torch.ones(3)}
SET_TWO = "layer.weight.data.fill_(2.)\nlayer.bias.data.fill_(1.)"
ROWS = ([0.0, 3.0, 6.0], [1.0, 2.0, 6.0], [1.0, 1.0, 4.0], [0.0, 0.0, 0.1], [2.0, 2.0, 2.0])


def call(x: Tensor, *, eps: float | None = None, state: dict[str, Tensor] | None = None, **options) -> Call:
    """A layer as wide as the input, by default with weight 1 and bias 0."""
    width = x.size(-1)
    state = state or {"weight": torch.ones(width), "bias": torch.zeros(width)}
    return Call((x,), init=(width,) if eps is None else (width, eps), state=state, **options)


def affine(draw: Draw) -> dict[str, Tensor]:
    """A weight and a bias like no others."""
    return {"weight": draw.uniform(5) + 0.5, "bias": draw.normal(5)}


def centred(draw: Draw) -> list[Call]:
    """The mean alone counts, which is 0; once in a new layer, as weights of another shape cannot be loaded."""
    return [replace(one, view=lambda y: (y / y.abs().amax()).mean(-1)) for one in variance(draw)]


def variance(draw: Draw) -> list[Call]:
    """With entries of tens, ε is nothing."""
    return [call(10 * draw.normal(3, 5)), Call((10 * draw.normal(1, 4, 7),), init=(7,))]


def held(width: int) -> Call:
    """Whether a new layer holds a weight and a bias; under whatever names, and whatever else it holds."""
    view = lambda state: {"how many numbers": min(sum(t.numel() for t in state.values()), 2 * width)}  # noqa: E731
    return Call((), init=(width,), method="state", view=view)


def halves(draw: Draw, *shape: int) -> Tensor:
    """Vectors of which half the entries are 1 and half are −1."""
    return 1.0 - 2 * (draw.uniform(*shape).argsort(-1) % 2)


def small_entries(draw: Draw) -> list[Call]:
    """With entries of hundredths, or all alike, ε is much."""
    constant = torch.full((2, 4), 2.0)  # of four, as the fourth part of a number is not rounded
    x, more = 0.01 * halves(draw, 3, 6), halves(draw, 1, 3, 6)
    return [call(x), call(more, eps=0.5), Call((constant,), init=(4,))]


def with_weights(draw: Draw) -> list[Call]:
    """A new layer, and one with weights, which multiply what has no mean any more."""
    x, state = 10 * halves(draw, 3, 6), {"weight": draw.uniform(6) + 0.5, "bias": draw.normal(6)}
    return [held(6), Call((x,), init=(6,)), call(x[None] + 20, state=state)]


def axes(draw: Draw) -> list[Call]:
    """From one axis to four; each vector has another size."""
    shapes = (2, 3, 6), (6,), (2, 2, 3, 6), (1, 1, 6), (6, 6, 6)
    given = [(10 + 90 * draw.uniform(*shape[:-1], 1)) * halves(draw, *shape) for shape in shapes]
    return [*map(call, given[1:]), Call((given[0],), init=(6,))]


def gradients(draw: Draw) -> list[Call]:
    """Of the input, the weight and the bias."""
    return [
        call(10 * draw.normal(3, 5), state=affine(draw)),
        call(draw.normal(2, 3, 5), eps=0.5, state=affine(draw)),
        Call((draw.normal(2, 5),), init=(5,)),
    ]


def batches(rows: Sequence[list[float]], *lead: tuple[int, ...]) -> Iterator[Tensor]:
    """Vectors of three numbers, each of them first once, in batches of these sizes, or alone."""
    for size in lead or ((1,),):
        for first in range(len(rows)):
            some = [rows[(first + n) % len(rows)] for n in range(torch.Size(size).numel())]
            yield torch.tensor(some).reshape(*size, 3)


def small(*lead: tuple[int, ...], **options) -> Iterator[Call]:
    """Whole numbers."""
    return (call(x, **options) for x in batches(ROWS, *lead))


def large_or_usual() -> Iterator[Call]:
    """An ε of one, then the one that a layer has unless told otherwise."""
    yield from small(eps=1.0)
    yield from (call(torch.tensor([[0.0, 0.0, number]])) for number in (0.1, 0.01, 0.001, 0.002))


def new_or_two() -> Iterator[Call]:
    """What a new layer holds and does, then one whose weight is 2 and whose bias is 1."""
    yield held(3)
    yield from (Call((torch.tensor([row]),), init=(3,)) for row in ROWS[:2])
    yield from small(state=TWO, setting=SET_TWO)


TASK = Task(
    name="layer_norm",
    right=[LayerNorm],
    roles={"weight": "weight weights gamma g scale gain a alpha w", "bias": "bias beta b shift offset"},
    probes={
        "centred": (centred, small((1,), (2,))),
        "variance": (variance, small()),
        "eps": (small_entries, large_or_usual()),
        "affine": (with_weights, new_or_two()),
        "axes": (axes, small((2,), (2, 1), (1, 2), (2, 2))),
        "gradients": (gradients, small()),
    },
)
