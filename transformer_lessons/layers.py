"""One encoder layer and one decoder layer (§3.1, Figure 1)."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.attention import KeyValueCache, MultiHeadAttention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.encodings import RotaryEncoding
from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.feed_forward import FeedForward, SwiGLU
from transformer_lessons.masks import Mask, boolean
from transformer_lessons.norms import LayerNorm, RMSNorm

NORMS = {"layer": LayerNorm, "rms": RMSNorm}


class LayerCache(NamedTuple):
    """What a decoder layer keeps between decoding steps: one cache for each of its attentions.

    A pitfall: a cache belongs to one layer and one batch of sentences; a new batch needs new ones.
    """

    self_attention: KeyValueCache
    cross_attention: KeyValueCache


class AddAndNorm(nn.Module):
    """The residual connection around a sub-layer, with its normalisation and dropout (§3.1, §5.4).

    post-norm (the paper): ``LayerNorm(x + dropout(sublayer(x)))``

    pre-norm: ``x + dropout(sublayer(LayerNorm(x)))``

    A pitfall: dropout belongs on the sub-layer's output, before the sum. Applied after the norm it would
    also drop the residual stream.

    Shapes: ``(batch, length, d_model)`` in and out.

    Raises:
        ValueError: for what is no `TransformerConfig`; when called, for vectors of another width or device.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect.kind(TransformerConfig, config=config)
        self.norm = NORMS[config.norm](config.d_model)
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm_first

    def forward(
        self, x: Float[Tensor, "batch length d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        """Apply `sublayer` to x, with everything around it."""
        expect.floats("batch", "length", "d_model", x=x)
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    # The paper drops the sub-layers' outputs, not the attention weights (§5.4), which PyTorch's layers drop too.
    groups = config.num_key_value_heads
    return MultiHeadAttention(config.d_model, config.num_heads, num_key_value_heads=groups)


def _feed_forward(config: TransformerConfig) -> nn.Module:
    if config.activation == "swiglu":
        return SwiGLU(config.d_model, config.d_ff)
    return FeedForward(config.d_model, config.d_ff, activation=config.activation)


def _rotary(config: TransformerConfig) -> RotaryEncoding | None:
    # For self-attention only: cross-attention is between two texts, whose positions have no distance.
    if config.position != "rotary":
        return None
    return RotaryEncoding(config.d_model // config.num_heads, config.max_length)


def _turning(rotate: RotaryEncoding | None, positions: Tensor | None) -> Callable | None:
    """By the positions given, where attention would count its own from the start of the row."""
    if rotate is None or positions is None:
        return rotate
    return lambda heads, counted: rotate(heads, positions)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with Add & Norm (§3.1).

    ``y = AddNorm(x, SelfAttention),  output = AddNorm(y, FFN)``

    Shapes: ``(batch, source, d_model)`` in and out. A pitfall: without `mask`, real tokens average in padding.

    Args:
        config: the sizes and switches.

    Raises:
        ValueError: for what is no `TransformerConfig`; when called, for vectors of another width, dtype or device
            than the weights', or a mask that does not fit.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect.kind(TransformerConfig, config=config)
        self.self_attention = _attention(config)
        self.rotate = _rotary(config)
        self.feed_forward = _feed_forward(config)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(
        self,
        x: Float[Tensor, "batch source d_model"],
        mask: Mask | None = None,
        *,
        positions: Int[Tensor, "batch source"] | None = None,
    ) -> Float[Tensor, "batch source d_model"]:
        """Mix positions, then transform each; rotary encodings take `positions`, if they are not 0, 1, 2, …"""
        _check_width(self, x=x)
        rotate = _turning(self.rotate, positions)
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=mask, rotate=rotate))
        return self.add_norm_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the encoder's output, feed-forward, each with Add & Norm (§3.1).

    ``y = AddNorm(x, SelfAttention),  z = AddNorm(y, CrossAttention to memory),  output = AddNorm(z, FFN)``

    Shapes: ``(batch, target, d_model)`` in and out. A pitfall: in cross-attention the queries are the
    decoder's, keys and values both the encoder's; the lengths differ.

    Args:
        config: the sizes and switches.

    Raises:
        ValueError: as `EncoderLayer`; when called, also for another batch size of `memory`, or a cache that is no
            `LayerCache`.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect.kind(TransformerConfig, config=config)
        self.self_attention = _attention(config)
        self.rotate = _rotary(config)
        self.cross_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_cross = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(
        self,
        x: Float[Tensor, "batch target d_model"],
        memory: Float[Tensor, "batch source d_model"],
        src_mask: Mask | None = None,
        tgt_mask: Mask | None = None,
        *,
        cache: LayerCache | None = None,
        positions: Int[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Look back, look at the source, transform.

        Args:
            x: the target so far.
            memory: the encoder's output.
            src_mask: which source positions may be attended to (`padding_mask` of the source).
            tgt_mask: on top of causality, which is always on, which target positions may be. With padding on
                the right none is needed: a real token only looks left, where there is none.
            cache: keys and values of the steps before.
            positions: for rotary encodings, if they are not 0, 1, 2, … (or what the cache has counted).
        """
        if cache is not None:
            expect.kind(LayerCache, cache=cache)
        own, cross = cache if cache is not None else (None, None)
        src_mask, tgt_mask = self._check(x, memory, src_mask, tgt_mask, own)
        rotate = _turning(self.rotate, positions)
        looking_back = {"mask": tgt_mask, "is_causal": True, "cache": own, "rotate": rotate}
        x = self.add_norm_self(x, lambda y: self.self_attention(y, **looking_back))
        x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, mask=src_mask, cache=cross))
        return self.add_norm_feed_forward(x, self.feed_forward)

    def _check(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Mask | None,
        tgt_mask: Mask | None,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        _check_width(self, x=x, memory=memory)
        if len(memory) != len(x):
            raise ValueError(f"memory: expected batch size {len(x)}, as x, got {len(memory)}")
        queries = (len(x), self.self_attention.num_heads, x.size(1))
        keys = x.size(1) if cache is None else cache.keys.size(2)
        return (
            _visible(src_mask, (*queries, memory.size(1)), "src_mask"),
            _visible(tgt_mask, (*queries, keys), "tgt_mask"),
        )


def _check_width(layer: nn.Module, **given: Tensor) -> None:
    weight = layer.self_attention.W_q.weight
    for name, x in given.items():
        expect.width(x, weight, "batch", "length", "d_model", name=name, same_dtype=True)


def _visible(mask: Mask | None, scores: tuple[int, ...], name: str) -> Tensor | None:
    """The mask as booleans, refused here if it does not fit: further in, nobody knows which of the two it is."""
    if mask is None:
        return None
    mask = boolean(mask, name)
    expect.broadcasts(mask, scores, name)
    return mask
