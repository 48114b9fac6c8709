"""A map of which outputs depend on which inputs, tried on models whose map is known."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Given, Task
from transformer_lessons.checks.words import literal

FAINT = 1e-9  # a weight that no threshold should hide
NEARLY_ALL = 1 - 1e-9  # the dropout rate of a model that has to be put into evaluation mode


def influence(model, x):
    """Which outputs of the model depend on which inputs."""
    was_training = model.training
    model.eval()
    slopes = torch.autograd.functional.jacobian(model, x)  # (length, outputs, length, width)
    model.train(was_training)
    return (slopes != 0).any(dim=-1).any(dim=1)


def call(pattern: Tensor, weight: Tensor, x: Tensor, **options: Any) -> Call:
    """A call on a model y = tanh(pattern · x · weightᵀ), or on another kind of `specimens.mixer`."""
    known = {"dropout": 0.0, "training": False, "kind": "plain", **options}
    text = "".join(f", {name}={value!r}" for name, value in options.items())
    is_tiny = bool(pattern.abs().max() <= 10 * FAINT)
    entries = f"{FAINT} * {literal(pattern / FAINT)}" if is_tiny else literal(pattern)
    shown = f"checks.specimens.mixer({entries}, {literal(weight)}{text})  # y = tanh(pattern x weightᵀ)"
    model = Given("mixer", [pattern, weight, *known.values()], shown)
    seen = {"weights_after": (0,), "view": map_and_state} if known["dropout"] else {"view": Tensor.bool}
    return Call((model, x), **seen)


def map_and_state(value: list) -> dict[str, Any]:
    """The map as booleans, and the state in which the model was left."""
    found, state = value
    training, touched, trainable = state["_extra_state"].tolist()
    return {
        "influence": found.bool(),
        "the number of the model's parts in training mode after the call": training,
        "whether the model holds gradients after the call": bool(touched),
        "whether the model's parameters require gradients after the call": bool(trainable),
    }


def large(draw: Draw, *shape: int) -> Tensor:
    """Numbers of either sign, of sizes for which tanh is neither flat nor linear."""
    x = draw.normal(*shape)
    return torch.where(x >= 0, 0.1 + x.abs() / 2, -0.1 - x.abs() / 2)


def random_pattern(draw: Draw) -> Tensor:
    """An asymmetric pattern with zeros in it, on the diagonal too."""
    kept = draw.normal(5, 5) < 0.3
    kept[0, -1], kept[-1, 0], kept[1, 1] = True, False, False
    return large(draw, 5, 5).abs() * kept


def values(draw: Draw) -> list[Call]:
    """A causal model, a general one, and one with negative slopes only; outputs are as wide as inputs."""
    weight, x = large(draw, 3, 3).abs(), large(draw, 5, 3)
    patterns = large(draw, 5, 5).abs().tril(), random_pattern(draw), -random_pattern(draw)
    return [replace(call(pattern, weight, x), view=None) for pattern in patterns]


def outputs(draw: Draw) -> list[Call]:
    """Outputs whose first number, last, all but the last, or all are 0; and gradients that cancel."""
    weight, x, number = large(draw, 3, 4).abs(), large(draw, 5, 4), torch.arange(3)[:, None]
    return [
        *(call(random_pattern(draw), weight * seen, x) for seen in (number != 0, number != 2)),
        call(random_pattern(draw), large(draw, 5, 4).abs() * (torch.arange(5)[:, None] == 4), x),
        call(random_pattern(draw), weight, torch.zeros(5, 4)),
        call(random_pattern(draw), weight[:1], x, kind="mirrored"),
    ]


def inputs(draw: Draw) -> list[Call]:
    """Gradients whose only nonzero entries, the first or last two, cancel; and with one nonzero entry."""
    column = large(draw, 4, 1).abs()
    both, one = (column * torch.tensor([1.0, second, 0.0, 0.0]) for second in (-1.0, 0.0))
    return [call(random_pattern(draw), weight, large(draw, 5, 4)) for weight in (both, both.flip(1), one)]


def tiny_influences(draw: Draw) -> list[Call]:
    """Influences of about a billionth: all of them, or all but those of the first and last input."""
    weight, x, strong = large(draw, 3, 3).abs(), large(draw, 5, 3), torch.tensor([1, FAINT, FAINT, FAINT, 1])
    return [call(size * random_pattern(draw), weight, x) for size in (FAINT, strong)]


def independent(draw: Draw) -> list[Call]:
    """A model that replaces its input by zeros, and one that returns zeros."""
    rest = random_pattern(draw), large(draw, 3, 3).abs(), large(draw, 5, 3)
    return [call(*rest, kind=kind) for kind in ("deaf", "constant")]


def model(draw: Draw) -> list[Call]:
    """A model with dropout of nearly everything, handed over in training and in evaluation mode."""
    rest = random_pattern(draw), large(draw, 3, 3).abs(), large(draw, 5, 3)
    return [call(*rest, dropout=NEARLY_ALL, training=on, kind="nested") for on in (True, False)]


def small(*weights: list, size: float = 1.0, x: float = 0.5, **options: Any) -> Iterator[Call]:
    """Two positions: the second depends on both, the first on itself alone."""
    for sign in (size, -size):
        for weight in map(torch.tensor, weights):
            pattern = sign * torch.tensor([[1.0, 0.0], [1.0, 1.0]])
            yield call(pattern, weight, torch.full((2, weight.size(1)), x), **options)


# Two positions, each of which depends on the other alone.
CROSSED = call(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.ones(1, 1), torch.full((2, 1), 0.5))
MIXED = call(torch.tensor([[1.0, 0.0], [FAINT, 1.0]]), torch.ones(1, 1), torch.full((2, 1), 0.5))
SOME = small([[0.0], [1.0]], [[1.0], [0.0]], [[1.0], [-1.0]], [[1.0], [2.0]])
ONE, NESTED = [[1.0]], {"dropout": 0.999, "kind": "nested"}
TASK = Task(
    name="influence",
    solution=[influence],
    probes={
        "values": (values, (replace(given, view=None) for given in (*small(ONE), CROSSED))),
        "outputs": (outputs, [*SOME, *small([[1.0], [2.0]], x=0.0), *small(ONE, kind="mirrored")]),
        "inputs": (inputs, small([[1.0, -1.0]], [[1.0, 0.0]])),
        "faint": (tiny_influences, [*small(ONE, size=FAINT), MIXED]),
        "deaf": (independent, [*small(ONE, kind="deaf"), *small(ONE, kind="constant")]),
        "model": (model, [shown for on in (True, False) for shown in small(ONE, training=on, **NESTED)]),
    },
)
