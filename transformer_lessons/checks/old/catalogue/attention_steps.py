"""Attention taken apart into the steps in which people make mistakes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Steps", "attend", "attend_capped", "cap_scores", "no_keyword", "triangle"]


def _accept(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError("mask: expected dtype torch.bool")


def _accept_cap(cap: float) -> None:
    if cap <= 0:
        raise ValueError("cap: expected a positive number")


def no_keyword(name: str) -> Callable:
    """What Python says, before anything else is looked at, to a keyword that a function does not have."""

    def refuse(value: bool | float) -> None:
        if value:
            raise TypeError(f"attention() got an unexpected keyword argument '{name}'")

    return refuse


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))


def cap_scores(scores: Tensor, cap: float, d_k: int = 0) -> Tensor:
    """Soft-capped scores, smoothly limited to −cap … cap."""
    return cap * torch.tanh(scores / cap)


def triangle(scores: Tensor, offset: int) -> Tensor:
    """True on and below the diagonal of the last two axes, shifted to the right by `offset`."""
    return torch.ones(scores.size(-2), scores.size(-1), dtype=torch.bool).tril(offset)


def _causal(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    if not is_causal:
        return mask
    below = triangle(scores, scores.size(-1) - scores.size(-2))
    return below if mask is None else mask & below


def _hide(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def _clear(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    is_causal: Callable = lambda value: None  # this and the next: whether there is such a keyword
    dropout: Callable = lambda value: None
    accept: Callable = _accept  # refuses a mask
    inputs: Callable = lambda query, key, value: (query, key, value)
    scores: Callable = _scores
    accept_cap: Callable = _accept_cap  # this and the next two for soft-capped attention only
    cap: Callable = cap_scores
    late: Callable = lambda masked, cap: masked
    read: Callable = lambda mask, scores: mask  # what the mask is taken to mean
    causal: Callable = _causal
    hide: Callable = _hide
    softmax: Callable = lambda scores: scores.softmax(-1)
    clear: Callable = _clear  # so that a row without keys is zero
    drop: Callable = F.dropout
    average: Callable = lambda weights, value: weights @ value
    result: Callable = lambda output, weights, scores, masked, dropped: (output, weights)


def attend(steps: Steps) -> Callable:
    """Scaled dot-product attention in these steps."""

    def attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
        steps.is_causal(is_causal), steps.dropout(dropout)
        steps.accept(mask)
        query, key, value = steps.inputs(query, key, value)
        scores = steps.scores(query, key)
        mask = steps.causal(steps.read(mask, scores), is_causal, scores)
        return _finish(steps, scores, steps.hide(scores, mask), mask, value, dropout)

    return attention


def attend_capped(steps: Steps) -> Callable:
    """Soft-capped attention in these steps."""

    def attention(query, key, value, cap, mask=None):
        steps.accept_cap(cap)
        query, key, value = steps.inputs(query, key, value)
        scores = steps.cap(steps.scores(query, key), cap, query.size(-1))
        mask = steps.read(mask, scores)
        return _finish(steps, scores, steps.late(steps.hide(scores, mask), cap), mask, value, 0.0)

    return attention


def _finish(steps: Steps, scores: Tensor, masked: Tensor, mask: Tensor | None, value: Tensor, dropout: float):
    weights = steps.clear(steps.softmax(masked), mask)
    dropped = steps.drop(weights, dropout)
    return steps.result(steps.average(dropped, value), weights, scores, masked, dropped)
