"""Heads, grouped queries, and linear attention."""

import math

import torch
import torch.nn.functional as F

from transformer_lessons import variants
from transformer_lessons.attention import scaled_dot_product_attention


def split_by_view(x, num_heads):
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).permute(0, 2, 1, 3).contiguous()


def split_by_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def split_head_by_head(x, num_heads):
    d_k = x.size(-1) // num_heads
    return torch.cat([x[:, None, :, i * d_k : (i + 1) * d_k] for i in range(num_heads)], dim=1)


def split_backwards(x, num_heads):
    """A slip that is on no list: the last features first."""
    return torch.stack(x.chunk(num_heads, dim=-1)[::-1], dim=1)


def split_and_forgotten(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1)


def merged_by_view(x):
    batch, heads, length, d_k = x.shape
    return x.transpose(1, 2).contiguous().view(batch, length, heads * d_k)


def merged_by_cat(x):
    return torch.cat(x.unbind(1), dim=-1)


def merged_in_reverse(x):
    return torch.cat(x.flip(1).unbind(1), dim=-1)


def merged_through_numpy(x):
    return torch.tensor(x.detach().numpy().transpose(0, 2, 1, 3).reshape(len(x), x.size(2), -1))


def repeated(query, key, value, mask=None):
    each = query.size(1) // key.size(1)
    return scaled_dot_product_attention(
        query, key.repeat_interleave(each, 1), value.repeat_interleave(each, 1), mask
    )


def repeat_kv(query, key, value, attention_mask=None):
    """As Llama's code has it: expand and reshape."""

    def repeated(x, n_rep):
        batch, heads, length, d = x.shape
        return x[:, :, None].expand(batch, heads, n_rep, length, d).reshape(batch, heads * n_rep, length, d)

    n_rep = query.shape[1] // key.shape[1]
    key, value = repeated(key, n_rep), repeated(value, n_rep)
    weights = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
    if attention_mask is not None:
        weights = weights + torch.where(attention_mask, 0.0, torch.finfo(weights.dtype).min)
    weights = F.softmax(weights, dim=-1, dtype=torch.float32)
    return torch.matmul(weights, value), weights


def an_axis_for_the_group(query, key, value, mask=None):
    """No copies: queries are (batch, groups, members, …)."""
    q = query.unflatten(1, (key.size(1), -1))
    scores = torch.einsum("bgmqd,bgkd->bgmqk", q, key) / math.sqrt(q.size(-1))
    if mask is not None:
        whole = mask.expand(len(query), query.size(1), *scores.shape[-2:])
        scores = scores.masked_fill(~whole.unflatten(1, (key.size(1), -1)), -1e4)
    weights = scores.softmax(-1)
    return torch.einsum("bgmqk,bgkd->bgmqd", weights, value).flatten(1, 2), weights.flatten(1, 2)


def head_by_head(query, key, value, mask=None):
    each, found = query.size(1) // key.size(1), []
    for i in range(query.size(1)):
        own = None if mask is None else mask.expand(len(query), query.size(1), -1, -1)[:, i]
        found.append(scaled_dot_product_attention(query[:, i], key[:, i // each], value[:, i // each], own))
    return [torch.stack(part, dim=1) for part in zip(*found, strict=True)]


def last_group_first(query, key, value, mask=None):
    """A slip that is on no list."""
    return repeated(query, key.flip(1), value.flip(1), mask)


def tiled_and_unscaled(query, key, value, mask=None):
    each = query.size(1) // key.size(1)
    key, value = (torch.cat([x] * each, dim=1) for x in (key, value))
    return scaled_dot_product_attention(query * query.size(-1) ** 0.5, key, value, mask)


def zeros(*args, **options):
    return torch.zeros(2, 3)


RIGHT = {
    "split_heads": [split_by_view, split_by_chunks, split_head_by_head],
    "merge_heads": [merged_by_view, merged_by_cat],
    "grouped_query": [repeated, repeat_kv, an_axis_for_the_group, head_by_head],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "split_heads": [
        (split_backwards, {"features"}, set()),
        (split_and_forgotten, {"positions"}, {"not_exchanged"}),
        (zeros, {"positions", "features", "gradients"}, set()),
    ],
    "merge_heads": [
        (merged_in_reverse, {"features"}, set()),
        (merged_through_numpy, {"memory"}, {"detached"}),
        (zeros, {"positions", "features", "memory"}, set()),
    ],
    "grouped_query": [
        (last_group_first, {"sharing"}, set()),
        (tiled_and_unscaled, {"sharing", "attention"}, {"tiled", "no_scale"}),
        (zeros, {"sharing", "attention", "mask", "gradients"}, set()),
    ],
}
