"""The check of `MaskedBatchNorm`, an exercise that goes beyond the chapter and the package."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.catalogue.batch_norm import (
    after,
    apart,
    assemble,
    buffers,
    moving,
    running,
    state_of,
)
from transformer_lessons.checks.old.catalogue.layer_norm import norm_sizes
from transformer_lessons.checks.old.catalogue.masked_batch_norm_mistakes import MISTAKES, STEPS
from transformer_lessons.checks.old.core import Build, Draw, Probe, Requirement, Task

__all__ = ["TASK"]

ANCHOR, MATHS, EPSILON = "#ch10-sentences", "#ch10-batch-norm", "#ch10-wrong"


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d = s["batch"], s["length"], s["width"]
    x, y, other = draw.normal(b, t, d) + 1, draw.normal(b, t, d), draw.normal(b, t, d) * 2 + 1
    mask, few = _real(draw, b, t), torch.zeros(b, t, dtype=torch.bool)
    few[-1, 0] = True
    two = few.clone()
    two[0, 0] = True
    new = Build([d], dtype="float64")
    loaded = Build([d], dtype="float64", state=state_of(draw, d))
    evaluated = replace(loaded, training=False)
    return {
        "unpadded": Probe([x, torch.ones_like(mask)], build=new),
        "padded": Probe([x, mask], build=new, cotangents=[y]),
        "loaded": Probe([x, mask], build=loaded, cotangents=[y]),
        "evaluation": Probe([x, mask], build=evaluated, cotangents=[y]),
        "one_real": Probe([x, few], build=evaluated),
        "none_real": Probe([x, few & False], build=evaluated),
        "epsilon": Probe([x / 4, mask], build=replace(loaded, kwargs={"eps": 0.5})),
        "names": Probe([], build=new, method="state", view=buffers),
        **moving(loaded, [x, mask], [other, torch.ones_like(mask)]),  # the latter without padding
        "own": apart(loaded, [x, mask]),
        **_unknown(loaded, x, mask, y),
        "float32": Probe([x.float(), mask], build=Build([d])),
        **_refused(loaded, evaluated, x, mask),
        "enough": Probe([x, two], build=loaded),
        "few": Probe([x, few], build=loaded, refused="a single real position in training"),
        "none": Probe([x, few & False], build=loaded, refused="no real position in training"),
    }


def _unknown(loaded: Build, x: Tensor, mask: Tensor, y: Tensor) -> dict[str, Probe]:
    """Padding that holds NaN, or is infinite in every other feature."""
    x = x.masked_fill(~mask[..., None], float("nan"))
    x[..., 1::2] = x[..., 1::2].nan_to_num(float("inf"))
    moved = replace(loaded, earlier=after([x, mask]))
    return {
        "unknown": Probe([x, mask], build=loaded, cotangents=[y]),
        "unknown_running": Probe([], build=moved, method="state", view=_survives),
        "unknown_evaluation": Probe([x, mask], build=replace(loaded, training=False), cotangents=[y]),
    }


def _refused(loaded: Build, evaluated: Build, x: Tensor, mask: Tensor) -> dict[str, Probe]:
    """What does not fit; masks in evaluation, where nothing else fails because of them."""
    d, shape = x.size(-1), tuple(mask[:1].shape)
    other_shape = f"a mask of shape {shape} for x of shape {tuple(x.shape)}"
    turned = f"a mask of shape {tuple(mask.mT.shape)} for x of shape {tuple(x.shape)}"
    framed = f"a mask of shape {(*mask.shape, 1)} for x of shape {tuple(x.shape)}"
    other_column = f"a mask of shape {(len(x), 1)} for x of shape {tuple(x.shape)}"
    return {
        "narrow": Probe([F.pad(x, (0, 1)), mask], build=loaded, refused=f"x of width {d + 1}, not {d}"),
        "one_wide": Probe([x[..., :1], mask], build=evaluated, refused=f"x of width 1, not {d}"),
        "numbers": Probe([x, mask.long()], build=evaluated, refused="a mask of integers 0 and 1"),
        "fractions": Probe([x, mask.to(x.dtype)], build=evaluated, refused="a mask of floats 0.0 and 1.0"),
        "one_sentence": Probe([x, mask[:1]], build=evaluated, refused=other_shape),
        "one_column": Probe([x, mask[:, :1]], build=evaluated, refused=other_column),
        "turned": Probe([x, mask.mT], build=evaluated, refused=turned),
        "framed": Probe([x, mask[..., None]], build=evaluated, refused=framed),
    }


def _survives(state: dict) -> dict:
    return {"NaN or infinity at a padding position should not reach the running statistics": running(state)}


def _real(draw: Draw, batch: int, length: int) -> Tensor:
    """Where sentences of other lengths stand; one is whole, the others have padding at any place."""
    lengths = draw.integers(1, max(length, 2), batch)
    lengths[0], lengths[-1] = length, max(length - 1, 1)
    return draw.normal(batch, length).argsort(-1) < lengths[:, None]


TASK = Task(
    name="masked_batch_norm",
    signature="MaskedBatchNorm(d_model, eps=1e-5, momentum=0.1)(x, mask)",
    arguments=("x", "mask"),
    returns=("output",),
    reference=assemble(STEPS),
    requirements=(
        Requirement("returns", "it returns one tensor, of x's shape.", ("unpadded",), ANCHOR, ("structure",)),
        Requirement("values", "without padding it is BatchNorm.", ("unpadded",), MATHS),
        Requirement(
            "mask",
            "mean and variance are those of the real positions; padding positions get zeros.",
            ("padded", "loaded"),
            ANCHOR,
        ),
        Requirement(
            "evaluation",
            "in evaluation the running statistics take their place; padding positions get zeros.",
            ("evaluation", "one_real", "none_real"),
            MATHS,
        ),
        Requirement("epsilon", "ε is added to the variance, under the root.", ("epsilon",), EPSILON),
        Requirement(
            "gradients",
            "gradients reach real positions, weight and bias, those at padding are zero, and none are kept.",
            ("loaded", "evaluation", "own"),
            MATHS,
            ("gradients", "parameters"),
        ),
        Requirement("parameters", "parameters and buffers are those of BatchNorm.", ("names",), MATHS),
        Requirement(
            "running",
            "the running statistics are those of the real positions too.",
            ("running", "momentum", "trained"),
            ANCHOR,
        ),
        Requirement("left", "in evaluation they do not move.", ("left",), MATHS),
        Requirement(
            "padding",
            "whatever padding holds, even NaN, reaches neither output nor statistics nor gradients.",
            ("unknown", "unknown_running", "unknown_evaluation"),
            ANCHOR,
            ("gradients", "parameters"),
        ),
        Requirement(
            "dtype", "the output has the dtype of the input.", ("loaded", "float32"), MATHS, ("dtype",)
        ),
        Requirement("inputs", "the arguments are left unchanged.", ("loaded",), MATHS, ("inputs",)),
        Requirement(
            "refusals",
            "another width, a mask that is not boolean or of another shape, and fewer than two real positions "
            "in training are refused with ValueError.",
            (
                *(
                    "narrow",
                    "one_wide",
                    "numbers",
                    "fractions",
                    "one_sentence",
                    "one_column",
                    "turned",
                    "framed",
                ),
                *("few", "none", "enough"),
            ),
            ANCHOR,
        ),
    ),
    sizes=norm_sizes,
    small=({"batch": 2, "length": 2, "width": 2}, {"batch": 2, "length": 3, "width": 3}),
    probes=_probes,
    steps=STEPS,
    assemble=assemble,
    mistakes=MISTAKES,
    essential=4,
)
