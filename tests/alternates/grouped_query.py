"""Grouped-query attention in other words."""

import torch

from transformer_lessons.attention import scaled_dot_product_attention


def refuse(query, key, value):
    if query.size(1) % key.size(1) or key.size(1) != value.size(1):
        raise ValueError("heads do not fit")
    return query.size(1) // key.size(1)


def repeated(query, key, value, mask=None):
    each = refuse(query, key, value)
    return scaled_dot_product_attention(
        query, key.repeat_interleave(each, 1), value.repeat_interleave(each, 1), mask
    )


def an_axis_for_the_members(query, key, value, mask=None):
    """Queries as (batch, groups, members, …): keys and values broadcast over the members."""
    each, groups = refuse(query, key, value), key.size(1)
    query = query.unflatten(1, (groups, each))
    scores = query @ key[:, :, None].mT / query.size(-1) ** 0.5
    if mask is not None:
        mask = torch.broadcast_to(mask, (len(query), groups * each, *scores.shape[-2:])).unflatten(
            1, (groups, each)
        )
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return (weights @ value[:, :, None]).flatten(1, 2), weights.flatten(1, 2)


def head_by_head(query, key, value, mask=None):
    each = refuse(query, key, value)
    heads = [(query[:, i], key[:, i // each], value[:, i // each]) for i in range(query.size(1))]
    if mask is None:
        masks = [None] * len(heads)
    else:
        full = mask.expand(len(query), len(heads), query.size(2), key.size(2))
        masks = full.unbind(1)
    found = [scaled_dot_product_attention(*head, m) for head, m in zip(heads, masks, strict=True)]
    return tuple(torch.stack(part, dim=1) for part in zip(*found, strict=True))


def gathered(query, key, value, mask=None):
    """Keys and values by index; einsum."""
    refuse(query, key, value)
    owner = torch.arange(query.size(1)) * key.size(1) // query.size(1)
    scores = torch.einsum("bhqd,bhkd->bhqk", query * query.size(-1) ** -0.5, key[:, owner])
    shown = torch.ones((), dtype=torch.bool) if mask is None else mask
    weights = torch.where(shown, scores, -1e30).softmax(-1) * shown
    return torch.einsum("bhqk,bhkv->bhqv", weights, value[:, owner]), weights


ALTERNATES = [repeated, an_axis_for_the_members, head_by_head, gathered]
