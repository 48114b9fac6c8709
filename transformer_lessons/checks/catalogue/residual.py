"""Add & Norm. A sub-layer that gives zeros shows what happens to the stream; one of ones, what is dropped."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Given, Requirement, Task
from transformer_lessons.layers import AddAndNorm

SET = "layer.load_state_dict({'norm.weight': torch.full((3,), 2.), 'norm.bias': torch.ones(3)})"
TWO = {"norm.weight": torch.full((3,), 2.0), "norm.bias": torch.ones(3)}


def config(d_model: int, *, norm_first: bool = False, dropout: float = 0.0) -> Given:
    """A configuration of which a layer reads three things."""
    settings = {"d_model": d_model, "num_heads": 1, "dropout": dropout, "norm_first": norm_first}
    said = f"d_model={d_model}, num_heads=1, dropout={dropout}" + ", norm_first=True" * norm_first
    return Given("config", [settings], f"TransformerConfig(7, 7, {said})")


def linear(weight: Tensor, bias: Tensor) -> Given:
    """A sub-layer."""
    return Given("linear", [weight, bias])


def constant(width: int, number: float) -> Given:
    """A sub-layer that gives this number everywhere."""
    return Given("linear", [torch.zeros(width, width), torch.full((width,), number)])


def call(draw: Draw, **options) -> Call:
    """A norm and a sub-layer like no others."""
    state = {"norm.weight": draw.normal(5), "norm.bias": draw.normal(5)}
    args = draw.normal(2, 3, 5), linear(draw.normal(5, 5), draw.normal(5))
    return Call(args, init=(config(5, **options),), state=state)


def training(draw: Draw, number: float, *, norm_first: bool, view: Callable | None = None) -> Call:
    """In training, half of what a sub-layer of this number gives is dropped."""
    args, given = (draw.normal(8, 5), constant(5, number)), config(5, norm_first=norm_first, dropout=0.5)
    return Call(args, init=(given,), training=True, view=view and view(args[0]))


def added(x: Tensor) -> Callable[[Tensor], list[float]]:
    """Which numbers were added to the stream."""
    return lambda y: sorted(set((y - x).mul(1000).round().div(1000).add(0.0).flatten().tolist()))


def dropout(draw: Draw) -> list[Call]:
    """The stream is whole; what is added is dropped, or twice as large; and in evaluation nothing is."""
    calls = [training(draw, 0.0, norm_first=first) for first in (False, True)]
    calls.append(training(draw, 1.0, norm_first=True, view=added))
    return [*calls, *(call(draw, norm_first=first, dropout=0.5) for first in (False, True))]


def gradients(draw: Draw) -> list[Call]:
    """On both ways."""
    return [call(draw), call(draw, norm_first=True)]


def small(*, norm_first: bool = False) -> Callable[[], Iterator[Call]]:
    """A sub-layer that doubles."""
    twice = Given("linear", [2 * torch.eye(3), torch.zeros(3)], "lambda y: 2 * y")

    def cases() -> Iterator[Call]:
        for row in ([0.0, 3.0, 6.0], [1.0, 2.0, 6.0], [1.0, 1.0, 4.0]):
            given = config(3, norm_first=norm_first)
            yield Call((torch.tensor([[row]]), twice), init=(given,), state=TWO, setting=SET)

    return cases


def small_training() -> Iterator[Call]:
    """Nothing is added; and of what is, next to everything is dropped."""
    nothing = Given("linear", [torch.zeros(3, 3), torch.zeros(3)], "lambda y: 0 * y")
    ones = Given("linear", [torch.zeros(3, 3), torch.ones(3)], "lambda y: 0 * y + 1")
    for first, rate, sublayer in ((False, 0.5, nothing), (True, 0.5, nothing), (True, 0.999, ones)):
        given = config(3, norm_first=first, dropout=rate)
        yield Call((torch.tensor([[[0.0, 3.0, 6.0]]]), sublayer), init=(given,), training=True)


TASK = Task(
    name="residual",
    right=[AddAndNorm],
    arguments=("x", "sublayer"),
    roles={"norm": "norm ln layernorm"},
    requirements=(
        Requirement(
            "post_norm",
            "the output is LayerNorm(x + f(x))",
            points=1.5,
            calls=lambda draw: [call(draw), call(draw)],
            small=small(),
            anchor="add-and-norm",
        ),
        Requirement(
            "pre_norm",
            "with norm_first, the output is x + f(LayerNorm(x))",
            points=1.5,
            calls=lambda draw: [call(draw, norm_first=True), call(draw, norm_first=True)],
            small=small(norm_first=True),
            anchor="add-and-norm",
        ),
        Requirement(
            "dropout",
            "in training, dropout falls on what the sub-layer gives, before the sum, and on nothing else",
            points=1,
            calls=dropout,
            small=small_training,
            anchor="residuals-wrong",
            needs="post_norm",
        ),
    ),
)
