"""Whether numbers agree to the precision of their dtype, and whether two candidates showed the same thing."""

import math
import re
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.adapter import Reply
from transformer_lessons.checks.old.core import Probe

__all__ = ["agree", "alike", "deviation", "outcome", "too_much"]

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}


def deviation(got: Tensor, want: Tensor) -> tuple[float, tuple[int, ...]] | None:
    """The largest deviation and its index, or None where all agree to the precision of the coarser dtype."""
    if not want.numel():
        return None
    if got.dtype == want.dtype and torch.equal(got, want):  # a recognised mistake's numbers mostly are
        return None
    tolerance = max(TOLERANCE.get(got.dtype, 0.0), TOLERANCE.get(want.dtype, 0.0))
    a, b = got.to(torch.float64), want.to(torch.float64)
    largest, scale = (a - b).abs().max().item(), b.abs().max().item()
    if largest <= tolerance * max(1.0, scale) < math.inf:
        return None
    return _deviation_in_full(a, b, tolerance)


def _deviation_in_full(a: Tensor, b: Tensor, tolerance: float) -> tuple[float, tuple[int, ...]] | None:
    """The same where NaN and infinity may be among the numbers: they deviate from all but themselves."""
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs()).nan_to_num(math.inf, math.inf)
    largest, finite = gap.max().item(), b[b.isfinite()].abs()
    if largest <= tolerance * max(1.0, finite.max().item() if finite.numel() else 1.0):
        return None
    place, index = int(gap.argmax()), []
    for size in reversed(gap.shape):  # torch.unravel_index would import sympy, which takes seconds
        place, last = divmod(place, size)
        index.append(last)
    return largest, tuple(reversed(index))


def agree(probe: Probe, a: Reply, b: Reply) -> bool:
    """Whether two candidates showed the same thing, wrong or right: how a mistake is recognised."""
    if probe.refused:
        return outcome(a) == outcome(b)
    if a.error or b.error:
        return _signature(a) == _signature(b)
    same = (a.kind, a.mutated, a.reseeded, a.attached) == (b.kind, b.mutated, b.reseeded, b.attached)
    backward = alike(a.gradients, b.gradients) and alike(a.parameters, b.parameters)
    return same and backward and _too_much(probe, a) == _too_much(probe, b) and alike(a.value, b.value)


def too_much(kind: str, got: Reply, enough: dict[str, int]) -> bool:
    """Whether more bytes were used than one and a half times enough: room for other ways to write it."""
    return got.memory[kind] > 1.5 * enough[kind]


def _too_much(probe: Probe, reply: Reply) -> list[str]:
    """Of what too much was used. The bytes themselves differ between any two programs."""
    return [kind for kind in probe.enough if too_much(kind, reply, probe.enough)]


def outcome(reply: Reply) -> str:
    """How a call with bad arguments ended: only ValueError is a refusal."""
    if not reply.error:
        return "accepted"
    return {"ValueError": "refused", "AssertionError": "asserted"}.get(reply.error["type"], "crashed")


def _signature(reply: Reply) -> tuple[str, str] | None:
    """Two errors are the same one if type and message are, whatever the function's name."""
    if reply.error is None:
        return None
    return reply.error["type"], re.sub(r"^[\w.<>]+\(\)", "f()", reply.error["message"])


def alike(a: Any, b: Any) -> bool:
    """Whether two plain values are the same, tensors to the precision of their dtype."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and deviation(a, b) is None
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    return type(a) is type(b) and not isinstance(a, Tensor) and a == b
