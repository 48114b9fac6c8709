"""The check of Add & Norm: a residual connection with norm and dropout around any sub-layer."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.catalogue.layer_parts import (
    BOUND_TO,
    PACKING,
    RATE,
    Packing,
    PackingSteps,
    drops,
)
from transformer_lessons.checks.core import Build, Draw, Given, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

RULES, WRONG = "#ch11-add-and-norm", "#ch11-wrong"


def _sizes(seed: int) -> dict[str, int]:
    batch, length, width = random.Random(seed).sample([3, 5, 7, 11, 13], 3)
    return {"batch": batch, "length": length, "width": width}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d = s["batch"], s["length"], s["width"]
    state = {"norm.weight": draw.normal(d), "norm.bias": draw.normal(d)}
    x, many, weight, bias = draw.normal(b, t, d), draw.normal(40, 5, d), draw.normal(d, d), draw.normal(d)
    sublayer, silent = Given("linear", [weight, bias]), Given("linear", [weight * 0, bias * 0])
    cotangents = [draw.normal(b, t, d)]

    def built(training: bool | None = None, dtype: str = "float64", **options) -> Build:
        weights = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state.items()}
        return Build([d], options, dtype=dtype, state=weights, training=training)

    plain = Build([d], dtype="float64")
    busy = {"dropout": RATE, "training": True}
    given = F.layer_norm(many, (d,), state["norm.weight"], state["norm.bias"]) @ weight.T + bias
    halves = Given("linear", [weight.float(), bias.float()])
    return {
        "new": Probe([x, sublayer], build=plain),
        "names": Probe([], build=plain, method="state", view=_shapes),
        "after": Probe([x, sublayer], build=built(), cotangents=cotangents),
        "before": Probe([x, sublayer], build=built(norm_first=True), cotangents=cotangents),
        "one_axis": Probe([draw.normal(d), sublayer], build=built(norm_first=True)),
        "silent_after": Probe([x, silent], build=built(**busy)),
        "silent_before": Probe([x, silent], build=built(norm_first=True, **busy)),
        "training_before": Probe(
            [many, sublayer], build=built(norm_first=True, **busy), view=drops(many, given, "the sub-layer")
        ),
        "training_after": Probe(
            [many * 0, Given("linear", [weight * 0, bias * 0 + 1])],
            build=Build([d], {"dropout": RATE}, dtype="float64", training=True),
            view=_drops_after,
        ),
        "evaluation": Probe([x, sublayer], build=built(training=False, dropout=RATE)),
        "float32": Probe([x.float(), halves], build=built(dtype="float32", norm_first=True)),
        "narrow": Probe(
            [x, Given("linear", [weight[:1], bias[:1]])],
            build=plain,
            refused="a sub-layer whose output is 1 wide, which the sum would spread over all features",
        ),
    }


def _shapes(state: dict) -> dict:
    names = "its parameters should be norm.weight and norm.bias, each of shape (d_model,)"
    return {names: {name: list(state[name].shape) for name in sorted(state)}}


def _drops_after(output: Tensor) -> dict[str, bool]:
    """With zeros as the stream and ones as the sub-layer's output, what was dropped lies below its row's mean."""
    share = (output < -1e-6).double().mean().item()
    return {
        "in training, post-norm too should drop a share p of what the sub-layer gives, before the sum": abs(
            share - RATE
        )
        < BOUND_TO
    }


def _fits(x: Tensor, given: Tensor) -> None:
    if given.shape != x.shape:
        raise ValueError("sublayer: expected an output of the shape of its input")


@dataclass(frozen=True)
class Steps(PackingSteps):
    """What a mistake may replace; together, the right answer."""

    fits: Callable = _fits


def assemble(steps: Steps) -> type[nn.Module]:
    """Add & Norm in these steps."""

    class AddAndNorm(Packing):
        def __init__(self, d_model, dropout=0.0, norm_first=False):
            super().__init__(d_model, dropout)
            self.norm_first = norm_first

        def forward(self, x, sublayer):
            def checked(y):
                given = sublayer(y)
                steps.fits(y, given)
                return given

            return steps.around(self, x, checked, self.norm_first)

    return AddAndNorm


UNCHECKED = Mistake(
    "shape_unchecked",
    "you do not check the shape of what the sub-layer gives",
    "Most shapes that do not fit make the sum fail by itself.",
    "An output of width 1 is spread over all features, without an error.",
    WRONG,
    ({"fits": lambda x, given: None},),
)

TASK = Task(
    name="residual",
    signature="AddAndNorm(d_model, dropout=0.0, norm_first=False)(x, sublayer)",
    arguments=("x", "sublayer"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the input's shape.", ("new",), RULES, ("structure",)
        ),
        Requirement("parameters", "its parameters are those of its norm.", ("names",), RULES),
        Requirement("post_norm", "LayerNorm(x + f(x)), unless norm_first is set.", ("new", "after"), RULES),
        Requirement("pre_norm", "x + f(LayerNorm(x)) with norm_first=True.", ("before", "one_axis"), RULES),
        Requirement(
            "gradients",
            "gradients reach x on both ways, and the norm's parameters.",
            ("after", "before"),
            "#ch11-paths",
            ("gradients", "parameters"),
        ),
        Requirement(
            "stream",
            "in training the stream itself is never dropped: with a sub-layer that gives zeros, the output is "
            "LayerNorm(x) or x.",
            ("silent_after", "silent_before"),
            WRONG,
        ),
        Requirement(
            "dropout",
            "in training, what the sub-layer gives is dropped with probability p, or divided by 1 − p.",
            ("training_before", "training_after"),
            RULES,
        ),
        Requirement("evaluation", "in evaluation nothing is dropped.", ("evaluation",), RULES),
        Requirement(
            "dtype", "the output has the dtype of the input.", ("after", "float32"), RULES, ("dtype",)
        ),
        Requirement("inputs", "the input is left unchanged.", ("after", "before"), WRONG, ("inputs",)),
        Requirement(
            "refusals",
            "a sub-layer whose output has another shape than its input is refused with ValueError.",
            ("narrow",),
            WRONG,
        ),
    ),
    sizes=_sizes,
    small=({"batch": 1, "length": 1, "width": 2}, {"batch": 1, "length": 2, "width": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=(*PACKING, UNCHECKED),
)
