"""Attention (§3.2): every query takes an average of the values, weighted by how well it matches the keys.

Read `dot_product` first: the formula, step by step and fused, and its hard limit. `multi_head` is the module of
the Transformer. `linear` changes the formula, so that its cost grows with the length and not its square.
`by_hand` is what autograd and fused kernels do, written out. `inputs` is the door that all of them share.

Masks follow `masks`: True = may attend, broadcastable to ``batch heads queries keys``.
"""

from transformer_lessons.attention.by_hand import attention_backward, tiled_attention
from transformer_lessons.attention.dot_product import (
    fused_attention,
    hard_attention,
    scaled_dot_product_attention,
)
from transformer_lessons.attention.linear import linear_attention, recurrent_linear_attention
from transformer_lessons.attention.multi_head import MultiHeadAttention
from transformer_lessons.cache import KeyValueCache

__all__ = [
    "KeyValueCache",
    "MultiHeadAttention",
    "attention_backward",
    "fused_attention",
    "hard_attention",
    "linear_attention",
    "recurrent_linear_attention",
    "scaled_dot_product_attention",
    "tiled_attention",
]
