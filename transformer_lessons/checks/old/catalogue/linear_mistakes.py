"""Known wrong ways to write linear attention, each with what a learner should hear."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import CONTIGUOUS_ONLY
from transformer_lessons.checks.old.catalogue.linear_steps import (
    ON_ONE_SIDE,
    ONE_MISSING,
    Sums,
    other_features,
    past,
    raw,
    sums_of_all,
    sums_of_past,
)
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES"]

KERNEL, BRACKET, CAUSAL, FUNCTION = "#ch08-kernel", "#ch08-associativity", "#ch08-causal", "#ch08-function"
PADDING, WRONG = "#ch08-padding", "#ch08-wrong"


def _softmax_sums(mask_future: bool) -> Callable:
    def sums(q: Tensor, k: Tensor, v: Tensor) -> Sums:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        raised = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        if mask_future:
            raised = raised.tril(k.size(-2) - q.size(-2))
        return raised @ v, raised.sum(-1, keepdim=True)

    return sums


def _both(change: Callable) -> dict[str, Callable]:
    """The same change with and without a causal mask."""
    return {"sums": change(sums_of_all), "causal_sums": change(sums_of_past)}


def _undivided(sums: Callable) -> Callable:
    def changed(q: Tensor, k: Tensor, v: Tensor) -> Sums:
        numerator, divisor = sums(q, k, v)
        return numerator, torch.ones_like(divisor)

    return changed


def _by_count(sums: Callable) -> Callable:
    def changed(q: Tensor, k: Tensor, v: Tensor) -> Sums:
        numerator, divisor = sums(q, k, v)
        return numerator, torch.full_like(divisor, k.size(-2))

    return changed


def _without_query(sums: Callable) -> Callable:
    """The sum of all features of the keys, without the query's."""

    def changed(q: Tensor, k: Tensor, v: Tensor) -> Sums:
        numerator, _ = sums(q, k, v)
        _, divisor = sums(torch.ones_like(q), k, v)
        return numerator, divisor

    return changed


def _divisor_over_all(q: Tensor, k: Tensor, v: Tensor) -> Sums:
    return sums_of_past(q, k, v)[0], sums_of_all(q, k, v)[1]


def _masked_summary(q: Tensor, k: Tensor, v: Tensor) -> Sums:
    return q @ (k.transpose(-2, -1) @ v).tril(), q @ k.sum(-2)[..., None]


def _tril(offset: Callable) -> Callable:
    def sums(q: Tensor, k: Tensor, v: Tensor) -> Sums:
        weights = past(q, k, offset(k.size(-2) - q.size(-2)))
        return weights @ v, weights.sum(-1, keepdim=True)

    return sums


def _triu(q: Tensor, k: Tensor, v: Tensor) -> Sums:
    weights = (q @ k.transpose(-2, -1)).triu(k.size(-2) - q.size(-2))
    return weights @ v, weights.sum(-1, keepdim=True)


def _with_weights(q: Tensor, k: Tensor, v: Tensor) -> Sums:
    weights = q @ k.transpose(-2, -1)
    return weights @ v, weights.sum(-1, keepdim=True)


