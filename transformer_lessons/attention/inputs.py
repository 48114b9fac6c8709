"""The one door of attention: what does not fit is refused, and every kind of mask becomes a boolean one."""

import torch
from jaxtyping import Bool
from torch import Tensor

from transformer_lessons import expect
from transformer_lessons.masks import boolean, causal_mask, combine


def check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Query and key must meet in width, key and value in length, all three in batch, dtype and device.

    Raises:
        ValueError: for what does not fit, naming the argument.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        expect.kind(Tensor, **{name: tensor})
        if tensor.dim() < 2 or not tensor.is_floating_point():
            raise ValueError(
                f"{name}: expected floats of two axes or more, got {tensor.dtype} {tuple(tensor.shape)}"
            )
    *batch, _, d_k = query.shape
    if not d_k:
        raise ValueError(f"query: expected a last axis of d_k = 1 or more, got {tuple(query.shape)}")
    *key_batch, keys, key_width = key.shape
    if key_width != d_k or key_batch != batch:
        raise ValueError(f"key: expected shape {(*batch, '…', d_k)}, got {tuple(key.shape)}")
    if list(value.shape[:-1]) != [*batch, keys]:
        raise ValueError(
            f"value: expected shape {(*batch, keys, '…')}, as the keys, got {tuple(value.shape)}"
        )
    expected = f"{query.dtype} on {query.device}"
    for name, tensor in (("key", key), ("value", value)):
        got = f"{tensor.dtype} on {tensor.device}"
        if got != expected:
            raise ValueError(f"{name}: expected {expected}, as query, got {got}")


def check_mask(
    mask: Tensor | None, query: Tensor, key: Tensor, is_causal: bool = False
) -> Bool[Tensor, "..."] | None:
    """The mask as booleans of two axes or more, with `is_causal` folded in; None if everything is visible.

    Raises:
        ValueError: for a mask that `masks.boolean` refuses, that does not broadcast to the scores or lies on
            another device; with `is_causal`, for fewer keys than queries.
    """
    scores = (*query.shape[:-1], key.size(-2))
    if mask is not None:
        mask = torch.atleast_2d(boolean(mask))  # the kernels want an axis for the queries
        expect.broadcasts(mask, scores)
        expect.same_device(query, "query", mask=mask)
    if is_causal:
        mask = combine(mask, causal_mask(*scores[-2:], device=query.device)[0, 0])
    return mask
