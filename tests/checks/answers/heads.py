"""Heads, grouped queries, and linear attention."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.attention import scaled_dot_product_attention


def written_by_einsum(heads, weight):
    blocks = weight.view(len(weight), *heads.shape[1::2])
    return torch.einsum("bhqd,ohd->bhqo", heads, blocks)


def written_one_by_one(heads, weight):
    d_k, written = heads.size(-1), []
    for i in range(heads.size(1)):
        written.append(heads[:, i] @ weight[:, i * d_k : (i + 1) * d_k].T)
    return torch.stack(written, dim=1)


def written_by_a_wide_head(heads, weight):
    """Each head side by side with zeros in the others' places."""
    h = heads.size(1)
    alone = [heads * torch.eye(h)[i].view(1, h, 1, 1) for i in range(h)]
    return torch.stack([F.linear(x.permute(0, 2, 1, 3).flatten(2), weight) for x in alone], 1)


def written_by_the_last_head_first(heads, weight):
    """A slip that is on no list."""
    return written_one_by_one(heads.flip(1), weight).flip(1)


def written_and_stacked_in_front(heads, weight):
    """The new axis comes first, and the view that follows only renames the axes."""
    return torch.stack(written_one_by_one(heads, weight).unbind(1)).view(*heads.shape[:3], -1)


def split_by_view(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class LastHeadFirst(nn.Module):
    """The heads are put side by side in the opposite order."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        projected = self.W_q(query), self.W_k(key), self.W_v(key if value is None else value)
        heads = [split_by_view(x, self.num_heads) for x in projected]
        return self.W_o(torch.cat(scaled_dot_product_attention(*heads, mask)[0].flip(1).unbind(1), dim=-1))


class TimesTheRoot(LastHeadFirst):
    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        projected = self.W_q(query), self.W_k(key), self.W_v(key if value is None else value)
        q, k, v = (split_by_view(x, self.num_heads) for x in projected)
        heads, _ = scaled_dot_product_attention(q.size(-1) * q, k, v, mask)
        return self.W_o(heads.transpose(1, 2).flatten(-2))


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


def queries_dealt_out(query, key, value, mask=None):
    """Each group gets every g-th query head, and the output stays in that order."""
    order = torch.arange(query.size(1)).view(-1, key.size(1)).T.flatten()
    each = query.size(1) // key.size(1)
    shared = (x.repeat_interleave(each, dim=1) for x in (key, value))
    return scaled_dot_product_attention(query[:, order], *shared, mask)


def scaled_by_a_constant(query, key, value, mask=None):
    """A slip that is on no list."""
    return repeated(query / 3, key, value, mask)


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


def step_with_one_table(query, key, value, S=None, z=None, *, decay=1.0):
    """S with z as its last column."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    table = k[..., None] * torch.cat([value, torch.ones_like(value[..., :1])], -1)[..., None, :]
    if S is not None:
        table = table + decay * torch.cat([S, z[..., None]], -1)
    sums = (q[..., None] * table).sum(-2)
    return sums[..., :-1] / sums[..., -1:], table[..., :-1], table[..., -1]


def step_with_half_the_key(query, key, value, S=None, z=None, *, decay=1.0):
    """A slip that is on no list: z gets half of what it should."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    old = (0, 0) if S is None else (decay * S, decay * z)
    S, z = old[0] + k[..., None] * value[..., None, :], old[1] + k / 2
    return (q[..., None] * S).sum(-2) / (q * z).sum(-1, keepdim=True), S, z


RIGHT = {
    "written_by_heads": [written_by_einsum, written_one_by_one, written_by_a_wide_head],
    "grouped_query": [repeated, repeat_kv, an_axis_for_the_group, head_by_head],
    "linear_attention_step": [step_by_matrices, step_of_the_paper, step_with_one_table],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "written_by_heads": [
        (written_by_the_last_head_first, {"blocks"}, set()),
        (written_and_stacked_in_front, {"blocks"}, set()),
    ],
    "multi_head": [(TimesTheRoot, {"output"}, {"times_the_root"})],
    "grouped_query": [
        (last_group_first, {"sharing"}, set()),
        (scaled_by_a_constant, {"attention"}, set()),
        (queries_dealt_out, {"sharing", "attention"}, set()),
    ],
    "linear_attention_step": [(step_with_half_the_key, {"state", "decay"}, set())],
}
