"""Masks: who may attend to whom (§3.2.3).

One convention everywhere: a mask is boolean, **True means "may attend"**, and it broadcasts to
``batch heads queries keys``. This is the convention of `torch.nn.functional.scaled_dot_product_attention`;
`torch.nn.MultiheadAttention` inverts it (there True means "may not").
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Mask = Bool[Tensor, "..."]


def padding_mask(ids: Int[Tensor, "batch keys"], pad_id: int) -> Bool[Tensor, "batch 1 1 keys"]:
    """Real tokens may be attended to, padding may not: ``mask[b, 0, 0, j] = ids[b, j] != pad_id``.

    The two axes of size one stand for heads and queries: every head and every query sees the same keys.
    A pitfall: a mask of shape ``(batch, keys)`` broadcasts against the wrong axes as soon as there are heads.

    Raises:
        ValueError: if `ids` does not have two axes or does not hold integers.
    """
    if ids.dim() != 2 or ids.is_floating_point():
        raise ValueError(f"ids: expected integers (batch, keys), got {ids.dtype} {list(ids.shape)}")
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    queries: int, keys: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 queries keys"]:
    """No position sees a later one: ``mask[0, 0, i, j] = j ≤ i + (keys − queries)`` (§3.2.3).

    With as many keys as queries, query i sees keys 0 … i. With more keys, as in decoding with a cache, the last
    query is aligned with the last key. A pitfall: PyTorch's ``is_causal`` aligns the first with the first
    instead; with a cache, that hides the past.

    Raises:
        ValueError: for fewer keys than queries: some query would come before every key.
    """
    keys = queries if keys is None else keys
    if not 0 <= queries <= keys:
        raise ValueError(f"expected 0 ≤ queries ≤ keys: {queries}, {keys}")
    mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return mask.tril(diagonal=keys - queries)


def segment_mask(
    query_segments: Int[Tensor, "batch queries"], key_segments: Int[Tensor, "batch keys"]
) -> Bool[Tensor, "batch 1 queries keys"]:
    """Attention stays within a segment, so that several sentences can share one row (Krell et al. 2021, packing).

    ``mask[b, 0, i, j] = query_segments[b, i] == key_segments[b, j]``. A pitfall: positions must also restart
    with every sentence, unless they are rotary, which only encode distances.
    """
    same = query_segments[:, :, None] == key_segments[:, None, :]  # (batch, queries, keys)
    return same[:, None]


def boolean(mask: Mask | Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Either kind of mask as a boolean one: in an additive mask 0 means "may attend", −∞ "may not".

    ``softmax(scores + mask)`` over all keys is ``softmax(scores)`` over the keys whose mask is 0. Stand-ins for
    −∞, −10,000 or less, count as −∞. A pitfall: floats 0 and 1 could mean either thing, so they are refused.

    Raises:
        ValueError: for a mask of integers, or of floats other than 0 and −∞.
    """
    if mask.dtype is torch.bool:
        return mask
    visible, hidden = mask == 0, mask <= -1e4
    if not (mask.is_floating_point() and (visible | hidden).all()):
        raise ValueError(f"mask: expected booleans, or floats 0 and −inf, got {mask.unique()[:3]}")
    return visible


def additive(mask: Bool[Tensor, "..."], dtype: torch.dtype = torch.float32) -> Float[Tensor, "..."]:
    """The mask as numbers to add to the scores, for libraries that expect them: 0 where True, −∞ where False.

    A pitfall: the softmax of a row of nothing but −∞ is NaN.

    Raises:
        ValueError: if the mask is not boolean.
    """
    if mask.dtype is not torch.bool:
        raise ValueError(f"mask: expected booleans, got {mask.dtype}")
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)


def combine(*masks: Mask | Float[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """A key may be attended to only if every mask allows it; None allows everything.

    ``combined = mask_1 ∧ mask_2 ∧ …``: the decoder needs padding *and* the future hidden (§3.2.3). A pitfall:
    "and" is right for True = may attend; masks of the other polarity need "or".

    Raises:
        ValueError: for a mask that `boolean` refuses.
    """
    combined = None
    for mask in masks:
        if mask is not None:
            mask = boolean(mask)
            combined = mask if combined is None else combined & mask
    return combined
