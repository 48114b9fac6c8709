"""What later chapters build on the canon: other parts for its places, each its chapter's final cell.

`rotary_attention` goes into `attention.MultiHeadAttention.attention`, the modules into the places of a layer's;
`modern` does that for all parts in which a layer of today differs from that of 2017. The other attentions take
other arguments or give no weights back: they are to be called by themselves.
"""

# ruff: noqa: F401
from transformer_lessons.variants.by_hand import attention_backward, hard_attention, tiled_attention
from transformer_lessons.variants.language_model import LanguageModel, extend, speculate
from transformer_lessons.variants.linear import elu_plus_one, linear_attention, recurrent_linear_attention
from transformer_lessons.variants.rotary import rotary_attention, rotate
from transformer_lessons.variants.today import GroupedQueryAttention, RMSNorm, SwiGLU, modern
