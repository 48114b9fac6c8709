"""The check of `RMSNorm`: its requirements, the calls that probe them, and the known wrong ways to write it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.layer_norm import (
    D_MODEL_UNCHECKED,
    FLOAT32_RETURNED,
    HALF_SCALED_DOWN,
    VIEWED,
    double,
    four_axes,
    functional_complains,
    large_in_half,
    norm_sizes,
    torch_complains,
    width_fits,
)
from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import RMSNorm

__all__ = ["TASK"]

MATHS, AXES, EPSILON = "#ch10-rms-norm", "#ch10-batch-norm", "#ch10-wrong"


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    # In float32, where nothing is asked of dtypes: code that always computes in float32 is nearly right.
    b, t, d = s["batch"], s["length"], s["width"]
    x, y, weight = (draw.normal(*shape, dtype=torch.float32) for shape in ((b, t, d), (b, t, d), (d,)))
    state = {"weight": weight}
    loaded = Build([d], state=state)
    zero = x.clone()
    zero[0, 0] = 0.0
    return {
        "new": Probe([x], build=Build([d])),
        "loaded": Probe([x], build=loaded, cotangents=[y]),
        "one": Probe([x[0, 0]], build=loaded),
        # In evaluation, where everything is the same.
        "four_axes": Probe([four_axes(draw, b, t, d)], build=replace(loaded, training=False)),
        "epsilon": Probe([x / 2], build=Build([d], {"eps": 0.5}, state=state)),
        "zero": Probe([zero], build=loaded, cotangents=[y]),
        "default": Probe([x * 1e-3], build=Build([d])),
        "names": Probe([], build=Build([d]), method="state", view=_shapes),
        "double": double(x, state, RMSNorm),
        "half": large_in_half(x, state),
        "width_one": Probe([x[..., :1]], build=Build([1])),
        "narrow": Probe([draw.normal(b, t, d + 1)], build=loaded, refused=f"x of width {d + 1}, not {d}"),
        "one_wide": Probe([draw.normal(b, t, 1)], build=loaded, refused=f"x of width 1, not {d}"),
        "no_width": Probe([], build=Build([0]), method="state", refused="d_model=0"),
        "negative": Probe([], build=Build([-1]), method="state", refused="d_model=-1"),
    }


def _shapes(state: dict) -> dict:
    sentence = "its parameter should be weight, of shape (d_model,), at first ones"
    return {sentence: {name: state[name] for name in sorted(state)}}


def _accept(d_model: int) -> None:
    if d_model < 1:
        raise ValueError("d_model: expected 1 or more")


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _mean_square(x: Tensor, axes: tuple) -> Tensor:
    return x.square().mean(axes, keepdim=True)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    eps: Callable = lambda given: 1e-6 if given is None else given
    first: Callable = torch.ones  # the weight of a new layer
    more: Callable = lambda module, d_model: None  # parameters beside it
    fits: Callable = width_fits
    wide: Callable = _wide
    axes: Callable = lambda x: (-1,)
    centre: Callable = lambda x, axes: x
    size: Callable = _mean_square
    root: Callable = lambda size, eps, d_model: (size + eps).sqrt()
    divide: Callable = lambda x, root: x / root
    affine: Callable = lambda y, weight: y * weight
    result: Callable = lambda y, x: y.to(x.dtype)


def assemble(steps: Steps) -> type[nn.Module]:
    """The norm in these steps."""

    class Norm(nn.Module):
        def __init__(self, d_model, eps=None):
            super().__init__()
            steps.accept(d_model)
            self.weight = nn.Parameter(steps.first(d_model))
            steps.more(self, d_model)
            self.eps = steps.eps(eps)

        def forward(self, x):
            steps.fits(x, len(self.weight))
            wide, axes = steps.wide(x), steps.axes(x)
            wide = steps.centre(wide, axes)
            root = steps.root(steps.size(wide, axes), self.eps, x.size(-1))
            y = steps.affine(steps.divide(wide, root), self.weight)
            return steps.result(y, x)

    return Norm


def _by_norm(size: Tensor) -> Tensor:
    """The root as from x.norm(), whose gradient at zero is zero."""
    zero = size == 0
    return size.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def _bias(module: nn.Module, d_model: int) -> None:
    module.bias = nn.Parameter(torch.zeros(d_model))


MISTAKES = (
    Mistake(
        "centred",
        "you subtract the mean; that is LayerNorm, and RMSNorm leaves the mean in",
        "The code of LayerNorm was the template.",
        "A constant added to the input changes nothing, and here it should.",
        MATHS,
        ({"centre": lambda x, axes: x - x.mean(axes, keepdim=True)},),
    ),
    Mistake(
        "variance",
        "you divide by the standard deviation; the root mean square is taken without subtracting the mean",
        "var sits there ready to be used, and for a mean of zero it is the same.",
        "Wrong wherever the mean is not zero.",
        MATHS,
        (
            {"size": lambda x, axes: x.var(axes, correction=0, keepdim=True)},
            {"size": lambda x, axes: x.var(axes, keepdim=True)},
        ),
    ),
    Mistake(
        "summed",
        "you divide by the length of the vector, √(sum of squares); it is the root of their mean",
        "To normalise a vector usually means to give it length 1.",
        "All outputs are too small, by √d_model.",
        MATHS,
        ({"size": lambda x, axes: x.square().sum(axes, keepdim=True)},),
    ),
    Mistake(
        "mean_squared",
        "you take the mean first and square it then; the squares are averaged",
        "“Root mean square” is worked off from left to right, or a bracket is misplaced.",
        "Vectors whose mean is near zero become huge.",
        MATHS,
        ({"size": lambda x, axes: x.mean(axes, keepdim=True).square()},),
    ),
    Mistake(
        "mean_of_sizes",
        "you average absolute values; it is squares that are averaged, and then the root is taken",
        "Both say how large the entries are.",
        "Outputs are too large where the entries differ in size.",
        MATHS,
        ({"size": lambda x, axes: x.abs().mean(axes, keepdim=True).square()},),
    ),
    Mistake(
        "not_rooted",
        "you divide by the mean square, not by its root",
        "One of three steps got lost.",
        "Outputs get smaller as inputs get larger.",
        MATHS,
        ({"root": lambda size, eps, d_model: size + eps},),
    ),
    Mistake(
        "eps_outside",
        "you add ε to the root; it belongs under it, beside the mean square",
        "“+ eps so that nothing is divided by zero” is satisfied either way.",
        "Where entries are small, outputs have another size; and at a vector of zeros the gradient is NaN.",
        EPSILON,
        (
            {"root": lambda size, eps, d_model: size.sqrt() + eps},
            {"root": lambda size, eps, d_model: _by_norm(size) + eps},
        ),
    ),
    Mistake(
        "eps_beside_sum",
        "you add ε to the sum of squares; it belongs to their mean",
        "The factor d_model was taken out of the root, and ε was left inside.",
        "ε counts d_model times less than it should.",
        EPSILON,
        ({"root": lambda size, eps, d_model: (size + eps / d_model).sqrt()},),
    ),
    Mistake(
        "eps_as_floor",
        "you use ε as a lower bound; it is added to the mean square, under the root",
        "F.normalize and clamp treat it so.",
        "Nothing is damped near zero: tiny vectors come out at full size.",
        EPSILON,
        (
            {"root": lambda size, eps, d_model: size.sqrt().clamp(min=eps)},
            {"root": lambda size, eps, d_model: size.clamp(min=eps).sqrt()},
            {"root": lambda size, eps, d_model: _by_norm(size).clamp(min=1e-12 / d_model**0.5)},
        ),
    ),
    Mistake(
        "no_eps",
        "you left out ε",
        "The name of the norm has none.",
        "A vector of zeros becomes 0/0, which is NaN.",
        EPSILON,
        ({"root": lambda size, eps, d_model: size.sqrt()},),
    ),
    Mistake(
        "eps_ignored",
        "you never use eps as it was given",
        "A constant was written down where the argument belongs.",
        "With another eps, nothing changes.",
        EPSILON,
        ({"root": lambda size, eps, d_model: (size + 1e-6).sqrt()},),
    ),
    Mistake(
        "other_default",
        "your eps defaults to another number; for this norm it is 1e-6",
        "LayerNorm's default is 1e-5, and PyTorch's RMSNorm takes the precision of the dtype.",
        "Only vectors with tiny entries show it.",
        EPSILON,
        tuple(
            {"eps": lambda given, other=other: other if given is None else given}
            for other in (1e-5, 1e-8, 1e-12, 1.1920928955078125e-07)
        ),
    ),
    Mistake(
        "weight_ignored",
        "you never use weight",
        "A new layer's weight is one, so it looks right.",
        "Training cannot change the layer.",
        MATHS,
        ({"affine": lambda y, weight: y},),
    ),
    Mistake(
        "weight_zero_at_first",
        "your weight is zero at first; it should be one",
        "torch.zeros was copied from somewhere.",
        "The layer puts out zeros, and everything before it gets no gradient.",
        MATHS,
        ({"first": torch.zeros},),
    ),
    Mistake(
        "one_plus_weight",
        "you scale by 1 + weight, with a weight of zero at first; here the weight itself is the scale",
        "Some published models store it that way.",
        "With weights from elsewhere, every feature is counted once too often.",
        MATHS,
        ({"first": torch.zeros, "affine": lambda y, weight: y * (1 + weight)},),
    ),
    Mistake(
        "has_bias",
        "your norm has a bias; RMSNorm has only a weight",
        "LayerNorm has one.",
        "Weights cannot be exchanged with other code.",
        MATHS,
        ({"more": _bias},),
    ),
    Mistake(
        "over_all_but_batch",
        "you take the mean over all axes but the first; each position has a root mean square of its own",
        "For images, norms are used so.",
        "Positions depend on one another, and on how much padding there is.",
        AXES,
        ({"axes": lambda x: tuple(range(min(1, x.dim() - 1), x.dim()))},),
    ),
    Mistake(
        "over_positions",
        "you take the mean over positions, for each feature",
        "dim=1 is the last axis of a matrix, but not of (batch, length, d_model).",
        "Positions depend on one another, later on earlier ones too.",
        AXES,
        ({"axes": lambda x: (max(-2, -x.dim()),)}, {"axes": lambda x: (1,)}),
    ),
    Mistake(
        "over_everything",
        "you take the mean over the whole tensor; each vector has a root mean square of its own",
        "mean() without an axis averages everything.",
        "An output depends on its batch-mates.",
        AXES,
        ({"axes": lambda x: tuple(range(x.dim()))},),
    ),
    Mistake(
        "root_detached",
        "you take the root mean square without its gradient",
        ".detach() or no_grad was put around what looks like a constant.",
        "Outputs are right; gradients with respect to the input are not.",
        MATHS,
        ({"root": lambda size, eps, d_model: (size + eps).sqrt().detach()},),
    ),
    Mistake(
        "overwritten",
        "you divide the caller's tensor in place",
        "x /= saves a copy.",
        "The residual sum adds the normalised input.",
        "#ch09-in-place",
        ({"divide": lambda x, root: x.copy_(x / root)},),
    ),
    Mistake(
        "half_statistics",
        "you square in float16, which ends at 65,504; take the statistics in float32 at least",
        "Nothing has to be converted as long as the numbers are small.",
        "From entries of 256 on the mean square is infinite, and the vector becomes zeros without any warning.",
        EPSILON,
        ({"wide": lambda x: x},),
    ),
    Mistake(
        "float32_throughout",
        "you compute in float32 whatever the input is; float64 should stay float64",
        "Published code calls .float() and converts back.",
        "float64 loses half its digits.",
        MATHS,
        ({"wide": lambda x: x.float()},),
    ),
    FLOAT32_RETURNED,
    HALF_SCALED_DOWN,
    VIEWED,
    Mistake(
        "width_unchecked",
        "you do not check the width of the input yourself",
        "torch complains too, but about sizes of a and b, and not at all if the width is 1.",
        "The caller is told nothing about x.",
        MATHS,
        ({"fits": torch_complains}, {"fits": functional_complains}),
    ),
    replace(D_MODEL_UNCHECKED, anchor=MATHS),
)

TASK = Task(
    name="rms_norm",
    signature="RMSNorm(d_model, eps=1e-6)(x)",
    arguments=("x",),
    returns=("output",),
    reference=RMSNorm,
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the input's shape.", ("new",), MATHS, ("structure",)
        ),
        Requirement("values", "each vector gets root mean square 1.", ("new",), MATHS),
        Requirement("scale", "then it is scaled by weight.", ("loaded",), MATHS),
        Requirement("axes", "inputs may have any number of axes.", ("one", "four_axes"), AXES),
        Requirement("epsilon", "ε is added to the mean square, under the root.", ("epsilon",), EPSILON),
        Requirement(
            "gradients",
            "gradients reach the input and the weight, at a vector of zeros too.",
            ("loaded", "zero"),
            MATHS,
            ("gradients", "parameters"),
        ),
        Requirement("default", "eps is 1e-6 unless it is given.", ("default",), EPSILON),
        Requirement("parameters", "weight is its only parameter.", ("names",), MATHS),
        Requirement("inputs", "the input is left unchanged.", ("loaded",), "#ch09-in-place", ("inputs",)),
        Requirement(
            "double", "float64 stays float64, with all its digits.", ("loaded", "double"), MATHS, ("dtype",)
        ),
        Requirement(
            "half",
            "large float16 numbers survive, and come back as float16.",
            ("half",),
            EPSILON,
            ("dtype",),
        ),
        Requirement(
            "refusals",
            "another width than d_model, and a d_model below 1, are refused with ValueError.",
            ("narrow", "one_wide", "no_width", "negative", "width_one"),
            MATHS,
        ),
    ),
    sizes=norm_sizes,
    small=({"batch": 1, "length": 1, "width": 2}, {"batch": 2, "length": 1, "width": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=7,
)
