"""From 2017 to today: the parts that have changed, and how to put them into a model."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.feed_forward import FeedForward, linear
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.norms import LayerNorm
from transformer_lessons.variants.rotary import rotary_attention


class SwiGLU(nn.Module):
    """A feed-forward network with hidden units gated by a second map (Shazeer 2020); it replaces §3.3's.

    ``SwiGLU(x) = (silu(x W_1) ∘ x W_3) W_2``, with silu(z) = z / (1 + e^(−z)), without biases

    A pitfall: it has three matrices; to have as many parameters as `FeedForward`, it needs 2/3 of that d_ff.
    """

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.W_1 = linear(d_model, d_ff, bias=False)
        self.W_2 = linear(d_ff, d_model, bias=False)
        self.W_3 = linear(d_model, d_ff, bias=False)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Expand twice, gate, project back."""
        return self.W_2(F.silu(self.W_1(x)) * self.W_3(x))


class RMSNorm(nn.Module):
    """A norm that scales each vector to root mean square 1 over its features (Zhang and Sennrich 2019).

    ``y = γ · x / √(mean(x²) + ε)``

    It is §3.1's `norms.LayerNorm` without mean and shift. A pitfall: if the mean is not 0, the two differ.
    """

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Scale the last axis, computing at least in float32."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        normalised = wide * torch.rsqrt(mean_square + self.eps)
        return (normalised * self.weight).to(x.dtype)


class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention (§3.2.2) whose heads share keys and values in groups (Ainslie et al. 2023).

    ``head_i = Attention(Q W_q^i, K W_k^j, V W_v^j),  j = ⌊i / g⌋,  g = num_heads / num_key_value_heads``

    A cache holds only the shared heads. A pitfall: neighbours share; ``k.repeat(1, g, 1, 1)`` groups others.

    Raises:
        ValueError: if num_key_value_heads does not divide num_heads, or num_heads does not divide d_model.
    """

    def __init__(self, d_model: int, num_heads: int, num_key_value_heads: int):
        super().__init__(d_model, num_heads)
        if num_heads % num_key_value_heads:
            raise ValueError(f"{num_key_value_heads} heads of keys do not divide {num_heads}")
        self.group = num_heads // num_key_value_heads
        self.W_k = linear(d_model, num_key_value_heads * self.d_k)
        self.W_v = linear(d_model, num_key_value_heads * self.d_k)

    def look(self, query, k, v, mask=None, is_causal=False):
        """`MultiHeadAttention.look` with each head of keys and values seen by its whole group."""
        k, v = (x.repeat_interleave(self.group, dim=1) for x in (k, v))  # (batch, heads, keys, d_k)
        return super().look(query, k, v, mask, is_causal)


def modern(model: nn.Module, num_key_value_heads: int) -> nn.Module:
    """The same layer or model with modern parts: RMSNorm, SwiGLU, grouped queries, rotary positions.

    The fifth change, pre-norm, is an option of the original model, ``norm_first``. A pitfall: the new parts
    have new weights, so call this before training and before moving the model to a device.
    """
    for module in [*model.modules()]:
        for name, part in [*module.named_children()]:
            setattr(module, name, of_today(part, num_key_value_heads))
        if isinstance(module, EncoderLayer | DecoderLayer):
            module.self_attention.attention = rotary_attention
        if isinstance(module, TransformerEmbedding):
            module.position = None  # attention adds positions instead
    return model


def of_today(part: nn.Module, num_key_value_heads: int) -> nn.Module:
    """The modern replacement of a part; for most parts, the part itself."""
    if isinstance(part, LayerNorm):
        return RMSNorm(len(part.weight))
    if isinstance(part, FeedForward):
        return SwiGLU(part.W_1.in_features, part.W_1.out_features)
    if isinstance(part, MultiHeadAttention):
        d_model = part.W_q.in_features
        return GroupedQueryAttention(d_model, d_model // part.d_k, num_key_value_heads)
    return part
