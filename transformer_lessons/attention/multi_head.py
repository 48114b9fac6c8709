"""Multi-head attention (§3.2.2), the module that the Transformer is made of."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.attention.dot_product import fused_attention, scaled_dot_product_attention
from transformer_lessons.attention.inputs import check_mask
from transformer_lessons.cache import KeyValueCache
from transformer_lessons.masks import Mask, combine, segment_mask

SegmentIds = Int[Tensor, "batch positions"] | tuple[Int[Tensor, "batch queries"], Int[Tensor, "batch keys"]]


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
        ValueError: for sizes below 1, if num_heads does not divide d_model (and d_k is not given) or
            num_key_value_heads does not divide num_heads, or a dropout outside [0, 1). When called: for inputs
            of another width, dtype or device than the weights', or of different batch sizes; a value without a
            key; segments or a cache of other shapes; and whatever `scaled_dot_product_attention` refuses.
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
        expect.sizes(d_model=d_model, num_heads=num_heads)
        expect.probability(dropout=dropout)
        if d_k is None and d_model % num_heads:
            raise ValueError(f"num_heads: expected a divisor of d_model = {d_model}, got {num_heads}")
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        self.d_k = d_model // num_heads if d_k is None else d_k
        self.d_v = self.d_k if d_v is None else d_v
        key_width = d_model if key_width is None else key_width
        value_width = d_model if value_width is None else value_width
        widths = {"d_k": self.d_k, "d_v": self.d_v, "key_width": key_width, "value_width": value_width}
        expect.sizes(num_key_value_heads=groups, **widths)
        if num_heads % groups:
            raise ValueError(
                f"num_key_value_heads: expected a divisor of num_heads = {num_heads}, got {groups}"
            )
        self.num_heads, self.num_key_value_heads, self.dropout = num_heads, groups, dropout
        self.W_q = nn.Linear(d_model, num_heads * self.d_k, bias)
        self.W_k = nn.Linear(key_width, groups * self.d_k, bias)
        self.W_v = nn.Linear(value_width, groups * self.d_v, bias)
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
        mask: Mask | None = None,
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
        if is_self and value is not None:
            raise ValueError("key: expected the keys of these values, got None")
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value, cache, rotate)
        start = cache.position if cache is not None and is_self else 0

        q, *projected = _projected(query, *((self.W_q, self.W_k, self.W_v) if is_self else (self.W_q,)))
        q = self._rotated(self._split(q, self.num_heads), rotate, start)

        def keys_and_values() -> tuple[Tensor, Tensor]:
            k, v = self._in_groups(*projected or self._read(key, value))
            return self._rotated(k, rotate, start), v

        if cache is None:
            k, v = keys_and_values()
        elif is_self:
            mask = check_mask(mask, q, cache.keys)
            k, v = cache.append(*keys_and_values())
            mask, is_causal = combine(_of_slots(mask, k), cache.visible(q.size(2))), False
        else:
            k, v = cache.fill_once(keys_and_values)
        if len(k) != len(q):
            raise ValueError(f"cache: expected batch size {len(q)}, as query, got {len(k)}")
        if segment_ids is not None:
            mask = combine(check_mask(mask, q, k), _segments(segment_ids, q, k))
        heads, weights = self._attend(q, k, v, mask, is_causal, need_weights)
        output = self.W_o(heads.transpose(1, 2).flatten(-2))
        return (output, weights) if need_weights else output

    def keys_and_values(
        self, memory: Float[Tensor, "batch keys width"]
    ) -> tuple[Float[Tensor, "batch heads keys d_k"], Float[Tensor, "batch heads keys d_v"]]:
        """What every query will meet in `memory`: for a cache of cross-attention, before the first of them.

        Raises:
            ValueError: for another width, dtype or device than the weights'.
        """
        for name, projection in (("key_width", self.W_k), ("value_width", self.W_v)):
            axes = ("batch", "length", name)
            expect.width(memory, projection.weight, *axes, name="memory", width_name=name, same_dtype=True)
        return self._in_groups(*self._read(memory, memory))

    def _in_groups(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self._split(k, self.num_key_value_heads), self._split(v, self.num_key_value_heads)

    def _read(self, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        return _projected(key, self.W_k, self.W_v) if value is key else (self.W_k(key), self.W_v(value))

    def _check(
        self, query: Tensor, key: Tensor, value: Tensor, cache: KeyValueCache | None, rotate: Callable | None
    ) -> None:
        inputs = (("query", query, self.W_q), ("key", key, self.W_k), ("value", value, self.W_v))
        for name, x, projection in inputs:
            weight, axes = projection.weight, ("batch", "length", "width")
            expect.width(x, weight, *axes, name=name, width_name="width", same_dtype=True)
        if len(key) != len(query):
            raise ValueError(f"key: expected batch size {len(query)}, as query, got {len(key)}")
        if value.shape[:2] != key.shape[:2]:
            expected = (*key.shape[:2], "…")
            raise ValueError(f"value: expected shape {expected}, as key, got {tuple(value.shape)}")
        if cache is not None:
            expect.kind(KeyValueCache, cache=cache)
        if rotate is not None:
            expect.function(rotate=rotate)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, is_causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        group = self.num_heads // self.num_key_value_heads
        if group > 1:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        options = {"is_causal": is_causal, "dropout": self.dropout if self.training else 0.0}
        if need_weights:
            return scaled_dot_product_attention(q, k, v, mask, **options)
        return fused_attention(q, k, v, mask, **options), None

    @staticmethod
    def _split(x: Float[Tensor, "batch length width"], heads: int) -> Float[Tensor, "batch heads length d"]:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    @staticmethod
    def _rotated(x: Tensor, rotate: Callable | None, start: int | Tensor) -> Tensor:
        return x if rotate is None else rotate(x, start + torch.arange(x.size(2), device=x.device))


def _projected(x: Tensor, *projections: nn.Linear) -> Sequence[Tensor]:
    """x in each projection: by one matrix product, if that is worth putting the matrices side by side."""
    widths = [projection.out_features for projection in projections]
    # Fewer and larger products keep a GPU busy; on two CPU cores they buy 2% of attention. For few vectors, as in
    # decoding, copying the matrices would cost more than multiplying by them.
    vectors = x.numel() // x.size(-1)
    if len(widths) == 1 or vectors < sum(widths) or not all(map(is_plain, projections)):
        return [projection(x) for projection in projections]
    weight = torch.cat([projection.weight for projection in projections])
    bias = [projection.bias for projection in projections if projection.bias is not None]
    return F.linear(x, weight, torch.cat(bias) if bias else None).split(widths, dim=-1)


def is_plain(projection: nn.Module) -> bool:
    """Whether it is ``x Wᵀ + b``, as in §3.2.2, and nothing else: no adapter, no hook that wants to be called.

    A pitfall: who multiplies by the weight of one that is not plain leaves out what the adapter adds.

    Raises:
        ValueError: for what is no module.
    """
    expect.kind(nn.Module, projection=projection)
    called = projection._forward_hooks, projection._forward_pre_hooks
    called += projection._backward_hooks, projection._backward_pre_hooks
    return type(projection) is nn.Linear and not any(called)


def _of_slots(mask: Tensor | None, k: Tensor) -> Tensor | None:
    """Of a mask over all slots of a cache, the part over those that came back."""
    return mask if mask is None or mask.size(-1) == 1 else mask[..., : k.size(2)]


def _segments(segment_ids: SegmentIds, q: Tensor, k: Tensor) -> Tensor:
    """The mask of `segment_ids`, if they are of the queries and keys that meet."""
    is_pair = isinstance(segment_ids, tuple) and len(segment_ids) == 2
    queries, keys = segment_ids if is_pair else (segment_ids, segment_ids)
    for segments, x, of in ((queries, q, "queries"), (keys, k, "keys")):
        expect.ids("batch", of, segment_ids=segments)
        if segments.shape != (x.size(0), x.size(2)):
            expected = f"shape {(x.size(0), x.size(2))} for the {of}"
            raise ValueError(f"segment_ids: expected {expected}, got {tuple(segments.shape)}")
        expect.same_device(x, "query", segment_ids=segments)
    return segment_mask(queries, keys)
