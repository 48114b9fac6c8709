"""Alternatives to the model's parts that later chapters build, each as in its chapter's final cell.

`rotary_attention` replaces `attention.MultiHeadAttention.attention`, and the modules replace those of a
layer; `modern` does so for all parts in which a modern layer differs from one of 2017. The other attentions
take other arguments or return no weights, so call them directly.
"""

# ruff: noqa: F401
from transformer_lessons.variants.by_hand import attention_backward, hard_attention, tiled_attention
from transformer_lessons.variants.language_model import LanguageModel, extend, speculate
from transformer_lessons.variants.linear import elu_plus_one, linear_attention, recurrent_linear_attention
from transformer_lessons.variants.rotary import rotary_attention, rotate
from transformer_lessons.variants.today import GroupedQueryAttention, RMSNorm, SwiGLU, modern
