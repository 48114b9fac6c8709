"""Fused attention in other words."""

import torch
import torch.nn.functional as F


def refuse(mask):
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError("mask")


def lower(query, key):
    rows = torch.arange(query.size(-2))[:, None] + key.size(-2) - query.size(-2)
    return torch.arange(key.size(-2)) <= rows


def blind_rows_see_all(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    refuse(mask)
    if is_causal and (mask is not None or query.size(-2) != key.size(-2)):
        mask = lower(query, key) if mask is None else torch.logical_and(mask, lower(query, key))
        is_causal = False
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=is_causal)
    sees = mask.any(-1, keepdim=True)
    output = F.scaled_dot_product_attention(query, key, value, mask | ~sees, dropout)
    return output * sees


def additive(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    refuse(mask)
    options = {"dropout_p": dropout}
    if is_causal and mask is None and query.shape[-2] == key.shape[-2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, **options)
    if is_causal:
        mask = lower(query, key) & (torch.tensor(True) if mask is None else mask)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, **options)
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    output = F.scaled_dot_product_attention(query, key, value, bias, **options)
    return torch.where(mask.any(-1)[..., None], output, torch.zeros((), dtype=output.dtype))


def own_scale_and_kernel(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """The kernel as it is: on a CPU, rows without keys come out zero already."""
    refuse(mask)
    if is_causal:
        if mask is None and query.size(-2) == key.size(-2):
            return F.scaled_dot_product_attention(query, key, value, None, dropout, True)
        mask = lower(query, key) if mask is None else mask & lower(query, key)
    scaled = query * query.size(-1) ** -0.5
    return F.scaled_dot_product_attention(scaled, key, value, mask, dropout, scale=1.0)


def by_rows(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    """No kernel: one query at a time, recomputed on the way back."""
    from torch.utils.checkpoint import checkpoint

    refuse(mask)
    queries, keys = query.size(-2), key.size(-2)
    outputs = []
    for row in range(queries):
        seen = None
        if mask is not None:
            seen = mask[..., row : row + 1, :] if mask.size(-2) > 1 else mask
        if is_causal:
            past = torch.arange(keys) <= row + keys - queries
            seen = past if seen is None else seen & past

        def one(q, k, v, seen=seen):
            scores = q @ k.mT / q.size(-1) ** 0.5
            if seen is None:
                weights = scores.softmax(-1)
            else:
                weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) * seen
            return F.dropout(weights, dropout) @ v

        outputs.append(checkpoint(one, query[..., row : row + 1, :], key, value, use_reentrant=False))
    return torch.cat(outputs, -2)


ALTERNATES = [blind_rows_see_all, additive, own_scale_and_kernel, by_rows]
