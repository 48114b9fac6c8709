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


def documented(query, key, value, attn_mask=None, is_causal=False, scale=None):
    """PyTorch's documentation of its own function: a bias that is added."""
    L, S = query.size(-2), key.size(-2)
    scale_factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    attn_bias = torch.zeros(L, S, dtype=query.dtype)
    if attn_mask is not None:
        attn_bias = torch.zeros(attn_mask.shape).masked_fill(attn_mask.logical_not(), -1e9)
    attn_weight = torch.softmax(query @ key.transpose(-2, -1) * scale_factor + attn_bias, dim=-1)
    return attn_weight @ value, attn_weight


def by_loops(query, key, value, mask=None):
    """A softmax for each query, by hand."""
    lead = query.shape[:-2]
    visible = torch.ones(()).bool() if mask is None else mask
    visible = visible.expand(*lead, query.size(-2), key.size(-2)).reshape(-1, query.size(-2), key.size(-2))
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (query, key, value)]
    weights = []
    for q, k, seen in zip(flat[0], flat[1], visible, strict=True):
        rows = []
        for one, row in zip(q, seen, strict=True):
            scores = torch.stack([(one * other).sum() for other in k]) / math.sqrt(len(one))
            powers = (scores - scores.max().detach()).exp() * row
            rows.append(powers / powers.sum().clamp_min(1e-30))
        weights.append(torch.stack(rows))
    weights = torch.stack(weights)
    output = torch.stack([w @ v for w, v in zip(weights, flat[2], strict=True)])
    return output.reshape(*lead, *output.shape[-2:]), weights.reshape(*lead, *weights.shape[-2:])


def scaled_first(query, key, value, mask=None):
    root = query.size(-1) ** 0.25
    scores = (query / root) @ (key / root).transpose(-1, -2)
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min
    weights = scores.softmax(-1)
    return [weights @ value, weights]


class Annotated(nn.Module):
    """The form of the Annotated Transformer: four clones in a list, heads by view and transpose."""

    def __init__(self, d_model, h, dropout=0.0):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        n = query.size(0)
        layers = zip((self.W_q, self.W_k, self.W_v), (query, key, value), strict=True)
        q, k, v = (layer(x).view(n, -1, self.h, self.d_k).transpose(1, 2) for layer, x in layers)
        x, _ = annotated(q, k, v, mask)
        return self.W_o(x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k))


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
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        weight, bias = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        q, k, v = (
            F.linear(x, w, b).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for x, w, b in zip((query, key, value), weight, bias, strict=True)
        )
        return self.proj(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class NamedOtherwise(nn.Module):
    """Names that say nothing of queries, keys and values."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.c_attn, self.c_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        d = query.size(-1)
        parts = (
            self.c_attn(query)[..., :d],
            self.c_attn(key)[..., d : 2 * d],
            self.c_attn(value)[..., 2 * d :],
        )
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in parts)
        return self.c_proj(annotated(q, k, v, mask)[0].transpose(1, 2).flatten(2))


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
        masks = self.masks(mask, len(query))
        heads = zip(self.queries, self.keys, self.values, masks, strict=True)
        return self.out(torch.cat([annotated(a(query), b(key), c(value), m)[0] for a, b, c, m in heads], -1))

    def masks(self, mask, batch):
        heads = len(self.keys)
        return [None] * heads if mask is None else mask.expand(batch, heads, -1, -1).unbind(1)


class OneMaskForAllHeads(Annotated):
    """A slip that is on no list."""

    def forward(self, query, key=None, value=None, mask=None):
        one = mask if mask is None or mask.dim() < 4 else mask[:, :1]
        return super().forward(query, key, value, one)


def scaled_by_root_of_keys(query, key, value, mask=None):
    """A slip that is on no list but "another axis"."""
    scores = query @ key.mT / math.sqrt(key.size(-2) + 1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    return weights @ value, weights


def compared(queries, keys=None):
    keys = keys or queries
    return torch.arange(keys)[None] <= torch.arange(keys - queries, keys)[:, None]


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
        d_model = query.size(-1)
        rows = [slice(i * d_model, (i + 1) * d_model) for i in range(3)]
        q, k, v = (
            F.linear(x, self.in_proj_weight[row], self.in_proj_bias[row])
            for x, row in zip((query, key, value), rows, strict=True)
        )
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


def capped_as_gemma(query, key, value, softcap, attention_mask=None):
    """The form of Gemma 2 in transformers: the mask as numbers."""
    weights = torch.matmul(query, key.transpose(-2, -1)) * query.size(-1) ** -0.5
    weights = torch.tanh(weights / softcap) * softcap
    if attention_mask is not None:
        weights = weights + torch.zeros(attention_mask.shape).masked_fill(~attention_mask, -1e9)
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value), weights


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
    scores = cap * torch.tanh(query @ key.mT / cap)
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    weights = scores.softmax(-1)
    return weights @ value, weights


class WithWeights(WithoutBiases):
    """The weights, averaged over the heads, are returned as well."""

    def forward(self, *given, **more):
        return super().forward(*given, **more), torch.zeros(())


RIGHT = {
    "causal_mask": [compared],
    "scaled_dot_product_attention": [
        annotated,
        minus_ten_thousand,
        infinite_with_care,
        documented,
        by_loops,
        scaled_first,
    ],
    "multi_head": [Stacked, Annotated, WithoutBiases, OneProjection, NamedOtherwise, HeadsInAList],
    "soft_capped_attention": [capped_before_where, capped_as_gemma, capped_by_sigmoid],
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
        (OneMaskForAllHeads, {"mask"}, set()),
        (ViewAlone, {"heads"}, {"split_without_transpose"}),
        (WithWeights, {"output"}, set()),
    ],
}
