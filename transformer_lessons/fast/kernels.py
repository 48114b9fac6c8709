"""Attention and layer norm by PyTorch's fused kernels, in place of the canon's."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.fast.products import is_plain, linear
from transformer_lessons.masks import Mask, causal_mask, combine
from transformer_lessons.norms import LayerNorm

SHORT = {"cuda": 64}  # up to this many queries the kernel with masks is faster: its tiles are 64 × 64


def fused_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Mask | None = None,
    *,
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch queries d_v"], None]:
    """`attention.scaled_dot_product_attention` by fused kernels, which never store all weights.

    Returns None as weights. Memory grows with the length, not its square. A pitfall: any mask rules out the
    fastest kernel for long sentences, so for them causal attention is passed on as a flag wherever possible.
    """
    queries, keys = query.size(-2), key.size(-2)
    if is_causal and (mask is not None or queries != keys):
        mask, is_causal = combine(mask, causal_mask(queries, keys, device=query.device)[0, 0]), False
    if mask is None:
        if is_causal and queries <= SHORT.get(query.device.type, 0):
            mask, is_causal = causal_mask(queries, device=query.device)[0, 0], False
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal), None
    # Kernels disagree on a query without any key (zeros, NaN, an average): let it see all keys, then zero it.
    mask = torch.atleast_2d(mask)
    blind = ~mask.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, mask | blind).masked_fill(blind, 0.0), None


class FusedMultiHeadAttention(MultiHeadAttention):
    """Multi-head attention by fused kernels, with one product for all projections of the same input."""

    attention = staticmethod(fused_attention)

    def forward(self, query, key=None, value=None, mask=None, *, is_causal=False):
        """Same as `attention.MultiHeadAttention`."""
        if key is not None or value is not None:
            return super().forward(query, key, value, mask, is_causal=is_causal)
        q, k, v = self.projected(query, self.W_q, self.W_k, self.W_v)
        heads, _ = self.attention(q, k, v, mask, is_causal=is_causal)
        return self.W_o(heads.transpose(1, 2).flatten(-2))

    def keys_and_values(self, key, value):
        """Same as `attention.MultiHeadAttention`."""
        if value is not key:
            return super().keys_and_values(key, value)
        return tuple(self.projected(key, self.W_k, self.W_v))

    def projected(self, x: Float[Tensor, "batch positions d_model"], *projections: nn.Linear) -> list[Tensor]:
        """Each projection of x, split into heads."""
        # For few vectors, copying the matrices would cost more than multiplying by them.
        if x.numel() < x.size(-1) ** 2 or not all(is_plain(p) and p.bias is not None for p in projections):
            return [self.split(projection(x)) for projection in projections]
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        return [self.split(one) for one in linear(x, weight, bias).chunk(len(projections), dim=-1)]


class FusedLayerNorm(LayerNorm):
    """A `norms.LayerNorm` in one pass over x instead of seven."""

    def forward(self, x):
        """Same as `norms.LayerNorm`."""
        if x.dtype != self.weight.dtype:  # under autocast
            return super().forward(x)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
