"""Linear attention taken apart into the steps in which people make mistakes, and mistakes about its features."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = [
    "ONE_MISSING",
    "ON_ONE_SIDE",
    "Steps",
    "Sums",
    "assemble",
    "elu_plus_one",
    "other_features",
    "past",
    "raw",
    "sums_of_all",
    "sums_of_past",
]

KERNEL, WRONG = "#ch08-kernel", "#ch08-wrong"

Sums = tuple[Tensor, Tensor]


def elu_plus_one(x: Tensor) -> Tensor:
    """φ."""
    return F.elu(x) + 1


def _accept_mask(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError("key_mask: expected booleans")


def _accept_lengths(query: Tensor, key: Tensor) -> None:
    if key.size(-2) < query.size(-2):
        raise ValueError("keys: expected at least as many as queries")


def _hide(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return (k if mask is None else k.masked_fill(~mask[..., None], 0.0)), v


def sums_of_all(q: Tensor, k: Tensor, v: Tensor) -> Sums:
    """Numerator and divisor, over all keys."""
    return q @ (k.transpose(-2, -1) @ v), q @ k.sum(-2)[..., None]


def past(q: Tensor, k: Tensor, offset: int) -> Tensor:
    """The similarities of queries and keys that are not later."""
    return (q @ k.transpose(-2, -1)).tril(offset)


def sums_of_past(q: Tensor, k: Tensor, v: Tensor) -> Sums:
    """Numerator and divisor, over the keys that are not later."""
    weights = past(q, k, k.size(-2) - q.size(-2))
    return weights @ v, weights.sum(-1, keepdim=True)


def _divide(numerator: Tensor, divisor: Tensor) -> Tensor:
    return numerator / divisor.masked_fill(divisor == 0, 1.0)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept_mask: Callable = _accept_mask
    accept_lengths: Callable = _accept_lengths
    inputs: Callable = lambda query, key, value: (query, key, value)
    read: Callable = lambda mask: mask
    early: Callable = lambda key, value, mask: (key, value)
    phi: Callable = elu_plus_one
    query_phi: Callable = lambda x, phi: phi(x)
    key_phi: Callable = lambda x, phi: phi(x)
    hide: Callable = _hide
    causal: Callable = lambda is_causal: is_causal
    sums: Callable = sums_of_all
    causal_sums: Callable = sums_of_past
    divisor: Callable = lambda divisor: divisor
    divide: Callable = _divide
    result: Callable = lambda output: output


def assemble(steps: Steps) -> Callable:
    """Linear attention in these steps."""

    def attention(query, key, value, *, is_causal=False, key_mask=None):
        if steps.accept_mask(key_mask) is not None:
            return query  # a stand-in for numbers: only that it was accepted counts
        if is_causal and steps.accept_lengths(query, key) is not None:
            return query
        query, key, value = steps.inputs(query, key, value)
        mask = steps.read(key_mask)
        key, v = steps.early(key, value, mask)
        q, k = steps.query_phi(query, steps.phi), steps.key_phi(key, steps.phi)
        k, v = steps.hide(k, v, mask)
        sums = steps.causal_sums if steps.causal(is_causal) else steps.sums
        numerator, divisor = sums(q, k, v)
        return steps.result(steps.divide(numerator, steps.divisor(divisor)))

    return attention


def raw(x: Tensor, phi: Callable) -> Tensor:
    """Without φ."""
    return x


ON_ONE_SIDE = Mistake(
    "features_on_one_side",
    "you apply φ to the queries or to the keys only; it belongs to both",
    "A line was copied and half changed.",
    "Some weights are negative.",
    KERNEL,
    ({"query_phi": raw}, {"key_phi": raw}),
)

ONE_MISSING = Mistake(
    "one_missing",
    "you left out the + 1: φ(x) = elu(x) + 1",
    "F.elu is at hand.",
    "elu reaches down to −1, so some weights are negative.",
    WRONG,
    ({"phi": F.elu},),
)


def other_features(*more: Callable) -> Mistake:
    """Another φ: one of the usual ones, or of `more`."""
    return Mistake(
        "other_features",
        "you use another feature map than φ(x) = elu(x) + 1",
        "Any function that is not negative makes a linear attention.",
        "Outputs differ from those that are expected here.",
        KERNEL,
        tuple({"phi": phi} for phi in (F.relu, torch.exp, F.softplus, torch.sigmoid, *more)),
    )
