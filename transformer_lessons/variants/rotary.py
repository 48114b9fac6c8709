"""Rotary positions: scores depend only on distances (Su et al. 2024)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.encodings import frequencies


def rotate(
    x: Float[Tensor, "*batch length d_k"], positions: Int[Tensor, " length"], base: float = 10_000.0
) -> Float[Tensor, "*batch length d_k"]:
    """Rotate entries 2i and 2i + 1 of the vector at position t by the angle t ω_i (frequencies of §3.5).

    ``(R_t q)ᵀ (R_s k) = qᵀ R_{s−t} k``

    Angles are computed in float64 on the CPU, where `positions` must be. A pitfall: Llama's weights pair
    entry i with i + d_k / 2 instead; they fit after reordering the rows of W_q and W_k.
    """
    angle = positions[:, None] * frequencies(x.size(-1), base)  # (length, d_k / 2)
    cosine, sine = angle.cos().to(x), angle.sin().to(x)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = even * cosine - odd * sine, even * sine + odd * cosine
    return torch.stack(pairs, dim=-1).flatten(-2)


def rotary_attention(query, key, value, mask=None, *, is_causal=False):
    """`attention.scaled_dot_product_attention` with rotated queries and keys; values are not rotated.

    The last query has the position of the last key, as in `masks.causal_mask`. A pitfall: with a cache, the
    newest query comes alone; counted from 0, it would be at the beginning of the text.
    """
    queries, keys = query.size(-2), key.size(-2)
    positions = torch.arange(keys)
    query = rotate(query, positions[keys - queries :])
    key = rotate(key, positions)
    return scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal)
