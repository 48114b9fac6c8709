"""The label-smoothed loss in steps, which mistakes replace."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Steps", "assemble", "target"]


def _accept_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing < 1:
        raise ValueError("smoothing: expected 0 or more, below 1")


def _accept_pad(pad_id: int | None, classes: int) -> None:
    if pad_id is not None and not 0 <= pad_id < classes:
        raise ValueError("pad_id: expected a class")


def _widened(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _one_hot(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    return (targets[..., None] == torch.arange(classes)).to(dtype)


def _may_be_answer(classes: int, pad_id: int | None, dtype: torch.dtype) -> Tensor:
    """One for each class but padding."""
    allowed = torch.ones(classes, dtype=dtype)
    if pad_id is not None and pad_id < classes:
        allowed[pad_id] = 0
    return allowed


def target(right: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    """The softened target q of every position; `allowed` is one for each class but padding."""
    return (1 - smoothing) * right + smoothing * allowed / allowed.sum()


def _real(targets: Tensor, pad_id: int | None) -> Tensor:
    return torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    default: Callable = lambda: 0.1
    accept_smoothing: Callable = _accept_smoothing
    accept_pad: Callable = _accept_pad
    pad: Callable = lambda pad_id: pad_id
    prepare: Callable = lambda logits, targets, pad_id: (logits, targets)
    widen: Callable = _widened
    log_p: Callable = lambda logits, pad_id: logits.log_softmax(-1)
    allowed: Callable = _may_be_answer
    target: Callable = target
    loss: Callable = lambda q, log_p: -(q * log_p).sum(-1)
    real: Callable = _real  # positions that count in the sum
    counted: Callable = _real  # and in the number
    result: Callable = lambda total, tokens: (total, tokens)


def assemble(steps: Steps) -> Callable:
    """The loss in these steps."""

    default = steps.default()

    def label_smoothed_loss(logits, targets, *, pad_id, smoothing=default):
        steps.accept_smoothing(smoothing)
        steps.accept_pad(pad_id, logits.size(-1))
        pad_id = steps.pad(pad_id)
        logits, targets = steps.prepare(logits, targets, pad_id)
        log_p = steps.log_p(steps.widen(logits), pad_id)
        classes = log_p.size(-1)
        right = _one_hot(targets, classes, log_p.dtype)
        q = steps.target(right, steps.allowed(classes, pad_id, log_p.dtype), smoothing)
        each = steps.loss(q, log_p)
        total = each.masked_fill(~steps.real(targets, pad_id), 0.0).sum()
        return steps.result(total, steps.counted(targets, pad_id).sum())

    return label_smoothed_loss
