"""Scaled dot-product attention and multi-head attention."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def annotated(query, key, value, mask=None, dropout=None):
    """The form of the Annotated Transformer: a fill of −1e9."""
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


def minus_ten_thousand(query, key, value, mask=None):
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e4)
    weights = F.softmax(scores, -1)
    return weights @ value, weights


def infinite_with_care(query, key, value, mask=None):
    scores = torch.einsum("...qd,...kd->...qk", query, key) / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.nan_to_num(scores.softmax(-1))
    return torch.einsum("...qk,...kv->...qv", weights, value), weights


def scaled_first(query, key, value, mask=None):
    root = query.size(-1) ** 0.25
    scores = (query / root) @ (key / root).transpose(-1, -2)
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min
    weights = scores.softmax(-1)
    return [weights @ value, weights]


class WithoutBiases(nn.Module):
    """The form of Dive into Deep Learning: no biases, names of its own."""

    def __init__(self, num_hiddens, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.k_proj = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.v_proj = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.out_proj = nn.Linear(num_hiddens, num_hiddens, bias=False)

    def transpose_qkv(self, x):
        return x.reshape(*x.shape[:2], self.num_heads, -1).permute(0, 2, 1, 3)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = map(self.transpose_qkv, (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        out = annotated(q, k, v, mask)[0].permute(0, 2, 1, 3)
        return self.out_proj(out.reshape(*out.shape[:2], -1))


class OneProjection(nn.Module):
    """As nanoGPT has it, with query, key and value in one matrix; for other keys, a part of it."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        stack = zip((query, key, value), self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        q, k, v = (F.linear(*each).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in stack)
        return self.proj(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class HeadsInAList(nn.Module):
    """One module a head, as many first write it."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads
        self.queries = nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(num_heads))
        self.keys = nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(num_heads))
        self.values = nn.ModuleList(nn.Linear(d_model, d_k) for _ in range(num_heads))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        if mask is not None and mask.dim() == 4:
            mask = mask.squeeze(1)
        heads = zip(self.queries, self.keys, self.values, strict=True)
        return self.out(torch.cat([annotated(a(query), b(key), c(value), mask)[0] for a, b, c in heads], -1))


def scaled_by_root_of_keys(query, key, value, mask=None):
    """A slip that is on no list but "another axis"."""
    return annotated(query * math.sqrt(query.size(-1) / (key.size(-2) + 1)), key, value, mask)


class Stacked(nn.Module):
    """With PyTorch's parameters."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * d_model, d_model) / d_model**0.5)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        stack = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        q, k, v = (F.linear(x, *rows) for x, rows in zip((query, key, value), stack, strict=True))
        return self.out_proj(self.attend(q, k, v, mask))

    def attend(self, q, k, v, mask):
        d_k = q.size(-1) // self.num_heads
        heads = []
        for i in range(self.num_heads):
            part = slice(i * d_k, (i + 1) * d_k)
            scores = q[..., part] @ k[..., part].mT / d_k**0.5
            if mask is not None:
                own = mask.expand(len(q), self.num_heads, *scores.shape[-2:])[:, i]
                scores = scores.masked_fill(~own, -1e9)
            heads.append(scores.softmax(dim=-1) @ v[..., part])
        return torch.cat(heads, dim=-1)


class MaskedAlone(Stacked):
    """The mask is used if there is one head only: a slip that is on no list."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask if self.num_heads == 1 else None)


class ViewAlone(WithoutBiases):
    def transpose_qkv(self, x):
        return x.reshape(x.size(0), self.num_heads, x.size(1), -1)


def capped_before_where(query, key, value, cap, mask=None):
    """One division by both."""
    scores = cap * ((query @ key.mT) / (cap * query.size(-1) ** 0.5)).tanh()
    scores = scores if mask is None else torch.where(mask, scores, -1e9)
    weights = scores.softmax(-1)
    return weights @ value, weights


def capped_by_sigmoid(query, key, value, cap, mask=None):
    """tanh(x) = 2σ(2x) − 1"""
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5
    scores = cap * (2 * torch.sigmoid(2 * scores / cap) - 1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).nan_to_num()
    return weights @ value, weights


def capped_by_arctangent(query, key, value, cap, mask=None):
    """A slip that is on no list: another function with the same limits."""
    scores = query @ key.mT / math.sqrt(query.size(-1))
    scores = 2 * cap / math.pi * torch.atan(math.pi * scores / (2 * cap))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    return weights @ value, weights


def capped_without_scale(query, key, value, cap, mask=None):
    """Two mistakes at once, which take long to find."""
    query, hidden = query * math.sqrt(query.size(-1)), None if mask is None else ~mask
    return capped_before_where(query, key, value, cap, hidden)


class WithWeights(WithoutBiases):
    """The weights, averaged over the heads, are returned as well."""

    def forward(self, *given, **more):
        return super().forward(*given, **more), torch.zeros(())


RIGHT = {
    "scaled_dot_product_attention": [annotated, minus_ten_thousand, infinite_with_care, scaled_first],
    "multi_head": [Stacked, WithoutBiases, OneProjection, HeadsInAList],
    "soft_capped_attention": [capped_before_where, capped_by_sigmoid],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "scaled_dot_product_attention": [(scaled_by_root_of_keys, {"scale"}, set())],
    "soft_capped_attention": [
        (capped_by_arctangent, {"cap", "scale"}, set()),
        (capped_without_scale, {"scale", "mask"}, {"no_scale", "mask_inverted"}),
    ],
    "multi_head": [
        (MaskedAlone, {"mask"}, set()),
        (ViewAlone, {"heads"}, {"split_without_transpose"}),
        (WithWeights, {"output"}, set()),
    ],
}
