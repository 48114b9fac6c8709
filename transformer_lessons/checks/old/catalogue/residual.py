"""The check of Add & Norm: a residual connection with norm and dropout around any sub-layer."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.layer_parts import (
    BOUND_TO,
    PACKING,
    RATE,
    Packing,
    PackingSteps,
    drops,
)
from transformer_lessons.checks.old.core import Build, Draw, Given, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

RULES, WRONG = "#ch11-add-and-norm", "#ch11-wrong"


def _sizes(seed: int) -> dict[str, int]:
    batch, length, width = random.Random(seed).sample([3, 5, 7, 11, 13], 3)
    return {"batch": batch, "length": length, "width": width}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    d = s["width"]
    state = {"norm.weight": draw.normal(d), "norm.bias": draw.normal(d)}
    weight, bias = draw.normal(d, d), draw.normal(d)
    x, cotangents = (draw.normal(s["batch"], s["length"], d) for _ in range(2))
    full, half, narrow = ([weight, bias], [weight.float(), bias.float()], [weight[:1], bias[:1]])
    fewer = [weight[: d - 1], bias[: d - 1]]
    sublayer, halves, one, short = (Given("linear", maps) for maps in (full, half, narrow, fewer))
    halved = {name: tensor.float() for name, tensor in state.items()}
    plain = Build([d], dtype="float64")
    after, before = (Build([d], {"norm_first": first}, "float64", state) for first in (False, True))
    quiet, quiet_before = (
        Build([d], {"dropout": RATE, "norm_first": first}, "float64", state, training=False)
        for first in (False, True)
    )
    return {
        "new": Probe([x, sublayer], build=plain),
        "names": Probe([], build=plain, method="state", view=_shapes),
        "after": Probe([x, sublayer], build=after, cotangents=[cotangents]),
        "before": Probe([x, sublayer], build=before, cotangents=[cotangents]),
        "one_axis": Probe([draw.normal(d), sublayer], build=before),
        **_training(d, state, x, draw.normal(40, 5, d), weight, bias),
        "evaluation": Probe([x, sublayer], build=quiet),
        "evaluation_before": Probe([x, sublayer], build=quiet_before),
        # Two sub-layers that return their argument itself, the very same tensor.
        "same": Probe([x, Given("perceptron", [[], []])], build=quiet),
        "same_training": Probe(
            [x, Given("perceptron", [[], []])], build=replace(quiet, training=True), view=lambda output: {}
        ),
        "float32": Probe([x.float(), halves], build=Build([d], {"norm_first": True}, state=halved)),
        **_refused(x, plain, before, one, short),
    }


def _refused(x: Tensor, after: Build, before: Build, one: Given, short: Given) -> dict[str, Probe]:
    """Sub-layers whose output has another shape than what they read, which mostly broadcasts."""
    length, width = x.shape[1:]
    average = torch.full((1, length), 1 / length, dtype=x.dtype)
    single = Given("mixer", [average, torch.eye(width, dtype=x.dtype), 0.0, False, "plain"])
    spread = "a sub-layer whose output is 1 wide, which the sum would spread over all features"
    whole = "a sub-layer that gives one vector per sentence, which the sum would spread over all positions"
    less = f"a sub-layer whose output is {width - 1} wide, not {width}"
    still = torch.eye(length, dtype=x.dtype)
    # A pattern with more axes gives them to what comes out.
    twice, framed = (
        Given("mixer", [still.expand(*axes, -1, -1), torch.eye(width, dtype=x.dtype), 0.0, False, "plain"])
        for axes in ((2,), (1, 1))
    )
    both = "a sub-layer that gives two sentences for one, over which the sum would spread x"
    axis = "a sub-layer whose output has one more axis, of size 1"
    return {
        "narrow": Probe([x, one], build=after, refused=spread),
        "narrow_before": Probe([x, one], build=replace(before, training=False), refused=spread),
        "single": Probe([x, single], build=replace(after, training=False), refused=whole),
        "single_before": Probe([x, single], build=before, refused=whole),
        "short": Probe([x, short], build=before, refused=less),
        "twice": Probe([x[:1], twice], build=before, refused=both),
        "framed": Probe([x, framed], build=after, refused=axis),
    }


def _training(d: int, state: dict, x: Tensor, many: Tensor, weight: Tensor, bias: Tensor) -> dict[str, Probe]:
    """With a sub-layer that gives zeros, one that gives ones, and a real one."""
    zeros, ones = (Given("linear", [weight * 0, bias * 0 + number]) for number in (0, 1))
    after, before = (
        Build([d], {"dropout": RATE, "norm_first": first}, "float64", state, True) for first in (False, True)
    )
    new = Build([d], {"dropout": RATE}, "float64", training=True)
    given = F.layer_norm(many, (d,), *state.values()) @ weight.T + bias
    return {
        "silent_after": Probe([x, zeros], build=after),
        "silent_before": Probe([x, zeros], build=before),
        "training_before": Probe(
            [many, Given("linear", [weight, bias])], build=before, view=drops(many, given, "the sub-layer")
        ),
        "training_after": Probe([many * 0, ones], build=new, view=_drops_after),
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
    _same(given.shape, x.shape)


def _same(given: object, wanted: object) -> None:
    if given != wanted:
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

IN_PART = Mistake(
    "shape_checked_in_part",
    "you compare only a part of the two shapes: some of the axes, or how many numbers there are",
    "The width is what one thinks of, and batches are taken to be the same on both sides.",
    "Where the other axes differ, the sum spreads x or what the sub-layer gives, without an error.",
    WRONG,
    (
        {"fits": lambda x, given: _same(x.shape[-1:], given.shape[-1:])},
        {"fits": lambda x, given: _same(x.shape[-2:], given.shape[-2:])},
        {"fits": lambda x, given: _same(x.shape[1:], given.shape[1:])},
        {"fits": lambda x, given: _same(x.numel(), given.numel())},
        {"fits": lambda x, given: _same(x.dim(), given.dim())},
    ),
)

GIVEN_OVERWRITTEN = Mistake(
    "given_overwritten",
    "you write into what the sub-layer gives, which may be your caller's tensor itself",
    "What a function returns looks like one's own; inplace=True and add_ save a copy.",
    "With a sub-layer that returns its argument, as an nn.Identity does, the input is changed.",
    WRONG,
    (
        {"after": lambda x, f, norm, drop: norm(drop(f(x)).add_(x))},
        {
            "after": lambda x, f, norm, drop: norm(drop(f(x)).add_(x)),
            "before": lambda x, f, norm, drop: drop(f(norm(x))).add_(x),
        },
        {"drop": lambda dropout, y, norm_first: F.dropout(y, dropout.p, dropout.training, inplace=True)},
    ),
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
            ("random",),
        ),
        Requirement(
            "evaluation", "in evaluation nothing is dropped.", ("evaluation", "evaluation_before"), RULES
        ),
        Requirement(
            "dtype", "the output has the dtype of the input.", ("after", "float32"), RULES, ("dtype",)
        ),
        Requirement(
            "inputs",
            "the input is left unchanged, by a sub-layer that returns it as well.",
            ("after", "before", "same", "same_training"),
            WRONG,
            ("inputs",),
        ),
        Requirement(
            "refusals",
            "a sub-layer whose output has another shape than its input is refused with ValueError.",
            ("narrow", "narrow_before", "single", "single_before", "short", "twice", "framed"),
            WRONG,
        ),
    ),
    sizes=_sizes,
    small=({"batch": 1, "length": 2, "width": 2}, {"batch": 1, "length": 2, "width": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=(*PACKING, GIVEN_OVERWRITTEN, UNCHECKED, IN_PART),
)