def _zeroed(key: bool, value: bool) -> Callable:
    def change(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is None:
            return k, v
        hidden = ~mask[..., None]
        return (k.masked_fill(hidden, 0.0) if key else k), (v.masked_fill(hidden, 0.0) if value else v)

    return change


def _filled(number: float) -> Callable:
    """As scores are masked."""

    def change(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return (k if mask is None else k.masked_fill(~mask[..., None], number)), v

    return change


def _not_hidden(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return k, v


def _edits_key(key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if mask is not None:
        key.masked_fill_(~mask[..., None], 0.0)
    return key, value


def _elu_by_where(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def _crash(*_: object) -> None:
    raise RuntimeError("masked_fill only supports boolean masks")


def _mask_crashes(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype is not torch.bool:
        _crash()


def _lengths_crash(query: Tensor, key: Tensor) -> None:
    if key.size(-2) < query.size(-2):
        _crash()


def _clamped(least: float) -> Callable:
    return lambda numerator, divisor: numerator / divisor.clamp(min=least)


def _clamped_past(least: float) -> Callable:
    def sums(q: Tensor, k: Tensor, v: Tensor) -> Sums:
        numerator, divisor = sums_of_past(q, k, v)
        return numerator, divisor.clamp(min=least)

    return sums


def _row_by_sentence(mask: Tensor | None) -> Tensor | None:
    return mask if mask is None or mask.dim() == 1 else mask.reshape(-1, 1, mask.size(-1))


def _two_axes_by_sentence(mask: Tensor | None) -> Tensor | None:
    return mask[:, None] if mask is not None and mask.dim() == 2 else mask


def _multiplied(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Hidden as usual; where the shapes do not fit, the error names them in another order than a fill's."""
    return (k if mask is None else k * mask[..., None]), v


def _plus(epsilon: float) -> dict[str, Callable]:
    return {"divide": lambda numerator, divisor: numerator / (divisor + epsilon)}


MISTAKES = (
    Mistake(
        "softmax",
        "this is softmax attention; the similarity here is φ(q)·φ(k), not an exponential",
        "It is the attention one knows.",
        "Outputs differ, and every pair of positions needs a score.",
        KERNEL,
        (
            {
                "query_phi": raw,
                "key_phi": raw,
                "sums": _softmax_sums(False),
                "causal_sums": _softmax_sums(True),
            },
        ),
    ),
    Mistake(
        "no_features",
        "you use queries and keys as they are, without the feature map φ",
        "Moving the bracket is the point of it, so φ is forgotten.",
        "Some weights are negative, and a divisor near zero makes outputs enormous.",
        WRONG,
        ({"query_phi": raw, "key_phi": raw},),
    ),
    CONTIGUOUS_ONLY,
    ON_ONE_SIDE,
    ONE_MISSING,
    other_features(lambda x: F.relu(x) + 1, lambda x: x.softmax(-1), torch.square),
    Mistake(
        "scaled",
        "you divide queries or keys by √d_k; there is no such factor in (8.1) with φ",
        "It is carried over from softmax attention.",
        "φ bends at zero, so it is not indifferent to the size of its input.",
        KERNEL,
        (
            {"query_phi": lambda x, phi: phi(x / math.sqrt(x.size(-1)))},
            {"key_phi": lambda x, phi: phi(x / math.sqrt(x.size(-1)))},
            {
                "query_phi": lambda x, phi: phi(x / x.size(-1) ** 0.25),
                "key_phi": lambda x, phi: phi(x / x.size(-1) ** 0.25),
            },
        ),
    ),
    Mistake(
        "not_divided",
        "you left out the division by the sum of the weights",
        "φ(Q)(φ(K)ᵀV) looks complete.",
        "Outputs are sums, not averages: they grow with the number of keys.",
        WRONG,
        (_both(_undivided),),
    ),
    Mistake(
        "divided_by_count",
        "you divide by the number of keys; the sum of the weights is what makes an average",
        "An average divides by a count.",
        "Where all values agree, the output is not that value.",
        KERNEL,
        (_both(_by_count),),
    ),
    Mistake(
        "divided_without_query",
        "you divide by the sum of the keys' features alone; each query's features weight that sum",
        "φ(q) stands in both numerator and divisor, so it is cancelled like a number.",
        "φ(q) is a vector: it does not cancel.",
        BRACKET,
        (_both(_without_query),),
    ),
    Mistake(
        "causal_ignored",
        "you never use is_causal",
        "There are no weights to put a mask on.",
        "Later keys are seen.",
        CAUSAL,
        ({"causal": lambda is_causal: False},),
    ),
    Mistake(
        "always_causal",
        "you always hide later keys, whatever is_causal is",
        "Most linear attentions are used for generation.",
        "Without is_causal, too much is hidden.",
        CAUSAL,
        ({"causal": lambda is_causal: True},),
    ),
    Mistake(
        "divisor_over_all",
        "with is_causal the numerator sums over the past, but your divisor over all keys",
        "The running sum was put in one of two places.",
        "Later keys leak through the divisor, and the first outputs are much too small.",
        WRONG,
        ({"causal_sums": _divisor_over_all},),
    ),
    Mistake(
        "summary_masked",
        "you put the causal mask on φ(K)ᵀV, whose axes are features, not positions",
        "It is the only matrix there is before the second product.",
        "Half of the summary is deleted, and no word is hidden from anybody.",
        WRONG,
        ({"causal_sums": _masked_summary},),
    ),
    Mistake(
        "hides_itself",
        "with is_causal a position does not see itself; it may",
        "The output is read before the new key is added.",
        "The first query sees nothing.",
        CAUSAL,
        ({"causal_sums": _tril(lambda offset: offset - 1)},),
    ),
    Mistake(
        "future_only",
        "with is_causal you keep the upper triangle: the future is seen, not the past",
        "triu and tril are easily swapped.",
        "The last query sees itself only.",
        CAUSAL,
        ({"causal_sums": _triu},),
    ),
    Mistake(
        "first_to_first",
        "with more keys than queries you align the first query with the first key",
        "tril() does so, and running sums over all keys that are cut to the queries' length.",
        "In decoding, the newest query sees the oldest key only.",
        FUNCTION,
        ({"causal_sums": _tril(lambda offset: 0)},),
    ),
    Mistake(
        "key_mask_ignored",
        "you never use key_mask",
        "There are no scores to fill.",
        "Padding is averaged in.",
        PADDING,
        ({"read": lambda mask: None},),
    ),
    Mistake(
        "key_mask_by_sentence",
        "you take key_mask for one row per sentence; it broadcasts to (…, keys), so each head may have its own",
        "Padding has one row per sentence.",
        "A mask of (heads, keys) meets the batch, or does not fit.",
        PADDING,
        (
            {"read": _row_by_sentence},
            {"read": _two_axes_by_sentence},
            {"read": _row_by_sentence, "hide": _multiplied},
            {"read": _two_axes_by_sentence, "hide": _multiplied},
        ),
    ),
    Mistake(
        "key_mask_inverted",
        "you read key_mask the wrong way round: True means “may attend”",
        "Elsewhere True marks padding.",
        "Only padding is seen.",
        PADDING,
        ({"read": lambda mask: None if mask is None else ~mask},),
    ),
    Mistake(
        "masked_before_features",
        "you set hidden keys to zero before φ: φ(0) = 1 is a key like any other",
        "Zero looks like nothing.",
        "Padding counts in the divisor (and its values in the numerator).",
        PADDING,
        (
            {"early": _zeroed(True, False), "hide": _not_hidden},
            {"early": _zeroed(True, True), "hide": _not_hidden},
        ),
    ),
    Mistake(
        "values_masked",
        "you hide the values only: the hidden keys still count in the divisor",
        "What is averaged seems to be what has to be hidden.",
        "The more padding, the smaller the output.",
        PADDING,
        ({"early": _zeroed(False, True), "hide": _not_hidden}, {"hide": _zeroed(False, True)}),
    ),
    Mistake(
        "features_filled",
        "you fill hidden keys' features with a large negative number; there is no softmax that makes zero of it",
        "Scores are masked so.",
        "Hidden keys dominate everything.",
        PADDING,
        tuple({"hide": _filled(x)} for x in (-1e9, -math.inf)),
    ),
    Mistake(
        "key_edited",
        "you set hidden keys to zero in the caller's tensor, and before φ, where zero is no nothing",
        "key[~mask] = 0 and masked_fill_ write into the tensor itself.",
        "The caller's keys are changed, and padding counts.",
        PADDING,
        ({"early": _edits_key, "hide": _not_hidden},),
    ),
    Mistake(
        "epsilon_in_divisor",
        "you add a small constant to the divisor: outputs are all a little too small",
        "A division by zero is feared.",
        "Off in the sixth digit or so; values of 1 are not averaged to 1.",
        FUNCTION,
        (
            *(
                _plus(x)
                for x in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15, 1e-16, 1e-18, 1e-20)
            ),
            {"divide": lambda numerator, divisor: numerator / (divisor + torch.finfo(divisor.dtype).eps)},
        ),
    ),
    Mistake(
        "divisor_clamped",
        "you raise small divisors to a constant; only a divisor of exactly zero needs another number",
        "clamp(min=1e-6) avoids the division by zero as well.",
        "Where all features are small, outputs shrink towards zero.",
        FUNCTION,
        (
            *({"divide": _clamped(x)} for x in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15, 1e-16)),
            {"divide": lambda n, divisor: n / divisor.clamp(min=torch.finfo(divisor.dtype).eps)},
            *({"causal_sums": _clamped_past(x)} for x in (1e-6, 1e-8, 1e-10, 1e-12)),
        ),
    ),
    Mistake(
        "empty_rows_nan",
        "a query that sees no key becomes NaN",
        "Nothing by nothing is 0/0.",
        "One such row makes the loss NaN.",
        FUNCTION,
        ({"divide": lambda numerator, divisor: numerator / divisor},),
    ),
    Mistake(
        "divisor_detached",
        "you take the divisor without its gradient",
        ".detach() was put around what looks like a constant.",
        "Outputs are right; gradients of query and key are not.",
        BRACKET,
        ({"divisor": Tensor.detach},),
    ),
    Mistake(
        "squeezed",
        "you squeeze axes of size one away; they belong to the shape, as any other size",
        "squeeze() removes an axis that was added on the way, and whatever else has size one.",
        "A batch of one sentence, or a single query, comes back with too few axes.",
        FUNCTION,
        ({"result": lambda output: output.squeeze()}, {"result": lambda output: output.squeeze(0)}),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad, detach(), .data or numpy is somewhere on the way.",
        "Training leaves everything before this layer as it was.",
        BRACKET,
        ({"inputs": lambda *inputs: tuple(x.detach() for x in inputs)},),
    ),
    Mistake(
        "gradient_overflows",
        "your φ takes the exponential of large numbers, even if it does not use it: its gradient is NaN there",
        "torch.where computes both sides, and infinity times zero is no zero.",
        "Outputs are right, and training dies at the first large entry.",
        KERNEL,
        ({"phi": _elu_by_where},),
    ),
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the inputs are",
        "The sums should be kept in float32 at least.",
        "float64 loses half its digits.",
        FUNCTION,
        (
            {"inputs": lambda *inputs: tuple(x.float() for x in inputs)},
            {"result": lambda output: output.float()},
        ),
    ),
    Mistake(
        "weights_made",
        "you make all queries × keys weights; move the bracket, and they are never needed",
        "It is right, and how attention is usually written.",
        "Time and memory grow with the square of the length.",
        BRACKET,
        ({"sums": _with_weights},),
    ),
    Mistake(
        "mask_type_unchecked",
        "you do not refuse a key_mask that is not boolean",
        "0 and 1 work in a product.",
        "~ of integers is something else, and 1 could mean “hidden”, too.",
        FUNCTION,
        (
            {"accept_mask": _mask_crashes},
            {"accept_mask": lambda mask: True if mask is not None and mask.dtype is not torch.bool else None},
        ),
    ),
    Mistake(
        "lengths_unchecked",
        "with is_causal you do not refuse more queries than keys",
        "Slices and triangles work with negative numbers too.",
        "Some queries come before every key.",
        FUNCTION,
        (
            {"accept_lengths": _lengths_crash},
            {"accept_lengths": lambda q, k: True if k.size(-2) < q.size(-2) else None},
        ),
    ),
)
