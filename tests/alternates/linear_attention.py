"""Linear attention in other words."""

import torch
import torch.nn.functional as F


def refuse(query, key, is_causal, key_mask):
    if key_mask is not None and key_mask.dtype != torch.bool:
        raise ValueError("key_mask")
    if is_causal and query.shape[-2] > key.shape[-2]:
        raise ValueError("lengths")


def phi(x):
    return torch.where(x > 0, x + 1, x.clamp(max=0.0).exp())


def by_running_sums(query, key, value, *, is_causal=False, key_mask=None):
    refuse(query, key, is_causal, key_mask)
    q, k = phi(query), phi(key)
    if key_mask is not None:
        k = k * key_mask.unsqueeze(-1)
    if is_causal:
        outer = (k[..., :, None] * value[..., None, :]).cumsum(-3)[..., -q.size(-2) :, :, :]
        numerator = torch.einsum("...qf,...qfv->...qv", q, outer)
        divisor = (q * k.cumsum(-2)[..., -q.size(-2) :, :]).sum(-1, keepdim=True)
    else:
        numerator = q @ torch.einsum("...kf,...kv->...fv", k, value)
        divisor = torch.einsum("...qf,...f->...q", q, k.sum(-2)).unsqueeze(-1)
    return numerator / torch.where(divisor == 0, torch.ones_like(divisor), divisor)


def with_a_column_of_ones(query, key, value, *, is_causal=False, key_mask=None):
    refuse(query, key, is_causal, key_mask)
    q, k = F.elu(query) + 1, F.elu(key) + 1
    v = torch.cat([torch.ones_like(value[..., :1]), value], -1)
    if key_mask is not None:
        v = v.masked_fill(~key_mask[..., None], 0.0)
    sums = (q @ k.mT).tril(k.size(-2) - q.size(-2)) @ v if is_causal else q @ (k.mT @ v)
    return sums[..., 1:] / sums[..., :1].masked_fill(sums[..., :1] == 0, 1)


def position_by_position(query, key, value, *, is_causal=False, key_mask=None):
    """A state that grows key by key, read query by query."""
    refuse(query, key, is_causal, key_mask)
    q, k = F.elu(query).add(1), F.elu(key).add(1)
    if key_mask is not None:
        k = torch.where(key_mask[..., None], k, 0.0)
    if not is_causal:
        S, z = k.mT @ value, k.sum(-2, keepdim=True).mT
        return (q @ S) / (q @ z).clamp(min=1e-300)
    S, z, rows = 0.0, 0.0, []
    first = k.size(-2) - q.size(-2)
    for t in range(k.size(-2)):
        S = S + k[..., t, :, None] * value[..., t, None, :]
        z = z + k[..., t, :, None]
        if t >= first:
            row = q[..., t - first, None, :]
            total = row @ z
            rows.append(row @ S / total.masked_fill(total == 0, 1.0))
    return torch.cat(rows, -2)


ALTERNATES = [by_running_sums, with_a_column_of_ones, position_by_position]
