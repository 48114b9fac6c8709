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


def naive_exponential(query, key, value, cap, mask=None):
    """exp cannot overflow: no score exceeds the cap."""
    refuse(cap)
    scores = cap * torch.tanh(query @ key.transpose(-2, -1) / query.size(-1) ** 0.5 / cap)
    raised = scores.exp() if mask is None else scores.exp() * mask
    total = raised.sum(-1, keepdim=True)
    weights = raised / total.masked_fill(total == 0, 1.0)
    return weights @ value, weights


ALTERNATES = [masked_with_where, by_sigmoid, naive_exponential]
