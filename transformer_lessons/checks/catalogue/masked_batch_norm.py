"""The check of `MaskedBatchNorm`, an exercise that goes beyond the chapter and the package."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.catalogue.batch_norm import (
    CORE,
    Steps,
    after,
    assemble,
    buffers,
    moving,
    running,
    state_of,
)
from transformer_lessons.checks.catalogue.layer_norm import norm_sizes
from transformer_lessons.checks.core import Build, Draw, Mistake, Probe, Requirement, Task

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
        "epsilon": Probe([x / 4, mask], build=replace(loaded, kwargs={"eps": 0.5})),
        "names": Probe([], build=new, method="state", view=buffers),
        **moving(loaded, [x, mask], [other, _real(draw, b, t)]),
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
    other_column = f"a mask of shape {(len(x), 1)} for x of shape {tuple(x.shape)}"
    return {
        "narrow": Probe([F.pad(x, (0, 1)), mask], build=loaded, refused=f"x of width {d + 1}, not {d}"),
        "one_wide": Probe([x[..., :1], mask], build=evaluated, refused=f"x of width 1, not {d}"),
        "numbers": Probe([x, mask.long()], build=evaluated, refused="a mask of integers 0 and 1"),
        "one_sentence": Probe([x, mask[:1]], build=evaluated, refused=other_shape),
        "one_column": Probe([x, mask[:, :1]], build=evaluated, refused=other_column),
    }


def _survives(state: dict) -> dict:
    return {"NaN or infinity at a padding position should not reach the running statistics": running(state)}


def _real(draw: Draw, batch: int, length: int) -> Tensor:
    """Where sentences of other lengths stand; one is whole, the others have padding at any place."""
    lengths = draw.integers(1, max(length, 2), batch)
    lengths[0], lengths[-1] = length, max(length - 1, 1)
    return draw.normal(batch, length).argsort(-1) < lengths[:, None]


def _accept_mask(mask: Tensor, x: Tensor) -> None:
    _mask_is_boolean(mask, x)
    _mask_fits(mask, x)


def _mask_is_boolean(mask: Tensor, x: Tensor) -> None:
    if mask.dtype is not torch.bool:
        raise ValueError("mask: expected booleans")


def _torch_needs_booleans(mask: Tensor, x: Tensor) -> None:
    if mask.dtype is not torch.bool:
        raise RuntimeError("masked_fill only supports boolean masks")
    _mask_fits(mask, x)


def _mask_fits(mask: Tensor, x: Tensor) -> None:
    if mask.shape != x.shape[:-1]:
        raise ValueError("mask: expected a value for each position")


def _zero_padding(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask[..., None].bool(), 0.0)


def _hidden(y: Tensor, x: Tensor, mask: Tensor, training: bool) -> Tensor:
    return _zero_padding(y, mask)


STEPS = Steps(accept_mask=_accept_mask, clean=_zero_padding, hide=_hidden)


def _kept(x: Tensor, mask: Tensor) -> Tensor:
    return x


def _all(mask: Tensor) -> Tensor:
    return torch.ones_like(mask)


def _counts_everything(x: Tensor, mask: Tensor) -> Tensor:
    """Padding holds zeros here, which are then averaged as well."""
    return x.flatten(0, -2).mean(0)


def _squares_everything(x: Tensor, mask: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).square().flatten(0, -2).mean(0)


def _squares_of_padding(x: Tensor, mask: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).square().flatten(0, -2).sum(0) / mask.sum()


def _corrected_for_all(x: Tensor, mask: Tensor, variance: Tensor) -> Tensor:
    count = mask.numel()
    return variance * count / (count - 1)


def _mean_of_means(x: Tensor, mask: Tensor) -> Tensor:
    return ((x * mask[..., None]).sum(-2) / mask.sum(-1, keepdim=True)).mean(0)


def _mean_of_mean_squares(x: Tensor, mask: Tensor, mean: Tensor) -> Tensor:
    return _mean_of_means((x - mean).square(), mask)


def _per_sentence(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[..., None]).sum(-2, keepdim=True) / mask.sum(-1)[..., None, None]


def _per_sentence_variance(x: Tensor, mask: Tensor, mean: Tensor) -> Tensor:
    return _per_sentence((x - mean).square(), mask)


def _running_of_all(x: Tensor, mask: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.flatten(0, -2).mean(0)
    return mean, (x - mean).square().flatten(0, -2).mean(0)


# Statistics in which the mask is a factor.
BY_FACTORS = {
    "mean": lambda x, mask: (x * mask[..., None]).flatten(0, -2).sum(0) / mask.sum(),
    "variance": lambda x, mask, mean: (
        ((x - mean) * mask[..., None]).square().flatten(0, -2).sum(0) / mask.sum()
    ),
}

MISTAKES = (
    Mistake(
        "mask_ignored",
        "you never use the mask for the statistics: padding counts in mean and variance",
        "BatchNorm was copied, and only the output was masked.",
        "More padding, another output at real positions.",
        ANCHOR,
        (
            {
                "clean": _kept,
                "mean": _counts_everything,
                "variance": _squares_everything,
                "corrected": _corrected_for_all,
            },
            {
                "clean": _kept,
                "mean": _counts_everything,
                "variance": _squares_everything,
                "corrected": _corrected_for_all,
                "hide": lambda y, x, mask, training: y,
            },
        ),
    ),
    Mistake(
        "zeros_averaged",
        "you set padding to zero and average over all positions; divide by the number of real ones",
        "Zeros add nothing to a sum, but they do count in a mean.",
        "With more padding, mean and variance shrink towards zero.",
        ANCHOR,
        (
            {
                "mean": _counts_everything,
                "variance": _squares_everything,
                "corrected": _corrected_for_all,
            },
            {
                "mean": _counts_everything,
                "variance": _squares_everything,
            },
            {
                "mean": _counts_everything,
                "variance": lambda x, mask, mean: _squares_everything(
                    (x - mean) * mask[..., None], mask, torch.zeros_like(mean)
                ),
            },
        ),
    ),
    Mistake(
        "squares_of_padding",
        "your mean leaves padding out, but your variance does not: there zero less the mean is squared and added",
        "Padding was set to zero before the mean was subtracted, and not again afterwards.",
        "The variance is too large, by the share of padding times the squared mean.",
        ANCHOR,
        ({"variance": _squares_of_padding}, {"variance": _squares_everything}),
    ),
    Mistake(
        "mean_of_means",
        "you average within each sentence and then over sentences; each real position counts the same",
        "Two means in a row are one mean only if all sentences have one length.",
        "Words of short sentences count more than those of long ones.",
        ANCHOR,
        (
            {"mean": _mean_of_means, "variance": _mean_of_mean_squares},
            {"mean": _mean_of_means},
        ),
    ),
    Mistake(
        "per_sentence",
        "you normalise each sentence by its own statistics; all real positions of the batch count together",
        "The mask is summed along the positions, and so is everything else.",
        "It is InstanceNorm with a mask.",
        ANCHOR,
        ({"mean": _per_sentence, "variance": _per_sentence_variance},),
    ),
    Mistake(
        "mask_inverted",
        "you read the mask the wrong way round: True means real",
        "nn.Transformer's padding masks are True where something is padding.",
        "Statistics are those of padding, and real positions get zeros.",
        ANCHOR,
        ({"read": torch.logical_not}, {"read": torch.logical_not, "enough": lambda mask: None}),
    ),
    Mistake(
        "padding_not_zeroed",
        "you leave something at padding positions of the output; they get zeros",
        "Nobody looks there.",
        "The bias, and a normalised nothing, flow into whatever sums over positions.",
        ANCHOR,
        ({"hide": lambda y, x, mask, training: y},),
    ),
    Mistake(
        "padding_passed_through",
        "you pass the input through at padding positions; they get zeros",
        "What is not normalised was left as it is.",
        "Padding keeps whatever it held.",
        ANCHOR,
        ({"clean": _kept, "hide": lambda y, x, mask, training: torch.where(mask[..., None], y, x)},),
    ),
    Mistake(
        "padding_zeroed_in_training_only",
        "you zero padding positions in training only",
        "The branch of evaluation returns early.",
        "In evaluation, padding holds the bias and more.",
        ANCHOR,
        ({"hide": lambda y, x, mask, training: _zero_padding(y, mask) if training else y},),
    ),
    Mistake(
        "running_counts_padding",
        "you correct the running variance by n/(n − 1) with n the number of all positions; only real ones count",
        "n was taken from the shape.",
        "The running variance is a little too small.",
        ANCHOR,
        ({"corrected": _corrected_for_all},),
    ),
    Mistake(
        "running_of_all",
        "you leave padding out where the batch is normalised, but not from the running statistics",
        "The lines of the update were copied from BatchNorm.",
        "Training is right, and evaluation depends on how much padding training has seen.",
        ANCHOR,
        (
            {"clean": _kept, "keep": _running_of_all, "corrected": _corrected_for_all},
            {"keep": _running_of_all, "corrected": _corrected_for_all},
        ),
    ),
    Mistake(
        "padding_multiplied",
        "you multiply padding by zero, and zero times NaN is NaN; replace it instead",
        "A mask as a factor is short, and right as long as padding holds numbers.",
        "One NaN in the padding, where nothing should matter, and everything is NaN.",
        ANCHOR,
        (
            {"clean": _kept, "hide": lambda y, x, mask, training: y * mask[..., None], **BY_FACTORS},
            {"clean": _kept, "hide": lambda y, x, mask, training: y * mask[..., None]},
            {"clean": _kept, **BY_FACTORS},
            {"clean": lambda x, mask: x * mask[..., None], **BY_FACTORS},
        ),
    ),
    Mistake(
        "padding_replaced_too_late",
        "you compute with padding and replace the result; on the way back its NaN meets the zero gradient",
        "The output is right, and that is what one looks at.",
        "The loss is a number, and the next step makes all parameters NaN.",
        ANCHOR,
        ({"clean": _kept},),
    ),
    *CORE,
    Mistake(
        "mask_type_unchecked",
        "you accept a mask that is not boolean",
        "1 and 0 multiply just as well.",
        "The same numbers used as an index pick positions 0 and 1, again and again.",
        ANCHOR,
        ({"accept_mask": _mask_fits}, {"accept_mask": _torch_needs_booleans}),
    ),
    Mistake(
        "mask_shape_unchecked",
        "you accept a mask of another shape than the positions'",
        "It broadcasts.",
        "A mask of one sentence is laid over all of them, and nobody notices.",
        ANCHOR,
        ({"accept_mask": _mask_is_boolean},),
    ),
    Mistake(
        "few_accepted",
        "you accept fewer than two real positions in training",
        "The shape of x has enough of them.",
        "With one, the running variance becomes NaN; with none, the output does.",
        ANCHOR,
        ({"enough": lambda mask: None}, {"enough": lambda mask: STEPS.enough(_all(mask))}),
    ),
)

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
            ("evaluation", "one_real"),
            MATHS,
        ),
        Requirement("epsilon", "ε is added to the variance, under the root.", ("epsilon",), EPSILON),
        Requirement(
            "gradients",
            "gradients reach real positions, weight and bias, and those at padding are zero.",
            ("loaded", "evaluation"),
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
            ("narrow", "one_wide", "numbers", "one_sentence", "one_column", "few", "none", "enough"),
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
