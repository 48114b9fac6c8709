"""Masks: who may attend to whom.

One convention everywhere: a mask is boolean, **True means "may attend"**, and it broadcasts to
``batch heads queries keys``. This is the convention of `torch.nn.functional.scaled_dot_product_attention`;
`torch.nn.MultiheadAttention` inverts it (there True means "may not"). An additive mask, 0 or −inf to be added
to the scores, says the same in floats: `boolean` and `additive` translate.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lessons import expect

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."]

# What people write for −inf: −1e9, −1e4 (which float16 can hold), the smallest number of a dtype.
HIDDEN = -1e4


def padding_mask(ids: Int[Tensor, "batch keys"], pad_id: int) -> Bool[Tensor, "batch 1 1 keys"]:
    """Real tokens may be attended to, padding may not: ``mask[b, 0, 0, j] = ids[b, j] != pad_id``.

    Sentences of a batch differ in length (§5.1), so the short ones are filled up. The two axes of size one
    stand for heads and queries: every head and every query sees the same keys. A pitfall: a mask of shape
    ``(batch, keys)`` would broadcast against the wrong axes as soon as there are heads.

    Args:
        ids: token ids.
        pad_id: the id that fills up short sequences.

    Raises:
        ValueError: if `ids` does not have two axes or does not hold int64 or int32, or `pad_id` is no integer.
    """
    expect.ids(ids=ids)
    expect.integers(pad_id=pad_id)
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    queries: int, keys: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 queries keys"]:
    """No position sees a later one (§3.2.3, "masked" attention in the decoder).

    ``mask[0, 0, i, j] = j ≤ i + (keys − queries)``

    With as many keys as queries, query i sees keys 0 … i. With more keys than queries, as in decoding with
    a cache, the last query is aligned with the last key. A pitfall: PyTorch's ``is_causal`` aligns the first
    with the first instead; with a cache, that hides the past.

    Args:
        queries: number of query positions.
        keys: number of key positions, as many as queries unless given.
        device: where the mask is made; a mask on the CPU cannot meet scores on a GPU.

    Raises:
        ValueError: if a length is negative or no integer, or there are fewer keys than queries (some query would
            come before every key).
    """
    keys = queries if keys is None else keys
    expect.lengths(queries=queries, keys=keys)
    if keys < queries:
        raise ValueError(f"keys: expected at least as many as queries ({queries}), got {keys}")
    mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return mask.tril(diagonal=keys - queries)


def segment_mask(
    query_segments: Int[Tensor, "batch queries"], key_segments: Int[Tensor, "batch keys"]
) -> Bool[Tensor, "batch 1 queries keys"]:
    """Attention stays within a segment, so that several sentences can share one row (Krell et al. 2021, packing).

    ``mask[b, 0, i, j] = query_segments[b, i] == key_segments[b, j]``. A pitfall: positions must start anew with
    every sentence too, unless they are rotary, which only know distances.

    Raises:
        ValueError: for what is no int64 or int32 of two axes, or if batch sizes or devices differ.
    """
    expect.ids("batch", "queries", query_segments=query_segments)
    expect.ids("batch", "keys", key_segments=key_segments)
    expect.same_device(query_segments, "query_segments", key_segments=key_segments)
    if query_segments.size(0) != key_segments.size(0):
        raise ValueError(
            f"key_segments: expected batch size {query_segments.size(0)}, got {key_segments.size(0)}"
        )
    return (query_segments[:, :, None] == key_segments[:, None, :])[:, None]


def boolean(mask: Mask, name: str = "mask") -> Bool[Tensor, "..."]:
    """Either kind of mask as a boolean one: in an additive mask 0 means "may attend", −inf "may not".

    ``softmax(scores + mask)`` over all keys is ``softmax(scores)`` over the keys whose mask is 0 (§3.2.3: "by
    masking out (setting to −∞)"). Stand-ins for −inf, −10,000 or below, count as −inf.

    A pitfall: floats 0 and 1 could mean either thing, so they are refused, like biases; telling them apart
    needs a look at the values, which makes the CPU wait for a GPU. Boolean masks cost nothing.

    Args:
        mask: boolean or additive.
        name: what the caller calls it, for the error.

    Raises:
        ValueError: for what is no tensor, a mask of integers, or floats other than 0 and −inf.
    """
    expect.kind(Tensor, **{name: mask})
    if mask.dtype is torch.bool:
        return mask
    expected = f"{name}: expected booleans, True = may attend, or floats, 0 = may attend and −inf = may not"
    if not mask.is_floating_point():
        raise ValueError(f"{expected}, got {mask.dtype}")
    visible = mask == 0
    if mask.device.type == "meta" or torch.compiler.is_compiling():
        return visible  # there are no values to look at
    if not (visible | (mask <= HIDDEN)).all():
        odd = mask[~visible & ~(mask <= HIDDEN)][0].item()
        raise ValueError(f"{expected}, got {mask.dtype} with {odd:g} in it")
    return visible


def additive(mask: Bool[Tensor, "..."], dtype: torch.dtype = torch.float32) -> Float[Tensor, "..."]:
    """The mask as numbers to add to the scores (§3.2.3).

    ``0`` where True, ``−inf`` where False: ``softmax(scores + additive(mask))`` is softmax over the visible keys

    For libraries that want this form; here, masks stay boolean. A pitfall: a row of nothing but −inf makes the
    softmax NaN.

    Raises:
        ValueError: if the mask is not boolean, or `dtype` holds no floats.
    """
    expect.kind(Tensor, mask=mask)
    expect.kind(torch.dtype, dtype=dtype)
    if not dtype.is_floating_point:
        raise ValueError(f"dtype: expected one of floats, which have −inf, got {dtype}")
    if mask.dtype is not torch.bool:
        raise ValueError(f"mask: expected booleans, True = may attend, got {mask.dtype}")
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)


def combine(*masks: Mask | None) -> Bool[Tensor, "..."] | None:
    """A key may be attended to only if every mask allows it; None allows everything.

    ``combined = mask_1 ∧ mask_2 ∧ …`` (§3.2.3: the decoder needs padding *and* order hidden.) Masks broadcast
    against each other: padding ``(batch, 1, 1, keys)`` with causal ``(1, 1, queries, keys)`` gives
    ``(batch, 1, queries, keys)``. Of no mask at all the combination is None.

    A pitfall: "and" is right for True = may attend; masks of the other polarity want "or".

    Raises:
        ValueError: for a mask that `boolean` refuses, masks that do not broadcast, or on two devices.
    """
    combined = None
    for number, mask in enumerate(masks):
        if mask is not None:
            visible = boolean(mask, f"masks[{number}]")
            combined = visible if combined is None else _both(combined, visible, f"masks[{number}]")
    return combined


def _both(combined: Tensor, mask: Tensor, name: str) -> Bool[Tensor, "..."]:
    expect.same_device(combined, "those before", **{name: mask})
    axes = range(-min(mask.dim(), combined.dim()), 0)  # aligned at the last one
    sizes = ((mask.size(axis), combined.size(axis)) for axis in axes)
    if any(size != other and 1 not in (size, other) for size, other in sizes):
        raise ValueError(
            f"{name}: expected to broadcast with {tuple(combined.shape)}, got {tuple(mask.shape)}"
        )
    return combined & mask
