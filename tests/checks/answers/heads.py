"""Heads, grouped queries, and linear attention."""

import math

import torch
import torch.nn.functional as F

from transformer_lessons import variants
from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention


def written_by_einsum(heads, weight):
    blocks = weight.view(len(weight), *heads.shape[1::2])
    return torch.einsum("bhqd,ohd->bhqo", heads, blocks)


def written_one_by_one(heads, weight):
    d_k, written = heads.size(-1), []
    for i in range(heads.size(1)):
        written.append(heads[:, i] @ weight[:, i * d_k : (i + 1) * d_k].T)
    return torch.stack(written, dim=1)


def written_by_the_last_head_first(heads, weight):
    """A slip that is on no list."""
    return written_one_by_one(heads.flip(1), weight).flip(1)


class TimesTheRoot(MultiHeadAttention):
    """A slip that is on no list."""

    @staticmethod
    def attention(q, k, v, mask=None, *, is_causal=False):
        return scaled_dot_product_attention(q.size(-1) * q, k, v, mask, is_causal=is_causal)


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


def last_group_first(query, key, value, mask=None):
    """A slip that is on no list."""
    return repeated(query, key.flip(1), value.flip(1), mask)


def scaled_by_a_constant(query, key, value, mask=None):
    """A slip that is on no list."""
    return repeated(query / 3, key, value, mask)


def linear_of_the_paper(queries, keys, values, is_causal=False, key_mask=None, eps=1e-6):
    """As the authors' own code has it: einsum, a small ε below; causal by running sums."""
    Q, K = F.elu(queries) + 1, F.elu(keys) + 1
    if key_mask is not None:
        K = K * key_mask.float()[..., None]
    if not is_causal:
        KV = torch.einsum("...sd,...sm->...md", K, values)
        Z = 1 / (torch.einsum("...ld,...d->...l", Q, K.sum(dim=-2)) + eps)
        return torch.einsum("...ld,...md,...l->...lm", Q, KV, Z)
    L = Q.size(-2)
    S = torch.einsum("...sd,...sm->...sdm", K, values).cumsum(-3)[..., -L:, :, :]
    Z = 1 / (torch.einsum("...ld,...ld->...l", Q, K.cumsum(-2)[..., -L:, :]) + eps)
    return torch.einsum("...ld,...ldm,...l->...lm", Q, S, Z)


def linear_word_by_word(query, key, value, *, is_causal=False, key_mask=None):
    k = F.elu(key) + 1
    if key_mask is not None:
        k = torch.where(key_mask[..., None], k, torch.zeros_like(k))
    S, z, states = 0, 0, []
    for t in range(key.size(-2)):
        S, z = S + k[..., t, :, None] * value[..., t, None, :], z + k[..., t, :]
        states.append((S, z))
    out, surplus = [], key.size(-2) - query.size(-2)
    for t in range(query.size(-2)):
        q, (S, z) = F.elu(query[..., t, :]) + 1, states[t + surplus if is_causal else -1]
        below = (q * z).sum(-1, keepdim=True)
        out.append((q[..., None] * S).sum(-2) / torch.where(below > 0, below, 1.0))
    return torch.stack(out, -2)


def linear_with_absolute_values(query, key, value, *, is_causal=False, key_mask=None):
    """A slip that is on no list: another φ."""
    phi = lambda x: x.abs() + 1  # noqa: E731
    return variants.linear_attention(
        query, key, value, feature_map=phi, is_causal=is_causal, key_mask=key_mask
    )


def step_by_matrices(query, key, value, S=None, z=None, decay=1.0):
    q, k = F.elu(query).add(1).unsqueeze(-2), F.elu(key).add(1).unsqueeze(-2)
    outer = k.transpose(-2, -1) @ value.unsqueeze(-2)
    S = outer if S is None else torch.addcmul(outer, S, S.new_tensor(decay))
    z = k.squeeze(-2) if z is None else z * decay + k.squeeze(-2)
    return ((q @ S) / (q @ z.unsqueeze(-1))).squeeze(-2), S, z


def step_of_the_paper(query, key, value, Si=None, Zi=None, decay=1.0, eps=1e-6):
    """As the authors' own code has it, with a small ε below."""
    Q, K = (torch.where(x > 0, x + 1, x.exp()) for x in (query, key))
    if Si is None:
        Si, Zi = torch.zeros(*key.shape, value.shape[-1]), torch.zeros_like(key)
    Si = decay * Si + torch.einsum("...d,...m->...dm", K, value)
    Zi = decay * Zi + K
    Z = 1 / (torch.einsum("...d,...d->...", Q, Zi) + eps)
    return [torch.einsum("...d,...dm,...->...m", Q, Si, Z), Si, Zi]


def step_with_half_the_key(query, key, value, S=None, z=None, *, decay=1.0):
    """A slip that is on no list: z gets half of what it should."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    old = (0, 0) if S is None else (decay * S, decay * z)
    S, z = old[0] + k[..., None] * value[..., None, :], old[1] + k / 2
    return (q[..., None] * S).sum(-2) / (q * z).sum(-1, keepdim=True), S, z


RIGHT = {
    "written_by_heads": [written_by_einsum, written_one_by_one],
    "grouped_query": [repeated, repeat_kv, an_axis_for_the_group],
    "linear_attention": [linear_of_the_paper, linear_word_by_word],
    "linear_attention_step": [step_by_matrices, step_of_the_paper],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "written_by_heads": [(written_by_the_last_head_first, {"blocks"}, set())],
    "multi_head": [(TimesTheRoot, {"output", "heads"}, set())],
    "grouped_query": [
        (last_group_first, {"sharing"}, set()),
        (scaled_by_a_constant, {"attention"}, set()),
    ],
    "linear_attention": [(linear_with_absolute_values, {"formula"}, set())],
    "linear_attention_step": [(step_with_half_the_key, {"state", "decay"}, set())],
}
