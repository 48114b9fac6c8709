"""Attention (§3.2): every query takes an average of the values, weighted by how well it matches the keys.

Masks follow `masks`: boolean, True = may attend, broadcastable to ``batch heads queries keys``.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lessons.cache import KeyValueCache
from transformer_lessons.masks import causal_mask, combine, segment_mask

__all__ = ["KeyValueCache", "MultiHeadAttention", "fused_attention", "scaled_dot_product_attention"]

SegmentIds = Int[Tensor, "batch positions"] | tuple[Int[Tensor, "batch queries"], Int[Tensor, "batch keys"]]


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*batch queries d_v"], Float[Tensor, "*batch queries keys"]]:
    """Attention step by step, with the weights to look at (§3.2.1, equation 1).

    ``Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V``

    A query that may attend to nothing gets weights and output zero. Pitfalls: the divisor is √d_k, not d_k;
    the softmax runs over the keys, not the queries; the mask belongs before the softmax, or the visible
    weights no longer sum to one.

    Args:
        query, key, value: Q, K, V; usually ``*batch`` is ``batch heads``.
        mask: who may attend to whom.
        is_causal: also hide later positions, the last query aligned with the last key (`causal_mask`).
        dropout: probability of zeroing a weight; always active, so pass 0 when evaluating.

    Returns:
        The output, and the weights as they were before dropout.

    Raises:
        ValueError: for shapes that do not fit, or a mask that is not boolean.
    """
    mask = _check(query, key, value, mask, is_causal)
    # Products of large float16 overflow: scores and softmax are taken in float32 at least, as fused kernels do.
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(-1)
    else:
        # The smallest number, not −inf: a row without any key would be NaN, in the backward pass too.
        masked = scores.masked_fill(~mask, torch.finfo(wide).min)
        weights = masked.softmax(-1).masked_fill(~mask, 0.0)
    weights = weights.to(value.dtype)
    return F.dropout(weights, dropout) @ value, weights


def fused_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch queries d_v"]:
    """The output of `scaled_dot_product_attention` from PyTorch's fused kernels, which never hold all weights.

    Same formula, arguments and errors (§3.2.1, equation 1); memory grows with the length, not its square.
    A pitfall: any mask rules out the fastest kernel, so causal attention between equally many queries and
    keys is passed on as a flag, and a mask is only built where the flag cannot say it.
    """
    if is_causal and mask is None and query.size(-2) == key.size(-2):
        _check(query, key, value, None, False)
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mask = _check(query, key, value, mask, is_causal)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    # Kernels disagree on a query without any key (zeros, NaN, an average): let it see all, then zero it.
    blind = ~mask.any(-1, keepdim=True)
    output = F.scaled_dot_product_attention(query, key, value, mask | blind, dropout_p=dropout)
    return output.masked_fill(blind, 0.0)


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool
) -> Bool[Tensor, "..."] | None:
    """The one door of attention: refuses what does not fit, and folds `is_causal` into the mask."""
    *batch, queries, d_k = query.shape
    *key_batch, keys, key_width = key.shape
    if key_width != d_k or key_batch != batch:
        raise ValueError(f"key: expected shape {(*batch, '…', d_k)}, got {tuple(key.shape)}")
    if list(value.shape[:-1]) != [*batch, keys]:
        raise ValueError(
            f"value: expected shape {(*batch, keys, '…')}, as the keys, got {tuple(value.shape)}"
        )
    if mask is not None:
        if mask.dtype is not torch.bool:
            raise ValueError(f"mask: expected dtype torch.bool, True = may attend, got {mask.dtype}")
        scores = [*batch, queries, keys]
        sizes = zip(reversed(mask.shape), reversed(scores), strict=False)
        if mask.dim() > len(scores) or any(size not in (1, full) for size, full in sizes):
            raise ValueError(f"mask: expected to broadcast to {tuple(scores)}, got {tuple(mask.shape)}")
        mask = torch.atleast_2d(mask)  # the kernels want an axis for the queries
    if is_causal:
        mask = combine(mask, causal_mask(queries, keys, device=query.device)[0, 0])
    return mask


class MultiHeadAttention(nn.Module):
    """Several attentions in parallel, each in its own projection of the input (§3.2.2).

    ``MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_o,  head_i = Attention(Q W_q^i, K W_k^i, V W_v^i)``

    The per-head matrices are slices of one W_q, W_k and W_v: project first, then split. A pitfall: heads are
    split by ``view(batch, length, heads, d_k)`` *and* a transpose; a view straight to
    ``(batch, heads, length, d_k)`` has the right shape and mixes positions with heads.

    Args:
        d_model: width of queries and of the output.
        num_heads: number of heads h.
        num_key_value_heads: fewer heads for keys and values, each shared by a group of query heads
            (grouped-query attention, Ainslie et al. 2023); as many as `num_heads` unless given.
        d_k, d_v: width of a head's keys and values; d_model / num_heads unless given.
        key_width, value_width: width of the keys and values coming in; d_model unless given.
        dropout: probability of zeroing an attention weight while training.
        bias: whether the four projections have biases.

    Raises:
        ValueError: if num_heads does not divide d_model (and d_k is not given), or num_key_value_heads
            does not divide num_heads.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_key_value_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        if num_heads < 1 or (d_k is None and d_model % num_heads):
            raise ValueError(f"num_heads: expected a divisor of d_model = {d_model}, got {num_heads}")
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        if groups < 1 or num_heads % groups:
            raise ValueError(
                f"num_key_value_heads: expected a divisor of num_heads = {num_heads}, got {groups}"
            )
        self.num_heads, self.num_key_value_heads = num_heads, groups
        self.d_k = d_model // num_heads if d_k is None else d_k
        self.d_v = self.d_k if d_v is None else d_v
        self.dropout = dropout
        self.W_q = nn.Linear(d_model, num_heads * self.d_k, bias)
        self.W_k = nn.Linear(key_width or d_model, groups * self.d_k, bias)
        self.W_v = nn.Linear(value_width or d_model, groups * self.d_v, bias)
        self.W_o = nn.Linear(num_heads * self.d_v, d_model, bias)
        for projection in (self.W_q, self.W_k, self.W_v, self.W_o):
            nn.init.xavier_uniform_(projection.weight)
            if bias:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Float[Tensor, "batch queries d_model"],
        key: Float[Tensor, "batch keys key_width"] | None = None,
        value: Float[Tensor, "batch keys value_width"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        segment_ids: SegmentIds | None = None,
        cache: KeyValueCache | None = None,
        rotate: Callable[[Tensor, Tensor], Tensor] | None = None,
        need_weights: bool = False,
    ) -> (
        Float[Tensor, "batch queries d_model"]
        | tuple[Float[Tensor, "batch queries d_model"], Float[Tensor, "batch heads queries keys"]]
    ):
        """Attend. With `query` alone it is self-attention; with `key` (and `value`, `key` unless given) cross.

        Args:
            query, key, value: the three inputs, not yet projected.
            mask: who may attend to whom, over the keys given here (with a cache: over its slots).
            is_causal: also hide later positions; with a self-attention cache that is always so.
            segment_ids: attend within a segment only; for cross-attention a pair (of queries, of keys).
            cache: keys and values of earlier calls; self-attention appends to it, cross-attention fills it once.
            rotate: called with queries or keys split into heads and their positions, before they meet.
            need_weights: return the weights too, of every head (this takes the step-by-step path).
        """
        is_self = key is None
        key = query if key is None else key
        value = key if value is None else value
        start = cache.position if cache is not None and is_self else 0

        def keys_and_values() -> tuple[Tensor, Tensor]:
            k = self._split(self.W_k(key), self.num_key_value_heads)
            v = self._split(self.W_v(value), self.num_key_value_heads)
            return self._rotated(k, rotate, start), v

        q = self._rotated(self._split(self.W_q(query), self.num_heads), rotate, start)
        if cache is None:
            k, v = keys_and_values()
        elif is_self:
            k, v = cache.append(*keys_and_values())
            mask, is_causal = combine(mask, cache.visible(q.size(2))), False
        else:
            k, v = cache.fill_once(keys_and_values)
        if segment_ids is not None:
            segments = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
            mask = combine(mask, segment_mask(*segments))
        group = self.num_heads // self.num_key_value_heads
        if group > 1:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            heads, weights = scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, dropout=dropout)
            return self._merge(heads), weights
        return self._merge(fused_attention(q, k, v, mask, is_causal=is_causal, dropout=dropout))

    @staticmethod
    def _split(x: Float[Tensor, "batch length width"], heads: int) -> Float[Tensor, "batch heads length d"]:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    @staticmethod
    def _rotated(x: Tensor, rotate: Callable | None, start: int | Tensor) -> Tensor:
        return x if rotate is None else rotate(x, start + torch.arange(x.size(2), device=x.device))

    def _merge(self, heads: Float[Tensor, "batch heads length d_v"]) -> Float[Tensor, "batch length d_model"]:
        return self.W_o(heads.transpose(1, 2).flatten(-2))
