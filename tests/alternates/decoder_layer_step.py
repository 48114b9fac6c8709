"""One step of a decoder layer in other words."""

import math

import torch
import torch.nn.functional as F

from transformer_lessons.attention import scaled_dot_product_attention


def in_loops(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    """One token after the other, one head after the other."""
    if x.shape[0] != keys.shape[0]:
        raise ValueError("x")

    def linear(name, y):
        return F.linear(y, weights[name + ".weight"], weights[name + ".bias"])

    def norm(name, y):
        name = f"add_norm_{name}.norm"
        return F.layer_norm(y, y.shape[-1:], weights[name + ".weight"], weights[name + ".bias"])

    def attend(q, k, v, mask):
        results = []
        for h, query in enumerate(q.chunk(num_heads, -1)):
            scores = query[:, None] @ k[:, h].mT / math.sqrt(query.size(-1))
            if mask is not None:
                scores = scores.masked_fill(~mask[:, 0], float("-inf"))
            results.append((scores.softmax(-1) @ v[:, h])[:, 0])
        return torch.cat(results, -1)

    outputs = []
    for token in x.unbind(1):
        new = [linear(f"self_attention.W_{c}", token) for c in "kv"]
        k, v = (y.view(len(y), num_heads, 1, -1) for y in new)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        found = attend(linear("self_attention.W_q", token), keys, values, None)
        y = norm("self", token + linear("self_attention.W_o", found))
        found = attend(linear("cross_attention.W_q", y), memory_keys, memory_values, src_mask)
        z = norm("cross", y + linear("cross_attention.W_o", found))
        outputs.append(
            norm("feed_forward", z + linear("feed_forward.W_2", linear("feed_forward.W_1", z).relu()))
        )
    return torch.stack(outputs, 1), keys, values


def in_einsum(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    """All at once, projections and heads in one einsum."""
    if len(x) != len(keys):
        raise ValueError("batch")
    d = x.size(-1)

    def project(part, letter, y):
        matrix = weights[f"{part}.W_{letter}.weight"].view(num_heads, -1, d)
        bias = weights[f"{part}.W_{letter}.bias"].view(num_heads, 1, -1)
        return torch.einsum("btd,hkd->bhtk", y, matrix) + bias

    def merged(part, heads):
        matrix = weights[f"{part}.W_o.weight"].view(d, num_heads, -1)
        return torch.einsum("bhtk,dhk->btd", heads, matrix) + weights[f"{part}.W_o.bias"]

    def norm(name, y):
        y = y - y.mean(-1, keepdim=True)
        y = y / (y.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return y * weights[f"add_norm_{name}.norm.weight"] + weights[f"add_norm_{name}.norm.bias"]

    keys = torch.cat([keys, project("self_attention", "k", x)], -2)
    values = torch.cat([values, project("self_attention", "v", x)], -2)
    old = keys.size(2) - x.size(1)
    seen = torch.arange(keys.size(2)) <= torch.arange(x.size(1))[:, None] + old
    heads, _ = scaled_dot_product_attention(project("self_attention", "q", x), keys, values, seen)
    x = norm("self", x + merged("self_attention", heads))
    q = project("cross_attention", "q", x)
    heads, _ = scaled_dot_product_attention(q, memory_keys, memory_values, src_mask)
    x = norm("cross", x + merged("cross_attention", heads))
    hidden = torch.relu(x @ weights["feed_forward.W_1.weight"].T + weights["feed_forward.W_1.bias"])
    given = hidden @ weights["feed_forward.W_2.weight"].T + weights["feed_forward.W_2.bias"]
    return norm("feed_forward", x + given), keys, values


def fused(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    """PyTorch's own attention on split heads."""
    if x.size(0) != keys.size(0):
        raise ValueError("x")

    def linear(name, y):
        return F.linear(y, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def split(name, y):
        return linear(name, y).view(*y.shape[:2], num_heads, -1).permute(0, 2, 1, 3)

    def packed(name, y, given):
        name = f"add_norm_{name}.norm"
        return F.layer_norm(y + given, (y.size(-1),), weights[f"{name}.weight"], weights[f"{name}.bias"])

    start = keys.size(2)
    keys = torch.cat([keys, split("self_attention.W_k", x)], dim=2)
    values = torch.cat([values, split("self_attention.W_v", x)], dim=2)
    rows = torch.ones(keys.size(2), keys.size(2), dtype=torch.bool).tril()[start:]
    heads = F.scaled_dot_product_attention(split("self_attention.W_q", x), keys, values, rows)
    y = packed("self", x, linear("self_attention.W_o", heads.permute(0, 2, 1, 3).flatten(2)))
    heads = F.scaled_dot_product_attention(
        split("cross_attention.W_q", y), memory_keys, memory_values, src_mask
    )
    y = packed("cross", y, linear("cross_attention.W_o", heads.permute(0, 2, 1, 3).flatten(2)))
    given = linear("feed_forward.W_2", F.relu(linear("feed_forward.W_1", y)))
    return packed("feed_forward", y, given), keys, values


ALTERNATES = [in_loops, in_einsum, fused]
