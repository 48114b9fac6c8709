"""Multi-head attention taken apart into the steps in which people make mistakes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Steps", "accept_heads", "assemble", "defaults"]


def accept_heads(d_model: int, num_heads: int) -> None:
    """Refuses what cannot be cut into heads."""
    if num_heads < 1 or d_model % num_heads:
        raise ValueError("num_heads: expected a divisor of d_model")


def _accept_inputs(key: Tensor | None, value: Tensor | None) -> None:
    if key is None and value is not None:
        raise ValueError("key: expected the keys of these values")


def _fits(d_model: int, *inputs: Tensor) -> None:
    if any(x.size(-1) != d_model for x in inputs):
        raise ValueError("inputs: expected d_model features")


def defaults(query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Keys are the query and values the keys, unless given."""
    key = query if key is None else key
    return query, key, key if value is None else value


def _project(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return module.W_q(query), module.W_k(key), module.W_v(value)


def _split(x: Tensor, h: int, length: int, d_k: int) -> Tensor:
    return x.reshape(x.size(0), length, h, d_k).transpose(1, 2)


def _scores(q: Tensor, keys: Tensor) -> Tensor:
    return q @ keys / math.sqrt(q.size(-1))


def _hide(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def _clear(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = accept_heads
    linear: Callable = nn.Linear
    accept_inputs: Callable = _accept_inputs
    inputs: Callable = defaults
    fits: Callable = _fits
    heads: Callable = lambda h: h
    read: Callable = lambda mask: mask  # what the mask is taken to mean
    recall: Callable = lambda module, mask: mask  # which mask is used, of this and earlier calls
    project: Callable = _project
    lengths: Callable = lambda x, h, query: (x.size(1), -1)  # and the width of a head
    split: Callable = _split
    turn: Callable = lambda k: k.transpose(2, 3)  # the keys, to meet the queries
    scores: Callable = _scores
    hide: Callable = _hide
    softmax: Callable = lambda scores: scores.softmax(-1)
    clear: Callable = _clear  # so that a row without keys is zero
    merge: Callable = lambda heads: heads.transpose(1, 2).flatten(2)
    out: Callable = lambda module, merged: module.W_o(merged)
    output: Callable = lambda output, query: output
    shown: Callable = lambda weights: weights
    result: Callable = lambda output, weights, need_weights: (output, weights) if need_weights else output


def assemble(steps: Steps) -> type[nn.Module]:
    """Multi-head attention in these steps."""

    class MultiHead(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            steps.accept(d_model, num_heads)
            self.W_q, self.W_k, self.W_v, self.W_o = (steps.linear(d_model, d_model) for _ in "qkvo")
            self.num_heads, self.d_model = num_heads, d_model

        def forward(self, query, key=None, value=None, mask=None, *, need_weights=False):
            steps.accept_inputs(key, value)
            query, key, value = steps.inputs(query, key, value)
            steps.fits(self.d_model, query, key, value)
            h, mask = steps.heads(self.num_heads), steps.recall(self, steps.read(mask))
            projected = steps.project(self, query, key, value)
            q, k, v = (steps.split(x, h, *steps.lengths(x, h, query)) for x in projected)
            scores = steps.scores(q, steps.turn(k))
            weights = steps.clear(steps.softmax(steps.hide(scores, mask)), mask)
            output = steps.output(steps.out(self, steps.merge(weights @ v)), query)
            return steps.result(output, steps.shown(weights), need_weights)

    return MultiHead
