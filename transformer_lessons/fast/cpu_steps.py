"""A step of decoding on a CPU: matrices laid out once for few vectors, few operations, nothing kept is moved."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.decoding import KeyValueCache
from transformer_lessons.fast import FASTER
from transformer_lessons.fast.decoding_steps import Steps
from transformer_lessons.fast.int8 import Int8Linear, int8_product
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.feed_forward import ACTIVATIONS, FeedForward
from transformer_lessons.layers import AddAndNorm, DecoderLayer
from transformer_lessons.masks import additive
from transformer_lessons.model import Transformer

KNOWN = {*FASTER, *FASTER.values(), DecoderLayer, AddAndNorm, FeedForward, nn.Linear, Int8Linear}
PACKED, TALL, MANY_KEYS = 4, 4_096, 16  # rows, outputs, keys from which another layout or attention is sooner


def is_supported(model: Transformer) -> bool:
    """Whether it computes in float32 on a CPU that oneDNN knows, by the course's own parts, with no hooks."""
    for part in (model.output, *list(model.decoder_layers.modules())[1:]):
        if type(part) not in KNOWN or part._forward_hooks or part._forward_pre_hooks:
            return False
        if getattr(part, "attention", fused_attention) not in (scaled_dot_product_attention, fused_attention):
            return False
        if getattr(part, "activation", torch.relu) not in ACTIVATIONS.values():
            return False
    weight = model.target_embedding.token.weight
    is_known = weight.device.type == "cpu" and weight.dtype == torch.float32
    return is_known and torch.backends.mkldnn.is_available()


class Product:
    """``act(x Wᵀ + b)`` of a linear map, or of several of the same input side by side."""

    def __init__(self, *linears: nn.Linear, rows: int, activation: str = "none"):
        def beside(name: str) -> Tensor | None:
            parts = [getattr(linear, name, None) for linear in linears]
            return torch.cat(parts) if len(parts) > 1 and parts[0] is not None else parts[0]

        self.weight, self.bias, self.scale = map(beside, ("weight", "bias", "scale"))  # `scale` is int8's
        self.activation, self.is_packed = activation, rows >= PACKED and self.scale is None
        if self.is_packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, rows)
        elif len(self.weight) > TALL and self.scale is None:
            self.weight = self.weight.t().contiguous().t()

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """With `plus` added, which an activation excludes."""
        matrix = self.weight, self.bias
        if self.is_packed:
            linear = torch.ops.mkldnn._linear_pointwise
            if plus is not None:
                return linear.binary(x, plus, *matrix, "add")
            return linear(x, *matrix, self.activation, [], "none")
        y = F.linear(x, *matrix) if self.scale is None else int8_product(x, *matrix, self.scale)
        if plus is not None:
            return y.add_(plus)
        return y if self.activation == "none" else ACTIVATIONS[self.activation](y)


class Layer:
    """The products of a decoder layer, each with its number of rows in mind."""

    def __init__(self, layer: DecoderLayer, rows: int):
        own, cross, ffn = layer.self_attention, layer.cross_attention, layer.feed_forward
        name = next(name for name, function in ACTIVATIONS.items() if function is ffn.activation)
        around = layer.add_norm_self, layer.add_norm_cross, layer.add_norm_feed_forward
        self.norms = [(one.norm.weight.shape, one.norm.weight, one.norm.bias, one.norm.eps) for one in around]
        self.norm_first = around[0].norm_first
        self.qkv, self.W_o = Product(own.W_q, own.W_k, own.W_v, rows=rows), Product(own.W_o, rows=rows)
        self.W_q, self.W_o_cross = Product(cross.W_q, rows=rows), Product(cross.W_o, rows=rows)
        self.W_1, self.W_2 = Product(ffn.W_1, rows=rows, activation=name), Product(ffn.W_2, rows=rows)
        self.d_k = own.d_k

    def add_norm(self, which: int, x: Tensor, inside: Callable[[Tensor], Tensor], last: Product) -> Tensor:
        """`layers.AddAndNorm` around ``last ∘ inside``, without dropout, with the sum in the last product."""
        if self.norm_first:
            return last(inside(F.layer_norm(x, *self.norms[which])), plus=x)
        return F.layer_norm(last(inside(x), plus=x), *self.norms[which])


