"""The feed-forward layer. Identity weights show the activation alone; it leaves numbers above 10 unchanged.

Only the formula is tried with sizes that differ, so exchanged axes or widths cost no other requirement.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Remark, Task
from transformer_lessons.feed_forward import FeedForward

SET = "for p in layer.parameters(): p.data = -torch.eye(*p.shape) if p.dim() == 2 else torch.zeros(len(p))"
SET_ONES = "for p in layer.parameters(): p.data.fill_(p.dim() - 1)  # weights 1, biases 0"
GELU = {"activation": "gelu"}
BIASES = {"W_1.bias": torch.ones(2), "W_2.bias": torch.ones(2)}


def weights(W_1: Tensor, W_2: Tensor) -> dict[str, Tensor]:
    """The two maps; their biases are zero, so that an answer without biases is right, too."""
    matrices = {"W_1.weight": W_1, "W_2.weight": W_2}
    return matrices | {"W_1.bias": torch.zeros(len(W_1)), "W_2.bias": torch.zeros(len(W_2))}


def call(x: Tensor, state: dict[str, Tensor], **more: Any) -> Call:
    """A call of a layer as wide as its weights."""
    d_ff, d_model = state["W_1.weight"].shape
    return Call((x,), init=(d_model, d_ff), state=state, **more)


def formula(draw: Draw) -> list[Call]:
    """Inputs of one to four axes, some with all sizes different; last, a d_ff below d_model."""
    state = weights(draw.normal(7, 5), draw.normal(5, 7))
    calls = [call(draw.normal(*shape, 5), state) for shape in ((2, 3), (), (1, 4), (2, 2, 3), (5, 5))]
    return [*calls, call(draw.normal(2, 3, 5), weights(draw.normal(3, 5), draw.normal(5, 3)))]


def activation(draw: Draw) -> list[Call]:
    """GELU alone, as both maps are identities."""
    state = weights(torch.eye(5), torch.eye(5))
    return [call(draw.normal(*shape, 5), state, options=GELU) for shape in ((2, 5), (5,))]


def dropped(hidden: Tensor) -> Callable[[Tensor], dict[str, Any]]:
    """A view of what dropout does to hidden units that have two outputs each, whichever it drops."""

    def view(output: Tensor) -> dict[str, Any]:
        first, second = output.chunk(2, dim=-1)
        is_zero = first.abs() < 1e-6
        factors = {round(factor, 2) for factor in (first / hidden)[~is_zero].tolist()}
        return {
            "share of zeros": round(4 * is_zero.float().mean().item()) / 4,
            "factor of the others": factors.pop() if len(factors) == 1 else "several",
            "hidden units dropped, not outputs": torch.allclose(first, second),
            "each by itself": bool((is_zero != is_zero[..., :1]).any() and (is_zero != is_zero[0, 0]).any()),
        }

    return view


def dropout(draw: Draw) -> list[Call]:
    """Training and evaluation. The last six hidden units are zero, the first six have two outputs each."""
    copies = torch.cat([torch.eye(6), torch.eye(6)])
    W_1 = draw.uniform(12, 12) + 0.5
    W_1[6:] = 0
    x = draw.uniform(7, 12, 12) + 2
    state, view = weights(W_1, torch.cat([copies, 0 * copies], 1)), dropped((x @ W_1.T)[..., :6])
    half, some = {"dropout": 0.5}, {"dropout": 0.25, "activation": "gelu"}
    given = (half, True), (some, True), (some, False)
    return [call(x, state, options=own, training=on, view=view) for own, on in given]


def small(**options: Any) -> Iterator[Call]:
    """Weights that are minus the identity; twice with more axes and twice with a d_ff below d_model."""
    for row in ([1, -2], [2, -1], [-3, 1], [[1, -2], [2, -1]], [[[1, -2]]], [1, -2, 3], [-1, 2, -3]):
        x = torch.tensor([row]).float()
        eye = -torch.eye(2, x.size(-1))
        yield call(x, weights(eye, eye.T), setting=SET, options=options)


def rows(output: Tensor) -> dict[str, Any]:
    """The different rows of the output; both numbers of a row come from the same hidden units."""
    return {"different rows of the output": output.round(decimals=1).unique(dim=0).tolist()}


def small_dropout() -> Iterator[Call]:
    """Both outputs add up three hidden units; in 2000 rows, every possible row occurs almost surely."""
    x, state = torch.ones(2000, 2), weights(torch.ones(3, 2), torch.ones(2, 3))
    most = lambda y: {"most frequent row of the output": y.round(decimals=1).mode(0).values}  # noqa: E731
    for p, on, view in ((0.5, True, rows), (0.2, True, rows), (0.5, False, rows), (0.2, True, most)):
        yield call(x, state, setting=SET_ONES, options={"dropout": p}, training=on, view=view)


TASK = Task(
    name="feed_forward",
    solution=[FeedForward],
    roles={"W_1": "w1 b1 linear1 fc1 fc dense1 up", "W_2": "w2 b2 linear2 fc2 proj dense2 down"},
    probes={
        "formula": (formula, small()),
        "activation": (activation, small(**GELU)),
        "dropout": (dropout, small_dropout()),
        "gradients": (
            lambda draw: [call(draw.normal(5, 5, 5), weights(draw.normal(5, 5), draw.normal(5, 5)))],
            small(),
        ),
    },
    remarks=(
        Remark(
            "a linear map of yours has no bias; in the formula and the trained translator, both have one.",
            call(torch.ones(1, 2), weights(torch.eye(2), torch.eye(2)) | BIASES),
        ),
    ),
)
