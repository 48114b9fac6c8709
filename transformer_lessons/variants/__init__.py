"""What later chapters build on the canon: other parts for its places, each its chapter's final cell.

Other attentions go into `attention.MultiHeadAttention.attention`, other modules into the places of a layer's;
`modern` does that for all parts in which a layer of today differs from that of 2017.
"""

# ruff: noqa: F401
from transformer_lessons.variants.by_hand import attention_backward, hard_attention, tiled_attention
from transformer_lessons.variants.language_model import LanguageModel, extend, speculate
from transformer_lessons.variants.linear import elu_plus_one, linear_attention, recurrent_linear_attention
from transformer_lessons.variants.rotary import rotary_attention, rotate
from transformer_lessons.variants.today import GroupedQueryAttention, RMSNorm, SwiGLU, modern
