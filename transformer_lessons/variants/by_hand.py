"""Attention's backward pass, attention as a look-up, and attention that never stores its weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.masks import causal_mask, combine

Queries, Keys = Float[Tensor, "*batch queries d_k"], Float[Tensor, "*batch keys d_k"]
Values, Outputs = Float[Tensor, "*batch keys d_v"], Float[Tensor, "*batch queries d_v"]
Weights = Float[Tensor, "*batch queries keys"]


def attention_backward(
    query: Queries, key: Keys, value: Values, cotangent: Outputs, mask=None
) -> tuple[Queries, Keys, Values]:
    """The gradients of query, key and value, given dO, the gradient of the output of equation 1 (§3.2.1).

    ``dV = Wᵀ dO,  dW = dO Vᵀ,  dS = W ∘ (dW − rowsum(W ∘ dW)),  dQ = dS K / √d_k,  dK = dSᵀ Q / √d_k``

    where W are the weights and S the scores. A pitfall: dS is not just W ∘ dW, as softmax fixes the row sums.
    """
    scale = math.sqrt(query.size(-1))
    _, weights = scaled_dot_product_attention(query, key, value, mask)
    d_value = weights.transpose(-2, -1) @ cotangent
    d_weights = cotangent @ value.transpose(-2, -1)
    row_sum = (weights * d_weights).sum(dim=-1, keepdim=True)
    d_scores = weights * (d_weights - row_sum)
    d_query = d_scores @ key / scale
    d_key = d_scores.transpose(-2, -1) @ query / scale
    return d_query, d_key, d_value


def hard_attention(query: Queries, key: Keys, value: Values, mask=None) -> tuple[Outputs, Weights]:
    """The output if each query takes the value of its best key only, and the weights, a single 1 per row.

    ``output_i = value_j with j = argmax_j query_i · key_j``: the limit of §3.2.1's softmax as the scores grow

    The first of equally good keys wins; a query that may see no key gets zeros. A pitfall: the choice of j is
    a step function, so queries and keys get no gradient. That is why the Transformer's attention is soft.
    """
    scores = query.detach() @ key.detach().transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    best = scores.argmax(dim=-1, keepdim=True)
    weights = torch.zeros_like(scores).scatter(-1, best, 1.0)
    if mask is not None:  # a query that may see no key
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def tiled_attention(
    query: Queries, key: Keys, value: Values, mask=None, *, is_causal=False, tile=64
) -> Outputs:
    """Equation 1 (§3.2.1), with at most (queries × tile) scores at a time (Milakov and Gimelshein 2018).

    ``m' = max(m, max s),  l' = l e^(m − m') + Σ e^(s − m'),  o' = o e^(m − m') + Σ e^(s − m') v``, then o / l

    A query that may see no key gets zeros. A pitfall: autograd keeps every tile for the backward pass, so
    training saves no memory; a fused kernel computes the tiles again.
    """
    length = key.size(-2)
    if is_causal:
        causal = causal_mask(query.size(-2), length, device=query.device)
        mask = combine(mask, causal[0, 0])
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], length)
    query = query / math.sqrt(query.size(-1))
    m = torch.full_like(query[..., :1], -torch.inf)
    l, o = torch.zeros_like(m), query.new_zeros(())  # noqa: E741
    for start in range(0, length, tile):
        columns = slice(start, start + tile)
        s = query @ key[..., columns, :].mT
        if mask is not None:
            s = s.masked_fill(~mask[..., columns], -torch.inf)
        larger = torch.maximum(m, s.detach().amax(dim=-1, keepdim=True))
        reference = larger.masked_fill(larger == -torch.inf, 0.0)
        e, correction = (s - reference).exp(), (m - reference).exp()
        l = l * correction + e.sum(dim=-1, keepdim=True)  # noqa: E741
        o = o * correction + e @ value[..., columns, :]
        m = larger
    return o / l.masked_fill(l == 0, 1.0)
