"""Multi-head attention in other words."""

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.checks.old.guarded import MultiHeadAttention


class Parts(nn.Module):
    """The four layers, and what is refused."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        if num_heads <= 0 or d_model % num_heads != 0:
            raise ValueError("num_heads")
        self.W_o = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_q = nn.Linear(d_model, d_model)
        self.h, self.d_k = num_heads, d_model // num_heads

    def three(self, query, key, value):
        if key is None:
            if value is not None:
                raise ValueError("value without key")
            key = query
        if value is None:
            value = key
        for x in (query, key, value):
            if x.shape[-1] != self.W_q.in_features:
                raise ValueError("width")
        return query, key, value


class WithThePackage(Parts):
    """Views and transposes; the package attends."""

    def forward(self, query, key=None, value=None, mask=None, *, need_weights=False):
        query, key, value = self.three(query, key, value)
        batch = query.size(0)
        q = self.W_q(query).view(batch, -1, self.h, self.d_k).transpose(1, 2)
        k = self.W_k(key).view(batch, -1, self.h, self.d_k).transpose(1, 2)
        v = self.W_v(value).view(batch, -1, self.h, self.d_k).transpose(1, 2)
        found, weights = scaled_dot_product_attention(q, k, v, mask)
        output = self.W_o(found.transpose(1, 2).contiguous().view(batch, -1, self.h * self.d_k))
        return (output, weights) if need_weights else output


class HeadByHead(Parts):
    """A loop over slices; W_o is applied block by block."""

    def forward(self, query, key=None, value=None, mask=None, *, need_weights=False):
        query, key, value = self.three(query, key, value)
        if mask is not None:
            mask = mask.expand(len(query), self.h, query.size(1), key.size(1))
        output, seen = self.W_o.bias, []
        for i in range(self.h):
            part = slice(i * self.d_k, (i + 1) * self.d_k)
            q, k, v = (
                F.linear(x, W.weight[part], W.bias[part])
                for x, W in ((query, self.W_q), (key, self.W_k), (value, self.W_v))
            )
            scores = torch.bmm(q, k.mT) * self.d_k**-0.5
            if mask is not None:
                scores = scores.masked_fill(~mask[:, i], torch.finfo(scores.dtype).min)
            weights = scores.softmax(-1)
            if mask is not None:
                weights = weights * mask[:, i]
            seen.append(weights)
            output = output + weights @ v @ self.W_o.weight[:, part].T
        return (output, torch.stack(seen, dim=1)) if need_weights else output


class Einsum(Parts):
    """Heads as an axis of the weights; exponentials by hand."""

    def forward(self, query, key=None, value=None, mask=None, *, need_weights=False):
        query, key, value = self.three(query, key, value)

        def projected(x, linear):
            weight, bias = linear.weight.view(self.h, self.d_k, -1), linear.bias.view(self.h, self.d_k)
            return torch.einsum("btm,hdm->bthd", x, weight) + bias

        q, k, v = projected(query, self.W_q), projected(key, self.W_k), projected(value, self.W_v)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.d_k**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        raised = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        raised = raised if mask is None else raised * mask
        total = raised.sum(-1, keepdim=True)
        weights = raised / total.masked_fill(total == 0, 1.0)
        output = torch.einsum("bhqk,bkhd,mhd->bqm", weights, v, self.W_o.weight.unflatten(1, (self.h, -1)))
        return (output + self.W_o.bias, weights) if need_weights else output + self.W_o.bias


class KeysTurned(Parts):
    """Keys already transposed by the split."""

    def forward(self, query, key=None, value=None, mask=None, *, need_weights=False):
        query, key, value = self.three(query, key, value)
        shape = (len(query), -1, self.h, self.d_k)
        q = self.W_q(query).reshape(shape).permute(0, 2, 1, 3)
        k = self.W_k(key).reshape(shape).permute(0, 2, 3, 1)
        v = self.W_v(value).reshape(shape).permute(0, 2, 1, 3)
        scores = q @ k / self.d_k**0.5
        if mask is not None:
            scores = torch.where(mask, scores, -1e30)
        weights = scores.softmax(-1)
        weights = weights if mask is None else torch.where(mask, weights, 0.0)
        output = self.W_o((weights @ v).permute(0, 2, 1, 3).flatten(2))
        return (output, weights) if need_weights else output


ALTERNATES = [MultiHeadAttention, WithThePackage, HeadByHead, Einsum, KeysTurned]
