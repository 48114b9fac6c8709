"""Decoding steps on a CPU: matrices packed once for few vectors, few operations, caches written in place."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons.fast.decoding_steps import Steps
from transformer_lessons.fast.int8 import int8_product
from transformer_lessons.layers import DecoderLayer
from transformer_lessons.masks import additive
from transformer_lessons.model import Transformer
from transformer_lessons.norms import LayerNorm

MANY_KEYS = 16  # from this number on, plain products are faster than the fused kernel


def product(
    *linears: nn.Linear, rows: int, activation: Callable[[Tensor], Tensor] | None = None
) -> Callable[..., Tensor]:
    """A function (x, residual) ↦ ``act(x Wᵀ + b + residual)``, for one linear map or several maps of one x."""

    def joined(name: str) -> Tensor | None:
        parts = [getattr(linear, name, None) for linear in linears]
        return torch.cat(parts) if len(parts) > 1 and parts[0] is not None else parts[0]

    weight, bias, scale = map(joined, ("weight", "bias", "scale"))  # only int8 weights have a `scale`
    if scale is not None:
        multiply = partial(int8_product, weight=weight, bias=bias, scale=scale)
    else:
        multiply = sliced_product(weight, bias) if rows == 1 else packed_product(weight, bias, rows)

    def apply(x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = multiply(x) if residual is None else multiply(x).add_(residual)
        return y if activation is None else activation(y)

    return apply


def packed_product(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """A product by oneDNN, with the matrix packed once for this number of rows."""
    weight, linear = torch.ops.mkldnn._reorder_linear_weight(weight, rows), torch.ops.mkldnn._linear_pointwise
    return lambda x: linear.default(x, weight, bias, "none", [], "none")


def sliced_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A product of one row with slices of the matrix, one per thread; otherwise one thread would do all."""
    parts = max(n for n in range(1, torch.get_num_threads() + 1) if len(weight) % n == 0)
    weight = weight.view(parts, -1, weight.size(1)).mT
    bias = weight.new_zeros(1) if bias is None else bias.view(parts, 1, -1)
    return lambda x: torch.baddbmm(bias, x.expand(parts, 1, -1), weight).view(1, -1)


