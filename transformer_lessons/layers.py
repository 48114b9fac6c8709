"""One encoder layer and one decoder layer (§3.1, Figure 1)."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.masks import Mask
from transformer_lessons.norms import LayerNorm


class AddAndNorm(nn.Module):
    """The residual connection around a sub-layer, with its normalisation and dropout (§3.1, §5.4).

    post-norm (the paper): ``LayerNorm(x + dropout(sublayer(x)))``

    pre-norm: ``x + dropout(sublayer(LayerNorm(x)))``

    A pitfall: dropout belongs on the sub-layer's output, before the sum. Applied after the norm it would also
    drop the residual stream.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.norm = LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.norm_first = config.norm_first

    def forward(
        self, x: Float[Tensor, "batch length d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        """Apply `sublayer` to x, with dropout, residual connection and normalisation."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with Add & Norm (§3.1).

    ``y = AddNorm(x, SelfAttention),  output = AddNorm(y, FFN)``

    A pitfall: without `mask`, real tokens attend to padding too.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, d_ff = config.d_model, config.d_ff
        self.self_attention = MultiHeadAttention(d_model, config.num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation=config.activation)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Mask | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """Mix positions, then transform each."""
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=mask))
        return self.add_norm_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the encoder's output, feed-forward, each with Add & Norm (§3.1).

    ``y = AddNorm(x, SelfAttention),  z = AddNorm(y, CrossAttention to memory),  output = AddNorm(z, FFN)``

    A pitfall: in cross-attention the queries come from the decoder, keys and values both from the encoder.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d_model, d_ff = config.d_model, config.d_ff
        self.self_attention = MultiHeadAttention(d_model, config.num_heads)
        self.cross_attention = MultiHeadAttention(d_model, config.num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation=config.activation)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_cross = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        src_mask: Mask | None = None,
        tgt_mask: Mask | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Look back, look at the source, transform. Causality is always on; `tgt_mask` is combined with it.

        With padding on the right, no `tgt_mask` is needed: a real token looks only left, where there is none.
        """
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=tgt_mask, is_causal=True))
        x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, mask=src_mask))
        return self.add_norm_feed_forward(x, self.feed_forward)
