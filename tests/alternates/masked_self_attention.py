"""Self-attention under padding and causal mask in other words."""

import torch
import torch.nn.functional as F


def refuse(x, ids):
    if ids.shape != x[:, 0, :, 0].shape:
        raise ValueError("ids and x do not fit")


def filled_with_infinity(x, ids, pad_id):
    """−∞, and zeros for what the softmax cannot do; the fill cuts the gradient of hidden scores off."""
    refuse(x, ids)
    later = torch.ones(x.size(2), x.size(2), dtype=torch.bool).triu(1)
    hidden = later | ids.eq(pad_id)[:, None, None]
    scores = torch.einsum("bhid,bhjd->bhij", x, x) / x.size(3) ** 0.5
    weights = scores.masked_fill(hidden, float("-inf")).softmax(3).masked_fill(hidden, 0)
    return torch.einsum("bhij,bhjd->bhid", weights, x)


def by_formula(x, ids, pad_id):
    """Exponentials of the visible scores, less their largest, over their sum."""
    refuse(x, ids)
    place = torch.arange(x.size(2))
    seen = (place[:, None] >= place) & (ids != pad_id)[:, None, None]
    scores = x @ x.transpose(2, 3) * x.size(3) ** -0.5
    scores = torch.where(seen, scores, torch.finfo(x.dtype).min)
    weights = (scores - scores.amax(-1, keepdim=True)).exp() * seen
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-30) @ x


def in_loops(x, ids, pad_id):
    refuse(x, ids)
    output = torch.zeros_like(x)
    for b in range(x.size(0)):
        for i in range(x.size(2)):
            visible = [j for j in range(i + 1) if ids[b, j] != pad_id]
            if visible:
                memory = x[b][:, visible]
                scores = (memory * x[b, :, i, None]).sum(-1) / x.size(-1) ** 0.5
                output[b, :, i] = (scores.softmax(-1)[..., None] * memory).sum(1)
    return output


def fused(x, ids, pad_id):
    """PyTorch's own; its zeros for empty rows are made here, as other versions give NaN."""
    refuse(x, ids)
    mask = (ids != pad_id)[:, None, None] & torch.ones(x.size(2), x.size(2), dtype=torch.bool).tril()
    empty = ~mask.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(x, x, x, mask | empty).masked_fill(empty, 0.0)


ALTERNATES = [filled_with_infinity, by_formula, in_loops, fused]