class CPUSteps(Steps):
    """`Steps` of a model that `is_supported`."""

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src, copies)
        rows = len(self.src_mask)
        self.layers = [Layer(layer, rows) for layer in model.decoder_layers]
        self.output = Product(model.output, rows=rows)
        self.past = [KeyValueCache() if copies > 1 else GrowingCache() for _ in self.layers]  # beams move all

    @torch.inference_mode()  # a tenth less to do for one row than without gradients alone
    def next_logits(self, token: Int[Tensor, "rows 1"]) -> Float[Tensor, "rows vocab"]:
        """As `decoding.Steps.next_logits`."""
        x = self.model.target_embedding(token, self.length)[:, 0]
        self.length += 1
        for layer, past, source in zip(self.layers, self.past, self.source, strict=True):
            x = self.through(x, layer, past, source)
        return self.output(self.model.decoder_norm(x))

    def through(self, x: Float[Tensor, "rows d_model"], layer: Layer, past, source) -> Tensor:
        """As `decoding.Steps.through`."""

        def look_back(y: Tensor) -> Tensor:
            q, k, v = layer.qkv(y).view(len(y), 3, -1, 1, layer.d_k).unbind(1)  # each (rows, heads, 1, d_k)
            return attention(q, *past.append(k, v))

        def look_at_source(y: Tensor) -> Tensor:
            q = layer.W_q(y).view(len(y), -1, 1, layer.d_k)
            return attention(q, source.k, source.v, self.hidden)

        x = layer.add_norm(0, x, look_back, layer.W_o)
        x = layer.add_norm(1, x, look_at_source, layer.W_o_cross)
        return layer.add_norm(2, x, layer.W_1, layer.W_2)

    def keep_source(self, rows: Int[Tensor, " kept"]) -> None:
        """As `Steps.keep_source`."""
        super().keep_source(rows)
        mask, heads = self.src_mask[:, 0], self.source[0].k.size(1)
        self.hidden = None if mask.all() else additive(mask).repeat_interleave(heads, dim=0)


def attention(
    q: Float[Tensor, "rows heads 1 d_k"],
    k: Float[Tensor, "rows heads keys d_k"],
    v: Float[Tensor, "rows heads keys d_k"],
    hidden: Float[Tensor, "#matrices 1 #keys"] | None = None,
) -> Float[Tensor, "rows d_model"]:
    """Of one query a row, heads joined."""
    rows, heads, _, d_k = q.shape
    if rows == 1 or k.size(2) < MANY_KEYS:
        mask = None if hidden is None else hidden.view(rows, heads, 1, -1)
        return F.scaled_dot_product_attention(q, k, v, mask).flatten(1)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(q.new_zeros(1) if hidden is None else hidden, q, k.mT, alpha=d_k**-0.5)
    return torch.bmm(scores.softmax(-1), v).view(rows, -1)


class GrowingCache(KeyValueCache):
    """Written in place, into room that doubles."""

    def __init__(self):
        super().__init__()
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep those of a new position too; all of them come back."""
        if self.k is None:
            self.k, self.v = k[:, :, :0], v[:, :, :0]
        if self.length == self.k.size(2):
            more = 0, 0, 0, max(16, self.length)
            self.k, self.v = F.pad(self.k, more), F.pad(self.v, more)
        self.k[:, :, self.length] = k[:, :, 0]
        self.v[:, :, self.length] = v[:, :, 0]
        self.length += 1
        return self.k[:, :, : self.length], self.v[:, :, : self.length]