def norm_function(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """The norm of a few vectors without a module's look-ups, during which other threads would fall asleep."""
    if not isinstance(norm, LayerNorm):
        return norm.forward
    shape, *rest = norm.weight.shape, norm.weight, norm.bias, norm.eps
    return lambda x: F.layer_norm(x, shape, *rest)


class LayerProducts:
    """The matrix products of a decoder layer, each prepared for a fixed number of rows."""

    def __init__(self, layer: DecoderLayer, rows: int):
        own, cross, ffn = layer.self_attention, layer.cross_attention, layer.feed_forward
        add_norms = layer.add_norm_self, layer.add_norm_cross, layer.add_norm_feed_forward
        self.norms = [norm_function(one.norm) for one in add_norms]
        self.norm_first = add_norms[0].norm_first
        self.qkv, self.W_o = product(own.W_q, own.W_k, own.W_v, rows=rows), product(own.W_o, rows=rows)
        self.W_q, self.W_o_cross = product(cross.W_q, rows=rows), product(cross.W_o, rows=rows)
        self.W_1 = product(ffn.W_1, rows=rows, activation=ffn.activation)
        self.W_2 = product(ffn.W_2, rows=rows)
        self.d_k = own.d_k

    def add_norm(self, which: int, x: Tensor, inside: Callable[[Tensor], Tensor], last: Callable) -> Tensor:
        """`layers.AddAndNorm` around ``last ∘ inside``, without dropout; `last` also adds the residual."""
        if self.norm_first:
            return last(inside(self.norms[which](x)), x)
        return self.norms[which](last(inside(x), x))


class CPUSteps(Steps):
    """`Steps` for a model that passes `is_known`, with weights that oneDNN can pack: float32 on a CPU."""

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src, copies)
        rows = len(src) * copies
        self.update_score_mask()
        for source in self.source:
            source.k, source.v = source.k.contiguous(), source.v.contiguous()  # every step reads them
        self.layers = [LayerProducts(layer, rows) for layer in model.decoder_layers]
        self.norm, self.output = norm_function(model.decoder_norm), product(model.output, rows=rows)
        self.past = [KeyValueBuffer() for _ in self.layers]

    @torch.inference_mode()  # for one row, a tenth less work than with `no_grad`
    def next_logits(self, token: Int[Tensor, "rows 1"]) -> Float[Tensor, "rows vocab"]:
        """Same as `decoding.Steps.next_logits`."""
        embedding = self.model.target_embedding
        x = embedding.token.forward(token)
        if embedding.position is not None:
            x = embedding.position.forward(x, self.length)
        x = x[:, 0]
        self.length += 1
        for layer, past, source in zip(self.layers, self.past, self.source, strict=True):
            x = self.run_layer(x, layer, past, source)
        return self.output(self.norm(x))

    def run_layer(self, x: Float[Tensor, "rows d_model"], layer: LayerProducts, past, source) -> Tensor:
        """Same as `decoding.Steps.run_layer`."""

        def attend_to_past(y: Tensor) -> Tensor:
            qkv = layer.qkv(y).view(len(x), 3, -1, 1, layer.d_k).transpose(0, 1)  # (3, rows, heads, 1, d_k)
            return attention(qkv[0], *past.append(qkv[1:]))

        def attend_to_source(y: Tensor) -> Tensor:
            q = layer.W_q(y).view(-1, self.copies, source.k.size(1), layer.d_k).transpose(1, 2)
            return attention(q, source.k, source.v, self.score_mask)

        x = layer.add_norm(0, x, attend_to_past, layer.W_o)
        x = layer.add_norm(1, x, attend_to_source, layer.W_o_cross)
        return layer.add_norm(2, x, layer.W_1, layer.W_2)

    def keep_sentences(self, sentences: Int[Tensor, " kept"]) -> None:
        """Same as `Steps.keep_sentences`."""
        super().keep_sentences(sentences)
        self.update_score_mask()

    def update_score_mask(self) -> None:
        """Set `score_mask`, which `attention` adds to the scores of every sentence and head, if any is padded."""
        mask, heads = self.src_mask[:, 0], self.source[0].k.size(1)
        self.score_mask = None if mask.all() else additive(mask).repeat_interleave(heads, dim=0)


def attention(
    q: Float[Tensor, "rows heads queries d_k"],
    k: Float[Tensor, "rows heads keys d_k"],
    v: Float[Tensor, "rows heads keys d_k"],
    score_mask: Float[Tensor, "#matrices 1 #keys"] | None = None,
) -> Float[Tensor, "rows*queries d_model"]:
    """Attention of a few queries per row, with the heads concatenated."""
    rows, heads, queries, d_k = q.shape
    if rows == 1 or k.size(2) < MANY_KEYS:
        mask = None if score_mask is None else score_mask.view(rows, heads, 1, -1)
        y = F.scaled_dot_product_attention(q, k, v, mask)
    else:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        scores = torch.baddbmm(q.new_zeros(1) if score_mask is None else score_mask, q, k.mT, alpha=d_k**-0.5)
        y = torch.bmm(scores.softmax(-1), v).view(rows, heads, queries, d_k)
    return y.transpose(1, 2).reshape(rows * queries, heads * d_k)


class KeyValueBuffer:
    """The keys and values of all positions so far, written in place into a buffer that doubles when full."""

    def __init__(self):
        self.kv, self.spare, self.length = None, None, 0

    def append(self, kv: Float[Tensor, "2 rows heads 1 d_k"]) -> tuple[Tensor, Tensor]:
        """Append the keys and values of a new position; return those of all positions."""
        if self.kv is None:
            self.kv = kv[..., :0, :]
        if self.length == self.kv.size(3):
            self.kv = F.pad(self.kv, (0, 0, 0, max(16, self.length)))
        self.kv.narrow(3, self.length, 1).copy_(kv)
        self.length += 1
        return self.kv.narrow(3, 0, self.length).unbind(0)

    @torch.inference_mode()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Same as `KeyValueCache.keep`, between two buffers: new allocations take a third of a search."""
        shape = 2, len(rows), *self.kv.shape[2:]
        if self.spare is None or self.spare.shape != shape:
            self.spare = self.kv.new_empty(shape)
        for now, new in zip(self.kv, self.spare, strict=True):
            torch.index_select(now, 0, rows, out=new)
        self.kv, self.spare = self.spare, self.kv
