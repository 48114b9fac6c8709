"""SwiGLU. Where x W_3 is 1 the gate stands alone; where x W_1 is above 20, silu(z) is z."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Remark, Requirement, Task
from transformer_lessons.variants.today import SwiGLU

SET = "for p in layer.parameters(): p.data = torch.eye(*p.shape) if p.dim() == 2 else torch.zeros(len(p))"
SET_W_3 = "for p in layer.parameters(): p.data = torch.eye(2) * (2 if p is layer.W_3.weight else 1)"


def call(x: Tensor, W_1: Tensor, W_2: Tensor, W_3: Tensor, **more: Any) -> Call:
    """A layer with these weights; those who have biases get zeros."""
    matrices = {"W_1": W_1, "W_2": W_2, "W_3": W_3}
    state = {f"{n}.weight": W for n, W in matrices.items()}
    state |= {f"{n}.bias": torch.zeros(len(W)) for n, W in matrices.items()}
    return Call((x,), init=(W_1.size(1), len(W_1)), state=state, **more)


def silu(draw: Draw) -> list[Call]:
    """The last feature is 1, and W_3 reads nothing else; then any input, with any number of axes."""
    one = torch.zeros(7, 5)
    one[:, -1] = 1
    x = draw.normal(2, 3, 5)
    x[..., -1] = 1
    calls = [call(x, 2 * draw.normal(7, 5), draw.normal(5, 7), one)]
    W = draw.normal(7, 5), draw.normal(5, 7), draw.normal(7, 5)
    return [*calls, *(call(draw.normal(*shape, 5), *W) for shape in ((2, 3), (), (1, 4), (2, 2, 3)))]


def product(draw: Draw) -> list[Call]:
    """What silu gets is above 20 everywhere."""
    x = draw.uniform(2, 3, 5) + 5
    return [
        call(x, draw.uniform(d_ff, 5) + 0.8, draw.normal(5, d_ff), draw.normal(d_ff, 5)) for d_ff in (7, 3)
    ]


def gradients(draw: Draw) -> list[Call]:
    """Of the input and the weights."""
    return [call(draw.normal(2, 3, 5), draw.normal(7, 5), draw.normal(5, 7), draw.normal(7, 5))]


def small() -> Iterator[Call]:
    """All weights are the identity; then W_3 is twice that."""
    for times, setting in ((1, SET), (2, SET_W_3)):
        for row in ([1, -2], [2, -1], [-3, 2]):
            weights = torch.eye(2), torch.eye(2), times * torch.eye(2)
            yield call(torch.tensor([row]).float(), *weights, setting=setting)


TASK = Task(
    name="swiglu",
    right=[SwiGLU],
    arguments=("x",),
    roles={"W_1": "w1 gate", "W_2": "w2 down", "W_3": "w3 up"},
    requirements=(
        Requirement(
            "silu",
            "a gate is silu(x W_1), where silu(z) = z · sigmoid(z)",
            points=1,
            calls=silu,
            small=small,
            anchor="swiglu",
        ),
        Requirement(
            "product",
            "the gates multiply x W_3, unit by unit, and W_2 leads back",
            points=1,
            calls=product,
            small=small,
            anchor="swiglu",
        ),
        Requirement(
            "gradients",
            "gradients reach the input and all three maps, and the input is not changed",
            points=0.5,
            calls=gradients,
            small=small,
            anchor="swiglu",
            backward=True,
        ),
    ),
    remarks=(
        Remark(
            "your maps have other names than the formula's, or biases: weights of others do not fit.",
            Call(
                (),
                init=(2, 3),
                method="state",
                view=lambda state: {n: list(W.shape) for n, W in state.items()},
            ),
        ),
        Remark(
            "a score of 100 makes yours NaN: exp overflows. torch.sigmoid is safe.",
            call(
                torch.tensor([[100.0, -100.0]]),
                torch.eye(2),
                torch.eye(2),
                torch.eye(2),
                view=lambda y: bool(y.isfinite().all()),
            ),
        ),
    ),
)
