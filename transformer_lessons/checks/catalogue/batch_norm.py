"""BatchNorm. ε does not show where entries are in the tens, or where running variances are."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.layer_norm import halves
from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.norms import BatchNorm

ROLES = {"weight": "weight gamma g scale w", "bias": "bias beta b shift"}
ROLES |= {"running_mean": "mean", "running_var": "var variance"}
ROWS = ([[0.0], [4.0]], [[1.0], [3.0], [3.0], [9.0]], [[-2.0], [0.0], [5.0]], [[0.0], [0.0], [0.1]])
PAIRS = ([[0.0, 4.0], [2.0, 0.0]], [[0.0, 4.0], [2.0, 0.0], [7.0, 2.0]])
SENTENCES = ([[[0.0], [2.0]], [[4.0], [6.0]]], [[[0.0], [4.0]], [[1.0], [3.0]]], [PAIRS[0], PAIRS[0]])


def trained(draw: Draw, width: int) -> dict[str, Tensor]:
    """Weights and running statistics as after some training."""
    state = {"weight": draw.uniform(width) + 0.5, "bias": draw.normal(width)}
    return state | {"running_mean": 10 * draw.normal(width), "running_var": 50 + 50 * draw.uniform(width)}


def new(width: int) -> dict[str, Tensor]:
    """Weights and running statistics of a new layer."""
    zeros, ones = torch.zeros(width), torch.ones(width)
    return {"weight": ones, "bias": zeros, "running_mean": zeros, "running_var": ones}


AFFINE = {
    "state": new(1) | {"weight": torch.tensor([2.0]), "bias": torch.ones(1)},
    "setting": "layer.weight.data.fill_(2.)\nlayer.bias.data.fill_(1.)",
}


def call(x: Tensor, *mask: Tensor, training: bool = True, state: dict | None = None, **more: Any) -> Call:
    """A call of a layer as wide as the input, by default with the state of a new layer, its own in evaluation."""
    state = state or (new(x.size(-1)) if training else None)
    return Call((x, *mask), init=(x.size(-1),), state=state, training=training, **more)


def buffers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The running statistics, under any names that contain `mean` and `var`."""
    return {
        name: next(tensor for own, tensor in state.items() if name[8:] in own and "track" not in own)
        for name in ("running_mean", "running_var")
    }


def track(*earlier: tuple, training: bool = True, **more: Any) -> Call:
    """The running statistics after these calls."""
    width = earlier[0][0].size(-1)
    more = {"state": new(width), "view": buffers} | more
    return Call((), init=(width,), training=training, method="state", earlier=earlier, **more)


def statistics(draw: Draw) -> list[Call]:
    """Training on inputs of two, three and four axes; last, with a trained weight and bias."""
    shapes = (2, 3, 5), (7, 5), (2, 2, 3, 5), (1, 4, 5), (5, 5, 5)
    calls = [call(10 * draw.normal(*shape)) for shape in shapes]
    return [*calls, call(10 * draw.normal(2, 3, 5), state=trained(draw, 5))]


def small_entries(draw: Draw) -> list[Call]:
    """Entries of ±0.01, and of ±1 with ε = 0.5, so that ε matters; in each feature, half are negative."""
    x = halves(draw, 6, 6).T
    return [call(0.01 * x), call(x[None], options={"eps": 0.5})]


def running(draw: Draw) -> list[Call]:
    """The running statistics after one batch, and after two with another momentum."""
    rows, first, second = (10 * draw.normal(*shape, 5) for shape in ((5,), (2, 3), (4, 3)))
    return [track((rows,)), track((first,), (second,), state=trained(draw, 5), options={"momentum": 0.25})]


def evaluation(draw: Draw) -> list[Call]:
    """A trained layer, also on one vector; a new layer; last, the statistics after a batch in evaluation."""
    x, state = 10 * draw.normal(2, 3, 5), trained(draw, 5)
    calls = [call(x, training=False, state=state), call(x[:1, :1], training=False, state=state)]
    return [*calls, Call((10 * draw.normal(2, 3, 5),), init=(5,)), track((x,), training=False, state=state)]


def small(**more: Any) -> Iterator[Call]:
    """Small batches of vectors with one feature or two, and of sentences."""
    return (call(torch.tensor(rows), **more) for rows in (*ROWS, *PAIRS, *SENTENCES))


def small_running() -> Iterator[Call]:
    """The running statistics after one batch, with another momentum, and after two; last, of other shapes."""
    batches = [torch.tensor(rows) for rows in ROWS[:3]]
    yield from (track((x,), state=None) for x in batches)
    yield from (track((x,), state=None, options={"momentum": 0.5}) for x in batches)
    yield track((batches[0],), (batches[1],), state=None)
    yield from (track((torch.tensor(rows),), state=None) for rows in (*PAIRS, *SENTENCES))


NEW = [Call((torch.tensor(rows),), init=(1,)) for rows in ROWS[:3]]  # its running mean is 0, its variance 1
TASK = Task(
    name="batch_norm",
    solution=[BatchNorm],
    roles=ROLES,
    planted=("features_mixed", "unbiased", "momentum_reversed", "eps_outside"),
    probes={
        "statistics": (statistics, [*small(), call(torch.tensor(ROWS[0]), **AFFINE)]),
        "eps": (small_entries, small(options={"eps": 1.0})),
        "running": (running, small_running()),
        "evaluation": (evaluation, [*NEW, track((torch.tensor(ROWS[0]),), training=False, state=None)]),
    },
)
