"""Layer norm. Entries in the tens hide ε; if half are 10 and half −10, they hide other deviations, too."""

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
    """A call of a layer as wide as the input, by default with weight 1 and bias 0."""
    width = x.size(-1)
    state = state or {"weight": torch.ones(width), "bias": torch.zeros(width)}
    return Call((x,), init=(width,) if eps is None else (width, eps), state=state, **options)


def centred(draw: Draw) -> list[Call]:
    """The mean of the outputs, 0; once in a new layer, as weights of another shape cannot be loaded."""
    return [replace(one, view=lambda y: (y / y.abs().amax()).mean(-1)) for one in variance(draw)]


def variance(draw: Draw) -> list[Call]:
    """Entries in the tens, where ε does not matter."""
    return [call(10 * draw.normal(3, 5)), Call((10 * draw.normal(1, 4, 7),), init=(7,))]


def new_weights(width: int) -> Call:
    """Whether a new layer holds ones and zeros, under any names and whatever else it holds."""
    count = lambda state, n: min(sum(int((t == n).sum()) for t in state.values()), width)  # noqa: E731
    view = lambda s: {"how many ones (γ)": count(s, 1), "how many zeros (β)": count(s, 0)}  # noqa: E731
    return Call((), init=(width,), method="state", view=view)


def halves(draw: Draw, *shape: int) -> Tensor:
    """Vectors with half of their entries 1 and the other half −1."""
    return 1.0 - 2 * (draw.uniform(*shape).argsort(-1) % 2)


def small_entries(draw: Draw) -> list[Call]:
    """Entries of hundredths, a large ε, and equal entries: here ε matters."""
    constant = torch.full((2, 4), 2.0)  # width 4, as a division by 4 is not rounded
    x, more = 0.01 * halves(draw, 3, 6), halves(draw, 1, 3, 6)
    return [call(x), call(more, eps=0.5), Call((constant,), init=(4,))]


def with_weights(draw: Draw) -> list[Call]:
    """A new layer; then weights, which the view takes off again: what is left is ±1 in any norm."""
    x, weight, bias = halves(draw, 1, 3, 6), draw.uniform(6) + 0.5, draw.normal(6)

    def undone(y: Tensor) -> Tensor:
        normalised = (y - bias) / weight
        return normalised / normalised[..., :1]

    return [new_weights(6), call(10 * x + 20, state={"weight": weight, "bias": bias}, view=undone)]


def axes(draw: Draw) -> list[Call]:
    """One vector alone; then the last of a batch, whose result ignores the others and its own length."""
    varies = lambda y: [list(y.shape), bool((y != y[0]).any())]  # noqa: E731
    calls = [Call((draw.normal(6),), init=(6,), view=varies)]
    for shape in ((2, 3, 6), (2, 2, 3, 6), (6, 6, 6), (1, 2, 6)):
        x, other = 10 * draw.normal(*shape), 100 * draw.normal(*shape)
        other.view(-1, 6)[-1] = 3 * x.view(-1, 6)[-1]
        calls.append(Call((x,), init=(6,), view=lambda y: y.reshape(-1, 6)[-1], same_as=(other,)))
    return calls


def gradients(draw: Draw) -> list[Call]:
    """Gradients of the input, the weight and the bias."""
    state = {"weight": draw.uniform(5) + 0.5, "bias": draw.normal(5)}
    calls = [call(10 * draw.normal(3, 5), state=state), call(draw.normal(2, 3, 5), eps=0.5, state=state)]
    return [*calls, Call((draw.normal(2, 5),), init=(5,))]


def batches(rows: Sequence[list[float]], *lead: tuple[int, ...]) -> Iterator[Tensor]:
    """Vectors of three numbers in batches of these shapes, (1,) by default; each comes first once."""
    for size in lead or ((1,),):
        for first in range(len(rows)):
            some = [rows[(first + n) % len(rows)] for n in range(torch.Size(size).numel())]
            yield torch.tensor(some).reshape(*size, 3)


def small(*lead: tuple[int, ...], **options) -> Iterator[Call]:
    """Calls with the vectors of ROWS, in batches of these shapes."""
    return (call(x, **options) for x in batches(ROWS, *lead))


TINY = [call(torch.tensor([[0.0, 0.0, number]])) for number in (0.1, 0.01, 0.001, 0.002)]
NEW = [new_weights(3), *(Call((torch.tensor([row]),), init=(3,)) for row in ROWS[:2])]
TASK = Task(
    name="layer_norm",
    solution=[LayerNorm],
    roles={"weight": "weight weights gamma g scale gain a alpha w", "bias": "bias beta b shift offset"},
    probes={
        "centred": (centred, small((1,), (2,))),
        "variance": (variance, small()),
        "eps": (small_entries, [*small(eps=1.0), *TINY]),
        "affine": (with_weights, [*NEW, *small(state=TWO, setting=SET_TWO)]),
        "axes": (axes, small((2,), (2, 1), (1, 2), (2, 2), ())),
        "gradients": (gradients, small()),
    },
)
