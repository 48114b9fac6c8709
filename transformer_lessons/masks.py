"""Masks: who may attend to whom.

One convention everywhere: a mask is boolean, **True means "may attend"**, and it broadcasts to
``batch heads queries keys``. This is the convention of `torch.nn.functional.scaled_dot_product_attention`;
`torch.nn.MultiheadAttention` inverts it (there True means "may not"). An additive mask, 0 or −inf to be added
to the scores, says the same in floats: `boolean` and `additive` translate.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."]

# What people write for −inf: −1e9, −1e4 (which float16 can hold), the smallest number of a dtype.
HIDDEN = -1e4


def padding_mask(ids: Int[Tensor, "batch keys"], pad_id: int) -> Bool[Tensor, "batch 1 1 keys"]:
    """Real tokens may be attended to, padding may not: ``mask[b, 0, 0, j] = ids[b, j] != pad_id``.

    The two axes of size one stand for heads and queries: every head and every query sees the same keys.
    A mask of shape ``(batch, keys)`` would broadcast against the wrong axes as soon as there are heads.

    Args:
        ids: token ids.
        pad_id: the id that fills up short sequences.

    Raises:
        ValueError: if `ids` does not have two axes or does not hold integers.
    """
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype is torch.bool:
        raise ValueError(
            f"ids: expected integers of shape (batch, length), got {ids.dtype} {tuple(ids.shape)}"
        )
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    queries: int, keys: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 queries keys"]:
    """No position sees a later one (§3.2.3, "masked" attention in the decoder).

    With as many keys as queries, query i sees keys 0 … i. With more keys than queries, as in decoding with
    a cache, the last query is aligned with the last key: query i sees keys 0 … i + (keys − queries).
    (PyTorch's ``is_causal`` aligns the first with the first instead: with a cache, that hides the past.)

    Args:
        queries: number of query positions.
        keys: number of key positions, as many as queries unless given.
        device: where the mask is made; a mask on the CPU cannot meet scores on a GPU.

    Raises:
        ValueError: if a length is negative, or there are fewer keys than queries (some query would come
            before every key).
    """
    keys = queries if keys is None else keys
    if queries < 0:
        raise ValueError(f"queries: expected a length, 0 or more, got {queries}")
    if keys < queries:
        raise ValueError(f"keys: expected at least as many as queries ({queries}), got {keys}")
    mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return mask.tril(diagonal=keys - queries)


def segment_mask(
    query_segments: Int[Tensor, "batch queries"], key_segments: Int[Tensor, "batch keys"]
) -> Bool[Tensor, "batch 1 queries keys"]:
    """Attention stays within a segment, so that several sentences can share one row (packing).

    ``mask[b, 0, i, j] = query_segments[b, i] == key_segments[b, j]``

    Raises:
        ValueError: if the two have different batch sizes.
    """
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
        ValueError: for a mask of integers, or floats other than 0 and −inf.
    """
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
    """The mask as numbers to add to the scores: ``0`` where True, ``−inf`` where False (§3.2.3).

    For libraries that want this form; here, masks stay boolean. A pitfall: a row of nothing but −inf makes the
    softmax NaN.

    Raises:
        ValueError: if the mask is not boolean.
    """
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
        ValueError: for a mask that `boolean` refuses.
    """
    combined = None
    for number, mask in enumerate(masks):
        if mask is not None:
            visible = boolean(mask, f"masks[{number}]")
            combined = visible if combined is None else combined & visible
    return combined
