"""Known wrong ways to filter a distribution before drawing from it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.spreading_mistakes import SPREADING, renormalised, tied
from transformer_lessons.checks.old.core import Mistake

__all__ = [
    "NUCLEUS_MISTAKES",
    "TOP_K_MISTAKES",
    "NucleusSteps",
    "TopKSteps",
    "nucleus_in_steps",
    "top_k_in_steps",
]

AT = "#ch15-greedy"


def _ranks(logits: Tensor) -> Tensor:
    """0 for the likeliest token, 1 for the next, …; no two alike."""
    return logits.argsort(descending=True).argsort()


def _accept_k(k: int) -> None:
    if k < 1:
        raise ValueError("k: expected 1 or more")


def _accept_p(p: float) -> None:
    if not 0 < p <= 1:
        raise ValueError("p: expected a number above 0, at most 1")


@dataclass(frozen=True)
class TopKSteps:
    """What a mistake may replace in top-k filtering."""

    accept: Callable = _accept_k
    limit: Callable = lambda k, logits: k
    keep: Callable = lambda logits, k: _ranks(logits) < k
    spread: Callable = renormalised
    result: Callable = lambda found, k: found


def top_k_in_steps(steps: TopKSteps) -> Callable:
    """Top-k filtering in these steps."""

    def top_k(logits, k):
        steps.accept(k)
        k = steps.limit(k, logits)
        return steps.result(steps.spread(logits, steps.keep(logits, k)), k)

    return top_k


def _before(ordered: Tensor) -> Tensor:
    """Of probabilities in falling order: how much lies before each."""
    return ordered.cumsum(-1) - ordered


@dataclass(frozen=True)
class NucleusSteps:
    """What a mistake may replace in nucleus filtering."""

    accept: Callable = _accept_p
    order: Callable = lambda logits: logits.argsort(descending=True)
    measure: Callable = lambda logits: logits.softmax(-1)
    within: Callable = lambda ordered, p: _before(ordered) < p
    back: Callable = lambda within, order: within.gather(-1, order.argsort())
    spread: Callable = renormalised
    result: Callable = lambda found, order: found


def nucleus_in_steps(steps: NucleusSteps) -> Callable:
    """Nucleus filtering in these steps."""

    def nucleus(logits, p):
        steps.accept(p)
        order = steps.order(logits)
        within = steps.within(steps.measure(logits).gather(-1, order), p)
        return steps.result(steps.spread(logits, steps.back(within, order)), order)

    return nucleus


def _at_least_kth(logits: Tensor, k: int) -> Tensor:
    return logits >= logits.topk(min(k, logits.size(-1)), -1).values[..., -1:]


def _above_kth(logits: Tensor, k: int) -> Tensor:
    return logits > logits.topk(min(k, logits.size(-1)), -1).values[..., -1:]


def _of_all_rows(logits: Tensor, k: int) -> Tensor:
    return logits >= logits.flatten().topk(min(k, logits.numel())).values[-1]


def _of_the_first_row(logits: Tensor, k: int) -> Tensor:
    first = logits.flatten(0, -2)[0] if logits.dim() > 1 else logits
    return logits >= first.topk(min(k, len(first))).values[-1]


def _over_batch(logits: Tensor, k: int) -> Tensor:
    return logits.argsort(dim=0, descending=True, stable=True).argsort(0) < k


def _with_noise(logits: Tensor, k: int) -> Tensor:
    return _at_least_kth(logits - 1e-6 * torch.arange(logits.size(-1)), k)


def _too_large(k: int, logits: Tensor) -> int:
    logits.topk(k, -1)
    return k


TOP_K_MISTAKES = (
    Mistake(
        "least_likely",
        "you keep the k least likely tokens",
        "argsort sorts upwards unless told otherwise.",
        "Nothing but nonsense is drawn.",
        AT,
        ({"keep": lambda logits, k: logits.argsort(dim=-1, stable=True).argsort(-1) < k},),
    ),
    Mistake(
        "one_too_few",
        "you keep one token too few: the k-th likeliest stays too",
        "> where ≥ belongs.",
        "With k = 1 nothing is left, and the result is NaN.",
        AT,
        ({"keep": _above_kth},),
    ),
    Mistake(
        "over_batch",
        "you rank over the batch, the first axis; it must be the vocabulary, the last",
        "axis 0 is the only one while trying with a single vector.",
        "Some rows keep many tokens, others none.",
        AT,
        ({"keep": _over_batch},),
    ),
    Mistake(
        "one_limit_for_all",
        "you take one threshold for all rows; each has its own",
        "The threshold of the first row, or of everything, was used.",
        "Some rows keep more than k tokens, others fewer.",
        AT,
        ({"keep": _of_all_rows}, {"keep": _of_the_first_row}),
    ),
    Mistake(
        "only_k_returned",
        "you return k numbers; a probability for each token of the vocabulary is wanted",
        "topk returns k values.",
        "Their tokens are unknown.",
        AT,
        ({"result": lambda found, k: found.topk(min(k, found.size(-1)), -1).values},),
    ),
    Mistake(
        "sorted_result",
        "you return the probabilities in sorted order; each belongs at its token's place",
        "They were sorted to find the largest.",
        "Token 0 is always the likeliest.",
        AT,
        ({"result": lambda found, k: found.sort(-1, descending=True).values},),
    ),
    Mistake(
        "ties_kept",
        "you keep all that are as likely as the k-th, which may be more than k",
        "A comparison with the k-th value is shorter than a ranking.",
        "With equal logits nothing is hidden at all.",
        AT,
        ({"keep": _at_least_kth},),
    ),
    Mistake(
        "noise_on_ties",
        "you break ties by tiny numbers, which disappear beside large logits",
        "A little noise makes all tokens differ, as long as logits are small.",
        "In float32, 5,000 and 5,000 + 10⁻⁶ are the same number: the ties are back.",
        AT,
        ({"keep": _with_noise},),
    ),
    Mistake(
        "large_k_crashes",
        "a k larger than the vocabulary crashes; it should keep all",
        "topk demands that there be so many.",
        "A setting that fits one model fails with another.",
        AT,
        ({"limit": _too_large},),
    ),
    Mistake(
        "k_unchecked",
        "you accept a k below 1",
        "Nothing fails, but no token is left.",
        "The distribution is NaN.",
        AT,
        ({"accept": lambda k: None},),
    ),
    *SPREADING,
)


def _over_batch_axis(ordered: Tensor, p: float) -> Tensor:
    return ordered.cumsum(0) - ordered < p


def _cut_before_but_one(ordered: Tensor, p: float) -> Tensor:
    within = ordered.cumsum(-1) <= p
    within[..., 0] = True
    return within


def _within_tolerance(tolerance: float) -> Callable:
    def within(ordered: Tensor, p: float) -> Tensor:
        found = _before(ordered) < p - tolerance
        found[..., 0] = True
        return found

    return within


def _all_if_large(ordered: Tensor, p: float) -> Tensor:
    return _before(ordered) < p if p <= 0.95 else torch.ones_like(ordered, dtype=torch.bool)


NUCLEUS_MISTAKES = (
    Mistake(
        "crossing_dropped",
        "the token that carries the sum across p is missing: without it, what is kept has less than p",
        "“cumulative ≤ p” reads like the definition.",
        "If the likeliest token alone has more than p, nothing is left: NaN.",
        AT,
        ({"within": lambda ordered, p: ordered.cumsum(-1) <= p}, {"within": _cut_before_but_one}),
    ),
    Mistake(
        "boundary_overstepped",
        "you keep one token too many where the sum is exactly p: p or more is enough",
        "What comes after “cumulative > p” is removed, and equal is not greater.",
        "With p = 0.5, three of four equal tokens stay.",
        AT,
        ({"within": lambda ordered, p: _before(ordered) <= p},),
    ),
    Mistake(
        "ties_kept",
        "you keep all that are as likely as the last one needed, which may be more than needed",
        "A comparison with that probability is shorter than to put a mask back into its places.",
        "With equal logits nothing is hidden at all.",
        AT,
        ({"spread": lambda logits, kept: renormalised(logits, tied(logits, kept))},),
    ),
    Mistake(
        "skipped_near_one",
        "you keep everything if p is close to 1; only p = 1 keeps all",
        "A filter that hides little looks like one that may be skipped.",
        "With p = 0.99, a model that is sure of its token still draws from the whole tail.",
        AT,
        ({"within": _all_if_large},),
    ),
    Mistake(
        "almost_p",
        "you stop where the sum is a little below p; what is kept has p or more",
        "A tolerance for rounding is good practice elsewhere, and so are two decimals.",
        "With p = 0.501, two of four equal tokens seem to be enough.",
        AT,
        (
            *({"within": _within_tolerance(10.0**-n)} for n in (2, 3, 4, 5)),
            {"within": lambda ordered, p: _before(ordered) < round(p, 2)},
        ),
    ),
    Mistake(
        "each_against_p",
        "you compare each token's own probability with p; it is their sum, from the likeliest on, that reaches p",
        "p looks like a threshold.",
        "Mostly one token or none is left.",
        AT,
        (
            {"within": lambda ordered, p: ordered >= p},
            {"within": lambda ordered, p: ordered >= 1 - p},
            {"within": lambda ordered, p: ordered >= p * ordered[..., :1]},
        ),
    ),
    Mistake(
        "least_likely_first",
        "you add up from the least likely token; begin with the likeliest",
        "Sorting is upwards unless told otherwise.",
        "The tail is kept, the best tokens are lost.",
        AT,
        ({"order": lambda logits: logits.argsort(dim=-1, stable=True)},),
    ),
    Mistake(
        "not_sorted",
        "you add up in the order of the vocabulary; begin with the likeliest token",
        "cumsum was applied to the probabilities as they are.",
        "What is kept depends on the numbers that tokens happen to have.",
        AT,
        ({"order": lambda logits: torch.arange(logits.size(-1)).expand_as(logits)},),
    ),
    Mistake(
        "one_minus_p",
        "you keep tokens up to a sum of 1 − p instead of p",
        "What is cut off and what is kept were mixed up.",
        "A larger p keeps less.",
        AT,
        ({"within": lambda ordered, p: _before(ordered) < 1 - p},),
    ),
    Mistake(
        "sum_of_logits",
        "you add up logits; it is probabilities that add up to p",
        "The logits had been sorted, and were at hand.",
        "Logits may be negative or large: the sum means nothing.",
        AT,
        ({"measure": lambda logits: logits},),
    ),
    Mistake(
        "over_batch",
        "you add up over the batch, the first axis; it must be the vocabulary, the last",
        "cumsum wants an axis, and 0 comes to mind.",
        "A row's tokens depend on the rows above it.",
        AT,
        ({"within": _over_batch_axis},),
    ),
    Mistake(
        "not_put_back",
        "your mask is in sorted order, the logits are not: it has to be put back into the tokens' places",
        "Both have the same shape.",
        "The first tokens of the vocabulary are kept.",
        AT,
        ({"back": lambda within, order: within},),
    ),
    Mistake(
        "put_back_by_gather",
        "gather with the sorting indices sorts once more; to undo the sorting takes scatter, or their argsort",
        "gather and scatter take the same arguments.",
        "Other tokens are kept than were chosen.",
        AT,
        ({"back": lambda within, order: within.gather(-1, order)},),
    ),
    Mistake(
        "sorted_result",
        "you return the probabilities in sorted order; each belongs at its token's place",
        "They were sorted to add them up.",
        "Token 0 is always the likeliest.",
        AT,
        ({"result": lambda found, order: found.gather(-1, order)},),
    ),
    Mistake(
        "p_unchecked",
        "you do not check p: it must be above 0 and at most 1",
        "Nothing fails.",
        "p = 90 instead of 0.9 keeps everything, and nobody notices.",
        AT,
        (
            {"accept": lambda p: None},
            {"accept": lambda p: _accept_p(min(p, 1))},
            {"accept": lambda p: _accept_p(p or 1)},
            {"accept": lambda p: _accept_p(abs(p))},
            {"accept": lambda p: _accept_p(p if p > 0 else 1)},
        ),
    ),
    *SPREADING,
)
