"""Attention and other parts that are written for their memory, and steps of training."""

import torch
import torch.nn.functional as F


def blind_rows_see_all(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    n, m = query.size(-2), key.size(-2)
    if is_causal and (mask is not None or n != m):
        lower = torch.arange(m) <= torch.arange(n)[:, None] + m - n
        mask = lower if mask is None else torch.logical_and(mask, lower)
        is_causal = False
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=is_causal)
    sees = mask.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, mask | ~sees, dropout) * sees


def added_bias(query, key, value, mask=None, *, is_causal=False):
    if is_causal and mask is None and query.shape[-2] == key.shape[-2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    if is_causal:
        lower = torch.ones(query.shape[-2], key.shape[-2]).tril(key.shape[-2] - query.shape[-2]).bool()
        mask = lower & (torch.tensor(True) if mask is None else mask)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    output = F.scaled_dot_product_attention(query, key, value, bias)
    return torch.where(mask.any(-1)[..., None], output, torch.zeros(()))


def own_scale(query, key, value, mask=None, *, is_causal=False):
    """The kernel as it is: on a CPU, rows without keys come out zero already."""
    if is_causal and mask is None and query.size(-2) == key.size(-2):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    if is_causal:
        lower = torch.ones(query.size(-2), key.size(-2)).tril(key.size(-2) - query.size(-2)).bool()
        mask = lower if mask is None else mask & lower
    return F.scaled_dot_product_attention(query * query.size(-1) ** -0.5, key, value, mask, scale=1.0)


def step_by_step(query, key, value, mask=None, *, is_causal=False):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    if is_causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1 + key.size(-2) - query.size(-2))
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ value


def handed_on(query, key, value, mask=None, *, is_causal=False):
    """Two slips in one: the kernel's flag aligns the first with the first, and it refuses both."""
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal)


def scaled_by_another_root(query, key, value, mask=None, *, is_causal=False):
    """A slip that is on no list."""
    return own_scale(query / query.size(-1) ** 0.25, key, value, mask, is_causal=is_causal)


def zeros_of_attention(query, key, value, mask=None, *, is_causal=False):
    return torch.zeros(*query.shape[:-1], value.size(-1))


RIGHT = {"fused_attention": [blind_rows_see_all, added_bias, own_scale]}
WRONG = {
    "fused_attention": [
        (step_by_step, {"memory", "causal_memory"}, {"weights_built"}),
        (handed_on, {"causal", "more_keys"}, {"causal_and_mask"}),
        (scaled_by_another_root, {"values"}, set()),
        (
            zeros_of_attention,
            {"values", "mask", "causal", "more_keys", "memory", "causal_memory"},
            set(),
        ),
    ],
}
