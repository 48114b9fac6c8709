"""The check of `LayerNorm`: its requirements, the calls that probe them, and the known wrong ways to write it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import LayerNorm

__all__ = [
    "D_MODEL_UNCHECKED",
    "FLOAT32_RETURNED",
    "HALF_SCALED_DOWN",
    "TASK",
    "VIEWED",
    "double",
    "four_axes",
    "functional_complains",
    "large_in_half",
    "norm_sizes",
    "torch_complains",
    "viewed",
    "width_fits",
]

MATHS, AXES, EPSILON = "#ch10-layer-norm", "#ch10-batch-norm", "#ch10-wrong"


def norm_sizes(seed: int) -> dict[str, int]:
    """Distinct primes, in another order for each seed."""
    batch, length, width = random.Random(seed).sample([3, 5, 7, 11, 13], 3)
    return {"batch": batch, "length": length, "width": width}


def double(x: Tensor, state: dict[str, Tensor], reference: type[nn.Module]) -> Probe:
    """A probe in float64 that asks for its digits; which ones an answer gets wrong is chance."""
    x, state = x.double(), {name: tensor.double() for name, tensor in state.items()}
    right = reference(x.size(-1)).double()
    right.load_state_dict(state)
    want = right(x).detach()

    def view(output: Tensor) -> dict:
        near = output.shape == want.shape and bool((output - want).abs().max() < 1e-10)
        return {
            "given float64, the output should be float64": str(output.dtype),
            "given float64, the output should have more than the seven digits of float32": near,
        }

    return Probe([x], build=Build([x.size(-1)], dtype="float64", state=state), view=view)


def _far_from_zero(x: Tensor) -> Probe:
    """A probe in float64, with a mean whose square leaves few digits for the variance."""
    x = x.double() + 1e4
    centred = x - x.mean(-1, keepdim=True)
    want = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def view(output: Tensor) -> dict:
        near = output.shape == want.shape and bool((output - want).abs().max() < 1e-9)
        return {"given float64 numbers near 10,000, the output should have more than seven digits": near}

    return Probe([x], build=Build([x.size(-1)], dtype="float64"), view=view)


def four_axes(draw: Draw, *shape: int) -> Tensor:
    """Two batches, which do not lie in memory in the order of their axes."""
    batch, *rest = shape
    return draw.normal(batch, 2, *rest, dtype=torch.float32).transpose(0, 1)


def large_in_half(x: Tensor, state: dict[str, Tensor]) -> Probe:
    """A probe in float16: in its first sentence squares do not fit into it, the others are of ordinary size."""
    half = {name: tensor.half() for name, tensor in state.items()}
    x = torch.cat([1000 * x[:1], x[1:]]).half()
    return Probe([x], build=Build([x.size(-1)], dtype="float16", state=half))


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    # In float32, where nothing is asked of dtypes: code that always computes in float32 is nearly right.
    b, t, d = s["batch"], s["length"], s["width"]
    x, y, weight, bias = (draw.normal(*n, dtype=torch.float32) for n in ((b, t, d), (b, t, d), (d,), (d,)))
    state = {"weight": weight, "bias": bias}
    loaded, new = Build([d], state=state), Build([d])
    return {
        "new": Probe([x], build=new),
        "loaded": Probe([x], build=loaded, cotangents=[y]),
        "one": Probe([x[0, 0]], build=loaded),
        "four_axes": Probe([four_axes(draw, b, t, d)], build=loaded),
        "epsilon": Probe([x * 1e-2], build=Build([d], {"eps": 0.5}, state=state)),
        "constant": Probe([torch.full((b, t, d), 3.0)], build=loaded, cotangents=[y]),
        "evaluation": Probe([x], build=Build([d], state=state, training=False)),
        "default": Probe([x * 1e-3], build=new),
        "names": Probe([], build=new, method="state", view=_shapes),
        "double": double(x, state, LayerNorm),
        "far": _far_from_zero(x),
        "wide": Probe([x.double()], build=Build([d], dtype="float64"), view=lambda output: {}),
        "half": large_in_half(x, state),
        # Near 2000: their sum is infinite in float16, and their mean is rounded to a whole number.
        "far_in_half": Probe([(2000 + 4 * draw.normal(b, t, 67)).half()], build=Build([67], dtype="float16")),
        "width_one": Probe([x[..., :1]], build=Build([1])),
        "narrow": Probe([draw.normal(b, t, d + 1)], build=loaded, refused=f"x of width {d + 1}, not {d}"),
        "one_wide": Probe([draw.normal(b, t, 1)], build=loaded, refused=f"x of width 1, not {d}"),
        "no_width": Probe([], build=Build([0]), method="state", refused="d_model=0"),
        "negative": Probe([], build=Build([-1]), method="state", refused="d_model=-1"),
    }


def _shapes(state: dict) -> dict:
    names = "its parameters should be weight and bias, each of shape (d_model,), at first ones and zeros"
    return {names: {name: state[name] for name in sorted(state)}}


def _accept(d_model: int) -> None:
    if d_model < 1:
        raise ValueError("d_model: expected 1 or more")


def width_fits(x: Tensor, d_model: int) -> None:
    """Refuse another width."""
    if x.size(-1) != d_model:
        raise ValueError(f"x: expected a last axis of {d_model}")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    eps: Callable = lambda given: 1e-5 if given is None else given
    first: Callable = torch.ones  # the weight of a new layer
    fits: Callable = width_fits
    wide: Callable = lambda x: x.to(torch.promote_types(x.dtype, torch.float32))
    axes: Callable = lambda x: (-1,)
    centre: Callable = lambda x, axes: x - x.mean(axes, keepdim=True)
    spread: Callable = lambda x, axes, eps: (x.var(axes, correction=0, keepdim=True) + eps).sqrt()
    affine: Callable = lambda y, weight, bias: y * weight + bias
    result: Callable = lambda y, x: y.to(x.dtype)


def assemble(steps: Steps) -> type[nn.Module]:
    """Layer normalisation in these steps."""

    class Norm(nn.Module):
        def __init__(self, d_model, eps=None):
            super().__init__()
            steps.accept(d_model)
            self.weight, self.bias = (nn.Parameter(make(d_model)) for make in (steps.first, torch.zeros))
            self.eps = steps.eps(eps)

        def forward(self, x):
            steps.fits(x, len(self.weight))
            wide, axes = steps.wide(x), steps.axes(x)
            y = steps.centre(wide, axes) / steps.spread(wide, axes, self.eps)
            return steps.result(steps.affine(y, self.weight, self.bias), x)

    return Norm


def scaled_down(by: Callable) -> Callable:
    """Float16 numbers divided by another, and left in float16."""
    return lambda x: x / by(x) if x.dtype == torch.float16 else Steps().wide(x)


def viewed(x: Tensor) -> Tensor:
    """Flattened to rows and back; no copy is made."""
    return x.view(-1, x.size(-1)).view(x.shape)


def _widened_late(mean: Callable, **steps: Callable) -> dict[str, Callable]:
    """Centred before anything is widened."""
    return {"wide": lambda x: Steps().wide(x - mean(x)), "centre": lambda x, axes: x, **steps}


def _centred_in_place(x: Tensor, axes: tuple) -> Tensor:
    return x.sub_(x.mean(axes, keepdim=True))


def torch_complains(x: Tensor, d_model: int) -> None:
    """What a sum of vectors that do not fit raises."""
    if x.size(-1) not in (d_model, 1):
        raise RuntimeError("The size of tensor a must match the size of tensor b")


def functional_complains(x: Tensor, d_model: int) -> None:
    """What the functions of torch raise."""
    if x.size(-1) != d_model:
        raise RuntimeError("Given normalized_shape, expected input with another shape")


FLOAT32_RETURNED = Mistake(
    "float32_returned",
    "you return another dtype than the input's",
    "The conversion to float32 was not undone, or the weight's dtype won.",
    "The next layer gets a dtype that its weights do not have.",
    EPSILON,
    (
        {"result": lambda y, x: y},
        {"result": lambda y, x: y.float()},
        {"wide": lambda x: x.float(), "result": lambda y, x: y.float()},
    ),
)

HALF_SCALED_DOWN = Mistake(
    "half_scaled_down",
    "you scale float16 numbers down before you take their statistics; ε does not shrink with them",
    "Then no square is too large, and the scale seems to cancel.",
    "Vectors of ordinary size come out too small, as ε is no longer small beside them.",
    EPSILON,
    (
        {"wide": scaled_down(lambda x: 1000)},
        {"wide": scaled_down(lambda x: 256)},
        {"wide": scaled_down(lambda x: x.abs().max())},
    ),
)

VIEWED = Mistake(
    "viewed",
    "you flatten the input with .view, which takes only numbers that lie in memory in their order",
    ".view and .reshape do the same for tensors that were just made.",
    "After a transpose, for instance, it fails; .reshape would copy.",
    AXES,
    ({"wide": lambda x: viewed(Steps().wide(x))},),
)

D_MODEL_UNCHECKED = Mistake(
    "d_model_unchecked",
    "you do not refuse every d_model below 1",
    "torch.ones(0) is no error.",
    "The layer is made, and fails far from the typing mistake.",
    MATHS,
    ({"accept": lambda d_model: None}, {"accept": lambda d_model: _accept(abs(d_model))}),
)

MISTAKES = (
    Mistake(
        "unbiased",
        "you divide by d_model − 1 in the variance, as .var() does by default; LayerNorm divides by d_model",
        "torch's std and var correct for a sample unless told not to.",
        "All outputs are too small, by √((d_model − 1)/d_model).",
        EPSILON,
        ({"spread": lambda x, axes, eps: (x.var(axes, keepdim=True) + eps).sqrt()},),
    ),
    Mistake(
        "eps_outside",
        "you add ε to the standard deviation; it belongs under the root, beside the variance",
        "“+ eps so that nothing is divided by zero” is satisfied either way.",
        "Where the variance is small, outputs have another size; and a constant vector has no gradient but NaN.",
        EPSILON,
        (
            {"spread": lambda x, axes, eps: x.std(axes, correction=0, keepdim=True) + eps},
            {"spread": lambda x, axes, eps: x.var(axes, correction=0, keepdim=True).sqrt() + eps},
        ),
    ),
    Mistake(
        "unbiased_eps_outside",
        "you wrote (x − mean)/(x.std() + eps): .std() divides by d_model − 1, and ε is outside the root",
        "This form is copied from tutorial to tutorial.",
        "Close to LayerNorm, and equal to it nowhere.",
        EPSILON,
        ({"spread": lambda x, axes, eps: x.std(axes, keepdim=True) + eps},),
    ),
    Mistake(
        "eps_ignored",
        "you never use eps as it was given",
        "A constant was written down where the argument belongs.",
        "With another eps, nothing changes.",
        EPSILON,
        ({"spread": lambda x, axes, eps: (x.var(axes, correction=0, keepdim=True) + 1e-5).sqrt()},),
    ),
    Mistake(
        "other_default",
        "your eps defaults to another number; for this norm it is 1e-5",
        "Other implementations have 1e-6 or 1e-12.",
        "Vectors with small entries come out at another size; 1e-12 is too small to damp anything.",
        EPSILON,
        tuple(
            {"eps": lambda given, other=other: other if given is None else given}
            for other in (1e-6, 1e-8, 1e-12)
        ),
    ),
    Mistake(
        "no_eps",
        "you left out ε",
        "The formula of a z-score has none.",
        "A constant vector becomes 0/0, which is NaN.",
        EPSILON,
        ({"spread": lambda x, axes, eps: x.std(axes, correction=0, keepdim=True)},),
    ),
    Mistake(
        "variance_not_rooted",
        "you divide by the variance, not by its root",
        "var sits there ready to be used.",
        "Outputs get smaller as inputs get larger.",
        MATHS,
        ({"spread": lambda x, axes, eps: x.var(axes, correction=0, keepdim=True) + eps},),
    ),
    Mistake(
        "not_centred",
        "you never subtract the mean; without it this is no LayerNorm (RMSNorm divides by the root mean square)",
        "RMSNorm is mixed up with LayerNorm.",
        "A constant added to the input changes the output.",
        MATHS,
        ({"centre": lambda x, axes: x},),
    ),
    Mistake(
        "over_all_but_batch",
        "you normalise over all axes but the first; each position has a mean and a variance of its own",
        "For images, LayerNorm is used so.",
        "Positions depend on one another, and on how much padding there is.",
        AXES,
        ({"axes": lambda x: tuple(range(min(1, x.dim() - 1), x.dim()))},),
    ),
    Mistake(
        "over_positions",
        "you normalise over the axis before the last: over positions, for each feature",
        "dim=1 is the last axis of a matrix, but not of (batch, length, d_model).",
        "Positions depend on one another, later on earlier ones too.",
        AXES,
        ({"axes": lambda x: (max(-2, -x.dim()),)},),
    ),
    Mistake(
        "over_batch",
        "you normalise over the batch (and the positions), for each feature, as BatchNorm does",
        "BatchNorm is what many know first.",
        "An output depends on its batch-mates.",
        AXES,
        ({"axes": lambda x: tuple(range(max(1, x.dim() - 1)))}, {"axes": lambda x: (0,)}),
    ),
    Mistake(
        "affine_ignored",
        "you never use weight and bias",
        "A new layer's weight is one and its bias zero, so it looks right.",
        "Training cannot change the layer.",
        MATHS,
        ({"affine": lambda y, weight, bias: y},),
    ),
    Mistake(
        "bias_left_out",
        "you never add the bias",
        "It is zero at first, so nothing is missing.",
        "Outputs have mean zero for ever.",
        MATHS,
        ({"affine": lambda y, weight, bias: y * weight},),
    ),
    Mistake(
        "weight_zero_at_first",
        "your weight is zero at first; it should be one",
        "torch.zeros was copied from the line of the bias.",
        "The layer puts out zeros, and everything before it gets no gradient.",
        MATHS,
        ({"first": torch.zeros},),
    ),
    Mistake(
        "statistics_detached",
        "you take mean and variance without their gradient",
        ".detach() or no_grad was put around what looks like a constant.",
        "Outputs are right; gradients with respect to the input are not.",
        MATHS,
        (
            {
                "centre": lambda x, axes: x - x.mean(axes, keepdim=True).detach(),
                "spread": lambda x, axes, eps: (
                    (x.var(axes, correction=0, keepdim=True) + eps).sqrt().detach()
                ),
            },
        ),
    ),
    Mistake(
        "float32_throughout",
        "you compute in float32 whatever the input is; float64 should stay float64",
        "Mixed precision computes norms in float32, and .float() is what one reads in such code.",
        "float64 loses half its digits.",
        MATHS,
        ({"wide": lambda x: x.float()},),
    ),
    FLOAT32_RETURNED,
    Mistake(
        "half_statistics",
        "you square in float16, which ends at 65,504; take the statistics in float32 at least",
        "Nothing has to be converted as long as the numbers are small.",
        "From entries of 256 on the variance is infinite, and the vector becomes zeros without any warning.",
        EPSILON,
        ({"wide": lambda x: x},),
    ),
    Mistake(
        "half_mean",
        "you take the mean in float16; take it in float32, as the squares",
        "Only squares seem to be too large for float16.",
        "Near 2000 the mean is rounded to a whole number, and the sum of 33 such numbers is infinite.",
        EPSILON,
        (
            _widened_late(lambda x: x.mean(-1, keepdim=True)),
            _widened_late(
                lambda x: x.mean(-1, keepdim=True),
                spread=lambda x, axes, eps: (x.square().mean(axes, keepdim=True) + eps).sqrt(),
            ),
            _widened_late(lambda x: x.sum(-1, keepdim=True) / x.size(-1)),
        ),
    ),
    HALF_SCALED_DOWN,
    VIEWED,
    Mistake(
        "overwritten",
        "you subtract the mean from your caller's tensor in place",
        "x -= saves a copy; and .double() makes none where the input is float64.",
        "The residual sum adds the centred input.",
        "#ch09-in-place",
        ({"centre": _centred_in_place}, {"wide": lambda x: x.double(), "centre": _centred_in_place}),
    ),
    Mistake(
        "width_unchecked",
        "you do not check the width of the input yourself",
        "torch complains too, but about sizes of a and b, and not at all if the width is 1.",
        "The caller is told nothing about x.",
        MATHS,
        ({"fits": torch_complains}, {"fits": functional_complains}),
    ),
    D_MODEL_UNCHECKED,
)

TASK = Task(
    name="layer_norm",
    signature="LayerNorm(d_model, eps=1e-5)(x)",
    arguments=("x",),
    returns=("output",),
    reference=LayerNorm,
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the input's shape.", ("new",), MATHS, ("structure",)
        ),
        Requirement("values", "each vector gets mean 0 and variance 1 over its last axis.", ("new",), MATHS),
        Requirement("affine", "then it is scaled by weight and shifted by bias.", ("loaded",), MATHS),
        Requirement("parameters", "weight and bias are its parameters.", ("names",), MATHS),
        Requirement("axes", "inputs may have any number of axes.", ("one", "four_axes"), AXES),
        Requirement(
            "epsilon", "ε is added to the variance, under the root.", ("epsilon", "constant"), EPSILON
        ),
        Requirement(
            "gradients",
            "gradients reach the input, weight and bias, at a constant vector too.",
            ("loaded", "constant"),
            MATHS,
            ("gradients", "parameters"),
        ),
        Requirement("evaluation", "training and evaluation compute the same.", ("evaluation",), AXES),
        Requirement("default", "eps is 1e-5 unless it is given.", ("default",), EPSILON),
        Requirement("parameters", "weight and bias are its parameters.", ("names",), MATHS),
        Requirement(
            "double",
            "float64 stays float64, with all its digits.",
            ("loaded", "double", "far"),
            MATHS,
            ("dtype",),
        ),
        Requirement(
            "half",
            "large float16 numbers survive, and come back as float16.",
            ("half", "far_in_half"),
            EPSILON,
            ("dtype",),
        ),
        Requirement("inputs", "the input is left unchanged.", ("loaded", "wide"), MATHS, ("inputs",)),
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
    essential=6,
)
