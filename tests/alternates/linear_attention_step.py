"""One step of linear attention in other words."""

import torch
import torch.nn.functional as F


def refuse(decay):
    if decay <= 0 or decay > 1:
        raise ValueError("decay")


def by_matrices(query, key, value, S=None, z=None, *, decay=1.0):
    refuse(decay)
    q, k = F.elu(query).add(1).unsqueeze(-2), F.elu(key).add(1).unsqueeze(-2)
    outer = k.mT @ value.unsqueeze(-2)
    S = outer if S is None else torch.addcmul(outer, S, S.new_tensor(decay))
    z = k.squeeze(-2) if z is None else z * decay + k.squeeze(-2)
    return ((q @ S) / (q @ z.unsqueeze(-1))).squeeze(-2), S, z


def by_einsum(query, key, value, S=None, z=None, *, decay=1.0):
    refuse(decay)
    q, k = (torch.where(x > 0, x + 1, x.exp()) for x in (query, key))
    if S is None:
        S, z = torch.zeros(*key.shape, value.shape[-1], dtype=key.dtype), torch.zeros_like(key)
    S = decay * S + torch.einsum("...f,...v->...fv", k, value)
    z = decay * z + k
    weights = q / torch.einsum("...f,...f->...", q, z)[..., None]
    return torch.einsum("...f,...fv->...v", weights, S), S, z


def one_table(query, key, value, S=None, z=None, *, decay=1.0):
    """S with z as its last column."""
    refuse(decay)
    q, k = F.elu(query) + 1, F.elu(key) + 1
    table = k[..., None] * torch.cat([value, torch.ones_like(value[..., :1])], -1)[..., None, :]
    if S is not None:
        table = table + decay * torch.cat([S, z[..., None]], -1)
    sums = (q[..., None] * table).sum(-2)
    return sums[..., :-1] / sums[..., -1:], table[..., :-1], table[..., -1]


ALTERNATES = [by_matrices, by_einsum, one_table]
