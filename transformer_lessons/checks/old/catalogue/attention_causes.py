"""What is wrong with an implementation of attention: one question after another, from crashes to overflow.

A file of its own, since it is a test. What it must find is in `attention_test.WRONG`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["cause_of"]


class _CauseError(Exception):
    """What is wrong with an implementation."""


def _demand(holds: bool, cause: str) -> None:
    if not holds:
        raise _CauseError(cause)


def cause_of(attention: Callable) -> str | None:
    """What is wrong with an implementation, in one word; None if nothing is."""
    try:
        for question in (_called, _weighted, _masked, _emptied, _followed_back, _enlarged):
            question(attention)
    except _CauseError as error:
        return str(error)
    except Exception:
        return "crash"
    return None


def _inputs(scale: float = 1.0) -> list[Tensor]:
    """Queries of 5 positions, keys and values of 7; values are as wide as keys, so that one can be the other."""
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 3, 5, 3), (2, 3, 7, 3), (2, 3, 7, 3)
    query, key, value = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [scale * query, key, value]


MASK = (torch.arange(35).view(5, 7) % 3) > 0  # whose rows differ from its columns


def _expected(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    scores = query @ key.mT / math.sqrt(query.size(-1))
    shown = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    weights = scores.masked_fill(~shown, torch.finfo(scores.dtype).min).softmax(-1) * shown
    return weights @ value, weights


def _close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b, rtol=tolerance, atol=tolerance)


def _called(attention: Callable) -> None:
    """What it returns, and what it does to its arguments."""
    before = [*_inputs(), MASK]
    after = [x.clone() for x in before]
    output, weights = attention(*after)
    _demand(output.shape == (2, 3, 5, 3) and weights.shape == (2, 3, 5, 7), "crash")
    _demand(all(map(torch.equal, after, before)), "side_effects")
    _demand(output.dtype == weights.dtype == torch.float64, "dtype")


def _weighted(attention: Callable) -> None:
    (output, weights), want = attention(*_inputs()), _expected(*_inputs())
    if not _close(output, want[0]) and not _close(weights, want[1]):
        _demand(not _close(weights.sum(dim=-2), weights.new_ones(2, 3, 7)), "axis")
        raise _CauseError("scale")
    _demand(_close(weights, want[1]), "weights")
    _demand(_close(output, want[0]), "values")


def _masked(attention: Callable) -> None:
    (output, weights), want = attention(*_inputs(), MASK), _expected(*_inputs(), MASK)
    _demand(_close(output, want[0]), "mask")
    _demand(_close(weights, want[1]), "weights")


def _emptied(attention: Callable) -> None:
    mask = MASK & (torch.arange(5) != 2)[:, None]
    _demand(all(map(_close, attention(*_inputs(), mask), _expected(*_inputs(), mask))), "empty_rows")


def _followed_back(attention: Callable) -> None:
    slopes = []
    for function in (attention, _expected):
        inputs = [x.requires_grad_() for x in _inputs()]
        results = function(*[x.clone() for x in inputs])
        _demand(all(result.requires_grad for result in results), "gradients")
        sums = [result.pow(3).sum() for result in results]
        slopes.append([*torch.autograd.grad(sums[0], inputs, retain_graph=True, allow_unused=True)])
        slopes[-1] += torch.autograd.grad(sums[1], inputs[:2], allow_unused=True)
    _demand(all(a is not None and _close(a, b) for a, b in zip(*slopes, strict=True)), "gradients")


def _enlarged(attention: Callable) -> None:
    inputs = _inputs(scale=1e3)
    _demand(all(map(_close, attention(*inputs), _expected(*inputs))), "extremes")
