"""One step of attention with a windowed cache in other words."""

import torch
import torch.nn.functional as F


def refuse(window):
    if window is not None and window <= 0:
        raise ValueError("window")


def of_torch(query, key, value, keys, values, window=None):
    refuse(window)
    keys, values = torch.cat((keys, key), dim=-2), torch.cat((values, value), dim=-2)
    if window is not None:
        keys, values = keys[..., -window:, :], values[..., -window:, :]
    return F.scaled_dot_product_attention(query, keys, values), keys, values


def in_einsum(query, key, value, keys, values, window=None):
    """The old ones cut first, to window − 1."""
    refuse(window)
    seen = keys.size(-2)
    drop = 0 if window is None else max(0, seen + 1 - window)
    keys = torch.cat([keys.narrow(-2, drop, seen - drop), key], -2)
    values = torch.cat([values.narrow(-2, drop, seen - drop), value], -2)
    scores = torch.einsum("...qd,...kd->...qk", query, keys) * query.shape[-1] ** -0.5
    return torch.einsum("...qk,...kd->...qd", scores.softmax(-1), values), keys, values


def as_sums(query, key, value, keys, values, window=None):
    """Multiplications and sums, weights along the axis of positions."""
    refuse(window)
    first = 0 if window is None else max(keys.size(-2) + 1 - window, 0)
    keys = torch.cat([keys, key], -2)[..., first:, :]
    values = torch.cat([values, value], -2)[..., first:, :]
    scores = (query * keys).sum(-1, keepdim=True) / query.size(-1) ** 0.5
    weights = (scores - scores.amax(-2, keepdim=True)).exp()
    weights = weights / weights.sum(-2, keepdim=True)
    return (weights * values).sum(-2, keepdim=True), keys, values


ALTERNATES = [of_torch, in_einsum, as_sums]
