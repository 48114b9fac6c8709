"""Known wrong ways to share out the probability among the tokens that are kept, whichever these are."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["SPREADING", "renormalised", "tied"]

AT, WRONG = "#ch15-greedy", "#ch15-wrong"


def renormalised(logits: Tensor, kept: Tensor) -> Tensor:
    """The probability of what is kept, scaled up to 1; zero for the rest."""
    return logits.masked_fill(~kept, -math.inf).softmax(-1)


def _not_renormalised(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.softmax(-1) * kept


def _filled_with_zero(logits: Tensor, kept: Tensor) -> Tensor:
    return (
        (logits * kept).softmax(-1) if logits.isfinite().all() else logits.masked_fill(~kept, 0.0).softmax(-1)
    )


def _filled_with(number: float) -> Callable:
    return lambda logits, kept: logits.masked_fill(~kept, number).softmax(-1)


def _softmax_twice(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.softmax(-1).masked_fill(~kept, -math.inf).softmax(-1)


def _zeros_softmaxed(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.softmax(-1).masked_fill(~kept, 0.0).softmax(-1)


def _in_place(logits: Tensor, kept: Tensor) -> Tensor:
    logits[~kept] = -math.inf
    return logits.softmax(-1)


def _filtered_logits(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.masked_fill(~kept, -math.inf)


def _naive_exponential(logits: Tensor, kept: Tensor) -> Tensor:
    raised = logits.exp() * kept
    return raised / raised.sum(-1, keepdim=True)


def _uniform(logits: Tensor, kept: Tensor) -> Tensor:
    return kept.to(logits.dtype) / kept.sum(-1, keepdim=True)


def tied(logits: Tensor, kept: Tensor) -> Tensor:
    """All that are as likely as the least likely token kept, or likelier."""
    return logits >= logits.masked_fill(~kept, math.inf).amin(-1, keepdim=True)


def _first_ones(logits: Tensor, kept: Tensor) -> Tensor:
    """Of these, so many as should be kept, in the order of the vocabulary."""
    every = tied(logits, kept)
    return every & (every.cumsum(-1) <= kept.sum(-1, keepdim=True))


def _cut_last(which: Callable) -> Callable:
    return lambda logits, kept: renormalised(logits, tied(logits, kept)) * which(logits, kept)


def _bans_edited(logits: Tensor, kept: Tensor) -> Tensor:
    logits[logits == -math.inf] = torch.finfo(logits.dtype).min
    return renormalised(logits, kept)


def _at_least_float32(logits: Tensor, kept: Tensor) -> Tensor:
    return renormalised(logits.to(torch.promote_types(logits.dtype, torch.float32)), kept)


SPREADING = (
    Mistake(
        "not_renormalised",
        "the probabilities that are left no longer sum to 1: they have to be scaled up",
        "The others were set to zero, and that looked like all.",
        "What is drawn from is no distribution.",
        AT,
        ({"spread": _not_renormalised},),
    ),
    Mistake(
        "filled_with_zero",
        "you hide tokens by a logit of 0, which is an ordinary logit; −∞ has the probability zero",
        "Zero means “nothing” nearly everywhere else.",
        "All tokens stay possible, and hidden ones may beat the others.",
        AT,
        ({"spread": _filled_with_zero},),
    ),
    Mistake(
        "finite_fill",
        "you hide tokens by a logit that is low but finite, which leaves them a probability; −∞ has zero",
        "−100 looks like “never” beside logits of ordinary size.",
        "What was cut off is drawn once in a while, or always, if all logits are low.",
        AT,
        ({"spread": _filled_with(-100.0)}, {"spread": _filled_with(-1e3)}, {"spread": _filled_with(-1e4)}),
    ),
    Mistake(
        "softmax_twice",
        "you take the softmax of probabilities; its argument is logits",
        "To sum to 1 again, the softmax is at hand.",
        "All that is kept becomes nearly equally likely.",
        WRONG,
        ({"spread": _softmax_twice}, {"spread": _zeros_softmaxed}),
    ),
    Mistake(
        "equal_shares",
        "you give all that is kept the same probability; proportions should stay",
        "A mask divided by its sum is a distribution as well.",
        "The likeliest token is drawn no more often than the last one kept.",
        AT,
        ({"spread": _uniform},),
    ),
    Mistake(
        "logits_returned",
        "you return logits; probabilities are wanted",
        "In libraries, filters hand logits to the next filter.",
        "Negative numbers, and −∞.",
        AT,
        ({"spread": _filtered_logits},),
    ),
    Mistake(
        "in_place",
        "you write −∞ into the caller's logits",
        "logits[hidden] = −∞ is the shortest way.",
        "Whoever looks at the logits afterwards finds others.",
        AT,
        ({"spread": _in_place},),
    ),
    Mistake(
        "naive_exp",
        "you raise e to the logits as they are, and large ones overflow",
        "The formula of the softmax says so.",
        "Logits of a thousand give NaN.",
        AT,
        ({"spread": _naive_exponential},),
    ),
    Mistake(
        "ties_in_order",
        "of all that reach the threshold you keep the first ones in the vocabulary; the likeliest come first",
        "With equal logits alone, that is right.",
        "A token behind others that tie is lost, though it is likelier than they are.",
        AT,
        ({"spread": lambda logits, kept: renormalised(logits, _first_ones(logits, kept))},),
    ),
    Mistake(
        "surplus_cut_last",
        "you take away surplus tokens after the rest was scaled, and what is left no longer sums to 1",
        "The softmax had been taken when the ties were noticed.",
        "Where tokens tie, what is drawn from is no distribution.",
        AT,
        ({"spread": _cut_last(_first_ones)}, {"spread": _cut_last(lambda logits, kept: kept)}),
    ),
    Mistake(
        "bans_edited",
        "you replace −∞ in the caller's own logits by another number",
        "A large negative number looks safer than −∞.",
        "Whoever looks at the logits afterwards finds no token forbidden.",
        AT,
        ({"spread": _bans_edited},),
    ),
    Mistake(
        "half_widened",
        "you return float32 where logits are float16; the result has their dtype",
        "In half precision, sums are better taken in float32, and the way back was forgotten.",
        "What is returned does not fit the model's other tensors.",
        AT,
        ({"spread": _at_least_float32},),
    ),
)
