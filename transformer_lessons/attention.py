"""Attention (§3.2): every query averages the values, weighted by how well it matches the keys."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons.masks import Mask, causal_mask, combine


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Mask | None = None,
    *,
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch queries d_v"], Float[Tensor, "*batch queries keys"]]:
    """``Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V`` (§3.2.1, equation 1); returns output and weights.

    A query that may attend to nothing gets zeros. A pitfall: the mask belongs before the softmax, or the visible
    weights no longer sum to one.

    Args:
        query, key, value: Q, K, V; usually ``*batch`` is ``batch heads``.
        mask: True = may attend; broadcasts to the scores.
        is_causal: also hide later positions, the last query aligned with the last key (`causal_mask`).
    """
    if is_causal:
        causal = causal_mask(query.size(-2), key.size(-2), device=query.device)
        mask = combine(mask, causal[0, 0])  # (queries, keys): broadcasts to any leading axes
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        masked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = masked.softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


class MultiHeadAttention(nn.Module):
    """Several attention heads side by side, each with its own projections of the input (§3.2.2).

    ``MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_o,  head_i = Attention(Q W_q^i, K W_k^i, V W_v^i)``

    The heads' matrices are slices of one W_q, W_k and W_v: project first, then split. A pitfall: a view straight
    to ``(batch, heads, positions, d_k)`` has the right shape but mixes positions with heads.

    `attention` may be replaced by another function with the same arguments that returns the output, and the
    weights or None. A cache keeps what `keys_and_values` returns, and `look` lets later queries attend to it.

    Raises:
        ValueError: if num_heads does not divide d_model.
    """

    attention = staticmethod(scaled_dot_product_attention)

    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {d_model}")
        self.d_k = d_model // num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)
        for projection in (self.W_q, self.W_k, self.W_v, self.W_o):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Float[Tensor, "batch queries d_model"],
        key: Float[Tensor, "batch keys d_model"] | None = None,
        value: Float[Tensor, "batch keys d_model"] | None = None,
        mask: Mask | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Self-attention with `query` alone, cross-attention with `key` (and `value`, by default `key`)."""
        key = query if key is None else key
        value = key if value is None else value
        return self.look(query, *self.keys_and_values(key, value), mask, is_causal)

    def keys_and_values(
        self, key: Float[Tensor, "batch keys d_model"], value: Float[Tensor, "batch keys d_model"]
    ) -> tuple[Float[Tensor, "batch heads keys d_k"], Float[Tensor, "batch heads keys d_k"]]:
        """The keys and values that queries attend to, split into heads."""
        return self.split(self.W_k(key)), self.split(self.W_v(value))

    def look(
        self,
        query: Float[Tensor, "batch queries d_model"],
        k: Float[Tensor, "batch heads keys d_k"],
        v: Float[Tensor, "batch heads keys d_k"],
        mask: Mask | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Each query's averages of v, one per head, concatenated and projected."""
        q = self.split(self.W_q(query))
        heads, _ = self.attention(q, k, v, mask, is_causal=is_causal)
        return self.W_o(heads.transpose(1, 2).flatten(-2))  # (batch, queries, d_model)

    def split(self, x: Float[Tensor, "batch positions width"]) -> Float[Tensor, "batch heads positions d_k"]:
        """Cut each vector into heads, and put the heads before the positions."""
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)  # (batch, heads, positions, d_k)
