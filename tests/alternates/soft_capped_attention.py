"""Soft-capped attention in other words."""

import torch


def refuse(cap):
    if not cap > 0:
        raise ValueError("cap must be positive")


def masked_with_where(query, key, value, cap, mask=None):
    refuse(cap)
    scores = cap * ((query @ key.mT) / (cap * query.size(-1) ** 0.5)).tanh()
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1) * mask
    return weights @ value, weights


def by_sigmoid(query, key, value, cap, mask=None):
    """tanh(x) = 2σ(2x) − 1"""
    refuse(cap)
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5
    scores = cap * (2 * torch.sigmoid(2 * scores / cap) - 1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e30)
    weights = scores.softmax(-1)
    weights = weights if mask is None else weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def own_softmax(query, key, value, cap, mask=None):
    """Exponentials below the largest score that is seen."""
    refuse(cap)
    scores = cap * torch.tanh(query @ key.transpose(-2, -1) / query.size(-1) ** 0.5 / cap)
    shown = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    highest = scores.detach().masked_fill(~shown, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    raised = (scores - highest).masked_fill(~shown, -float("inf")).exp()
    total = raised.sum(-1, keepdim=True)
    weights = raised / total.masked_fill(total == 0, 1.0)
    return weights @ value, weights


ALTERNATES = [masked_with_where, by_sigmoid, own_softmax]
