"""The known mistakes of `MaskedBatchNorm`, and the steps that they change."""

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.batch_norm import CORE, Steps
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES", "STEPS"]

ANCHOR = "#ch10-sentences"


def _mask_is_boolean(mask: Tensor) -> None:
    if mask.dtype is not torch.bool:
        raise ValueError("mask: expected booleans")


def _integers_refused(mask: Tensor) -> None:
    if not mask.is_floating_point():
        _mask_is_boolean(mask)


def _no_index(mask: Tensor) -> None:
    """As torch, which takes integers for an index, but no floats."""
    if mask.is_floating_point():
        _torch_needs_booleans(mask)


def _torch_needs_booleans(mask: Tensor) -> None:
    if mask.dtype is not torch.bool:
        raise RuntimeError("masked_fill only supports boolean masks")


def _as_many(mask: Tensor, x: Tensor) -> None:
    if mask.numel() != x.size(0) * x.size(1):
        raise ValueError("mask: expected a value for each position")


def _two_axes_fit(mask: Tensor, x: Tensor) -> None:
    if mask.shape[:2] != x.shape[:2]:
        raise ValueError("mask: expected a value for each position")


def _none_refused(mask: Tensor, x: Tensor) -> None:
    _mask_fits(mask, x)
    if not mask.any():
        raise ValueError("mask: expected a real position")


def _one_refused(mask: Tensor, x: Tensor) -> None:
    _mask_fits(mask, x)
    STEPS.enough(mask)


def _mask_fits(mask: Tensor, x: Tensor) -> None:
    if mask.shape != x.shape[:-1]:
        raise ValueError("mask: expected a value for each position")


def _zero_padding(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask[..., None].bool(), 0.0)


def _zero_reshaped(x: Tensor, mask: Tensor) -> Tensor:
    """The same with a mask of any shape that has as many values."""
    return _zero_padding(x, mask.reshape(x.shape[:-1]))


def _hidden(y: Tensor, x: Tensor, mask: Tensor, training: bool) -> Tensor:
    return _zero_padding(y, mask)


STEPS = Steps(accept_type=_mask_is_boolean, accept_mask=_mask_fits, clean=_zero_padding, hide=_hidden)
# Steps that take a mask of any shape that has as many values.
RESHAPED = {"clean": _zero_reshaped, "hide": lambda y, x, mask, training: _zero_reshaped(y, mask)}


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
        ({"accept_type": lambda mask: None}, {"accept_type": _no_index}, {"accept_type": _integers_refused}),
    ),
    Mistake(
        "mask_type_left_to_torch",
        "you do not check yourself that the mask is boolean",
        "torch complains too, but about where or masked_fill, in the middle of your code.",
        "The caller is told nothing about the mask.",
        ANCHOR,
        ({"accept_type": _torch_needs_booleans},),
    ),
    Mistake(
        "mask_shape_unchecked",
        "you accept a mask of another shape than the positions'",
        "It broadcasts.",
        "A mask of one sentence is laid over all of them, and nobody notices.",
        ANCHOR,
        (
            {"accept_mask": lambda mask, x: None},
            {"accept_mask": lambda mask, x: None, **RESHAPED},
            {"accept_mask": _as_many, **RESHAPED},
            {"accept_mask": _two_axes_fit, **RESHAPED},
        ),
    ),
    Mistake(
        "few_refused_in_evaluation",
        "you refuse a mask for having no or too few real positions in evaluation too; only training needs two",
        "The check stands before the question whether this is training.",
        "A batch of one token, or of none, cannot be evaluated.",
        ANCHOR,
        ({"accept_mask": _none_refused}, {"accept_mask": _one_refused}),
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
