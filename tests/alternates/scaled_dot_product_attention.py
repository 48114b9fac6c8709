"""Attention in other words. Each refuses masks that are not boolean, and gives rows without keys zeros."""

import math

import torch
import torch.nn.functional as F


def refuse(mask):
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError("a mask must be boolean")


def with_causal(mask, is_causal, queries, keys):
    if not is_causal:
        return mask
    rows = torch.arange(queries)[:, None] + keys - queries
    below = torch.arange(keys)[None, :] <= rows
    return below if mask is None else mask & below


def einsum(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    refuse(mask)
    mask = with_causal(mask, is_causal, query.shape[-2], key.shape[-2])
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e30)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights * mask
    return torch.einsum("...qk,...kd->...qd", F.dropout(weights, dropout), value), weights


def row_by_row(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """One query at a time."""
    refuse(mask)
    mask = with_causal(mask, is_causal, query.size(-2), key.size(-2))
    shape = (*query.shape[:-1], key.size(-2))
    full = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    rows = []
    for i in range(query.size(-2)):
        row = (key * query[..., i : i + 1, :]).sum(-1) / math.sqrt(query.size(-1))
        row = row.masked_fill(~full[..., i, :], torch.finfo(row.dtype).min).softmax(-1)
        rows.append(torch.where(full[..., i, :], row, torch.zeros_like(row)))
    weights = torch.stack(rows, dim=-2)
    return F.dropout(weights, dropout).matmul(value), weights


def key_by_key(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """Sums over keys in a Python loop, for the scores and for the average."""
    refuse(mask)
    keys = key.size(-2)
    mask = with_causal(mask, is_causal, query.size(-2), keys)
    scores = torch.stack([(query * key[..., j, None, :]).sum(-1) for j in range(keys)], -1)
    scores = scores / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0)
    dropped = F.dropout(weights, dropout)
    return sum(dropped[..., j, None] * value[..., j, None, :] for j in range(keys)), weights


def fused(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """The output by PyTorch's function, the weights by its trick of an identity for the values."""
    refuse(mask)
    mask = with_causal(mask, is_causal, query.size(-2), key.size(-2))
    eye = torch.eye(key.size(-2), dtype=value.dtype).expand(*value.shape[:-1], -1)
    if mask is not None:
        empty = ~mask.any(-1, keepdim=True)
        weights = F.scaled_dot_product_attention(query, key, eye, mask | empty).masked_fill(empty, 0.0)
    else:
        weights = F.scaled_dot_product_attention(query, key, eye)
    if dropout:
        return F.dropout(weights, dropout) @ value, weights
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value), weights
    return F.scaled_dot_product_attention(query, key, value, mask | empty).masked_fill(empty, 0.0), weights


def additive(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """−inf added to the scores, with rows that would be all −inf left alone."""
    refuse(mask)
    mask = with_causal(mask, is_causal, query.size(-2), key.size(-2))
    scores = query @ key.mT / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(-1)
        return F.dropout(weights, dropout) @ value, weights
    empty = ~mask.any(-1, keepdim=True)
    bias = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~(mask | empty), -math.inf)
    weights = (scores + bias).softmax(-1) * (~empty)
    return F.dropout(weights, dropout) @ value, weights


def filled_and_repaired(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """masked_fill with −inf stops the NaN gradient of an empty row, so nan_to_num is enough after it."""
    refuse(mask)
    mask = with_causal(mask, is_causal, query.size(-2), key.size(-2))
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf"))
    weights = torch.nan_to_num(scores.softmax(-1), nan=0.0)
    return F.dropout(weights, dropout) @ value, weights


def where(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    refuse(mask)
    mask = with_causal(mask, is_causal, query.size(-2), key.size(-2))
    scores = torch.matmul(query, key.swapaxes(-1, -2)).div(query.size(-1) ** 0.5)
    if mask is not None:
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def baddbmm(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """All leading axes flattened to one batch axis."""
    refuse(mask)
    *lead, queries, d_k = query.shape
    keys = key.size(-2)
    mask = with_causal(mask, is_causal, queries, keys)
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    shape = (*lead, queries, keys)
    bias = torch.zeros(shape, dtype=query.dtype)
    if mask is not None:
        bias = bias.masked_fill(~mask, torch.finfo(query.dtype).min / 2)
    weights = torch.baddbmm(bias.reshape(-1, queries, keys), q, k.mT, alpha=d_k**-0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask.expand(shape).reshape(-1, queries, keys)
    output = torch.bmm(F.dropout(weights, dropout), v)
    return output.reshape(*lead, queries, -1), weights.reshape(shape)


def chunked(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """Two queries at a time, as one would to save memory."""
    refuse(mask)
    queries, keys = query.size(-2), key.size(-2)
    mask = with_causal(mask, is_causal, queries, keys)
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], queries, keys)
    parts = []
    for start in range(0, queries, 2):
        part = None if mask is None else mask[..., start : start + 2, :]
        parts.append(where(query[..., start : start + 2, :], key, value, part, dropout=dropout))
    outputs, weights = zip(*parts, strict=True)
    return torch.cat(outputs, -2), torch.cat(weights, -2)


def logsumexp(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """softmax(x) = exp(x − logsumexp(x)); both roots of the scale go into query and key."""
    refuse(mask)
    mask = with_causal(mask, is_causal, query.size(-2), key.size(-2))
    root = query.size(-1) ** -0.25
    scores = (query * root) @ (key * root).transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def own_dropout(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """Dropout by hand: it draws other random numbers than F.dropout."""
    output, weights = where(query, key, value, mask, is_causal=is_causal)
    if dropout == 0.0:
        return output, weights
    kept = torch.rand(weights.shape) > dropout
    return (weights * kept / (1 - dropout)) @ value, weights


def subtract_maximum(Q, K, V, attend_to=None, *, is_causal=False, dropout=0):
    """The softmax in its three steps, with other names for the arguments."""
    refuse(attend_to)
    attend_to = with_causal(attend_to, is_causal, Q.size(-2), K.size(-2))
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.size(-1))
    if attend_to is None:
        attend_to = torch.ones(scores.shape[-2:], dtype=torch.bool)
    top = scores.masked_fill(~attend_to, -math.inf).amax(-1, keepdim=True).clamp(min=-1e30)
    raised = torch.where(attend_to, (scores - top).clamp(max=0), 0.0).exp() * attend_to
    weights = raised / raised.sum(-1, keepdim=True).clamp(min=1e-300 if Q.dtype == torch.float64 else 1e-30)
    return F.dropout(weights, dropout) @ V, weights


ALTERNATES = [
    einsum,
    row_by_row,
    key_by_key,
    fused,
    additive,
    filled_and_repaired,
    where,
    baddbmm,
    chunked,
    logsumexp,
    own_dropout,
    subtract_maximum,
]
