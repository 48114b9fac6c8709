"""RMSNorm. Entries in the tens hide ε; entries of 10 and −10 alone hide other averages, too."""

from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.layer_norm import axes, batches, new_weights
from transformer_lessons.checks.definitions import Call, Draw, Remark, Task
from transformer_lessons.variants.today import RMSNorm

SET_TWO = "layer.load_state_dict({'weight': torch.full((3,), 2.)})"
ROWS = ([2.0, 3.0, 6.0], [0.0, 3.0, 6.0], [1.0, -1.0, 4.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0])


def call(x: Tensor, *, eps: float | None = None, weight: Tensor | None = None, **options) -> Call:
    """A call of a layer as wide as the input, by default with weight 1."""
    width = x.size(-1)
    state = {"weight": torch.ones(width) if weight is None else weight}
    return Call((x,), init=(width,) if eps is None else (width, eps), state=state, **options)


def size(draw: Draw) -> list[Call]:
    """Entries in the tens, whose mean is not zero."""
    return [call(10 * draw.normal(*shape) + 5) for shape in ((3, 5), (1, 4, 2))]


def signs(draw: Draw, *shape: int) -> Tensor:
    """Entries of 1 and −1."""
    return draw.normal(*shape).sign()


def small_entries(draw: Draw) -> list[Call]:
    """Entries of thousandths, a large ε, and a vector of zeros: here ε matters."""
    zero = 10 * signs(draw, 2, 3, 5)
    zero[0, 0] = 0
    return [call(0.001 * signs(draw, 3, 5)), call(signs(draw, 3, 5), eps=0.5), call(zero)]


def with_weight(draw: Draw) -> list[Call]:
    """A new layer; then a weight, which the view takes off again: what is left is ±1 in any norm."""
    x, weight = signs(draw, 1, 3, 5), draw.uniform(5) + 0.5

    def undone(y: Tensor) -> Tensor:
        return y / weight / (y / weight)[..., :1]

    return [new_weights(5), call(10 * x, weight=weight, view=undone)]


def gradients(draw: Draw) -> list[Call]:
    """Gradients of the input and the weight."""
    given = ((3, 5), None), ((2, 3, 5), 0.5)
    return [call(draw.normal(*shape), eps=eps, weight=draw.normal(5)) for shape, eps in given]


def small(*lead: tuple[int, ...], **options) -> Iterator[Call]:
    """Calls with the vectors of ROWS, in batches of these shapes."""
    return (call(x, **options) for x in batches(ROWS, *lead))


NEW = [new_weights(3), *(Call((torch.tensor([row]),), init=(3,)) for row in ROWS)]
TASK = Task(
    name="rms_norm",
    solution=[RMSNorm],
    roles={"weight": "weight gamma g scale gain a alpha w"},
    probes={
        "size": (size, small()),
        "axes": (axes, small((2,), (2, 1), (1, 2), (2, 2))),
        "eps": (small_entries, [*small(eps=1.0), call(torch.tensor([[0.0, 0.0, 0.1]]))]),
        "weight": (with_weight, [*NEW, *small(weight=torch.full((3,), 2.0), setting=SET_TWO)]),
        "gradients": (gradients, small()),
    },
    remarks=(
        Remark(
            "with float16 inputs above 256 the squares overflow, or the result has another dtype.",
            call(torch.tensor([[300.0, 600.0, 900.0]]).half(), view=lambda y: [str(y.dtype), y]),
        ),
    ),
)
