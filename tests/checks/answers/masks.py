"""Masks."""

import math
from functools import reduce

import torch
from torch import nn

# padding_mask


def padding_by_unsqueeze(src, pad_idx):
    """The form of many tutorials."""
    return (src != pad_idx).unsqueeze(1).unsqueeze(2)


def padding_in_loops(ids, pad_id):
    return torch.tensor([[[[token != pad_id for token in row]]] for row in ids.tolist()])


def padding_not_equal(ids, pad_id):
    return ids.eq(pad_id).logical_not().view(len(ids), 1, 1, -1)


def padding_at_the_end_only(ids, pad_id):
    """A slip that is on no list: the last id decides nothing."""
    real = ids != pad_id
    real[:, -1] = True
    return real[:, None, None, :]


# causal_mask


def causal_annotated(size):
    """The form of the Annotated Transformer, for as many keys as queries."""
    return torch.triu(torch.ones(1, size, size), diagonal=1) == 0


def causal_by_tril(queries, keys=None):
    keys = keys or queries
    return torch.tril(torch.ones(queries, keys), diagonal=keys - queries).bool()


def causal_by_comparison(queries, keys=None, *, device=None):
    keys = queries if keys is None else keys
    place = torch.arange(keys)
    return place <= place[keys - queries :, None]


def causal_in_loops(queries, keys=None):
    keys = queries if keys is None else keys
    rows = [[j <= i + keys - queries for j in range(keys)] for i in range(queries)]
    return torch.tensor([[rows]])


def causal_last_rows(queries, keys=None):
    """The last rows of the square one, as nanoGPT registers it, made boolean."""
    keys = queries if keys is None else keys
    bias = torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16)
    return bias[:, :, keys - queries : keys, :keys] == 1


def causal_every_other(queries, keys=None):
    """A slip that is on no list: a query sees every other key before it."""
    keys = queries if keys is None else keys
    apart = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    return (apart >= 0) & (apart % 2 == 0)


# combine_masks


def refused(masks):
    if any(mask.dtype != torch.bool for mask in masks):
        raise ValueError("masks of booleans are expected")
    try:
        return torch.broadcast_shapes(*(mask.shape for mask in masks))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def combined_by_reduce(*masks):
    masks = [mask for mask in masks if mask is not None]
    refused(masks)
    return reduce(torch.logical_and, masks) if masks else None


def combined_by_all(*masks):
    masks = [mask for mask in masks if mask is not None]
    if masks:
        shape = refused(masks)
        return torch.stack([mask.expand(shape) for mask in masks]).all(0)


def combined_by_product(*masks):
    """Four axes, whatever the masks have."""
    masks = [mask[(None,) * (4 - mask.dim())] for mask in masks if mask is not None]
    refused(masks)
    return math.prod(masks[1:], start=masks[0]) if masks else None


def combined_as_odd(*masks):
    """A slip that is on no list: True where an odd number of masks is."""
    masks = [mask for mask in masks if mask is not None]
    refused(masks)
    return reduce(torch.logical_xor, masks) if masks else None


# masked_self_attention


def attended_annotated(x, ids, pad_id):
    """The form of the Annotated Transformer, and zeros for rows that see nothing."""
    mask = (ids != pad_id)[:, None, None, :] & (torch.triu(torch.ones(1, *[x.size(2)] * 2), diagonal=1) == 0)
    scores = torch.matmul(x, x.transpose(-2, -1)) / math.sqrt(x.size(-1))
    p_attn = scores.masked_fill(mask == 0, -1e9).softmax(dim=-1)
    return torch.matmul(p_attn, x) * mask.any(-1, keepdim=True)


def attended_with_infinity(x, ids, pad_id):
    later = torch.ones(x.size(2), x.size(2), dtype=torch.bool).triu(1)
    hidden = later | ids.eq(pad_id)[:, None, None]
    scores = torch.einsum("bhid,bhjd->bhij", x, x) / x.size(3) ** 0.5
    return torch.nan_to_num(scores.masked_fill(hidden, float("-inf")).softmax(3)) @ x


def attended_in_loops(x, ids, pad_id):
    output = torch.zeros_like(x)
    for b in range(x.size(0)):
        for i in range(x.size(2)):
            visible = [j for j in range(i + 1) if ids[b, j] != pad_id]
            if visible:
                memory = x[b][:, visible]
                scores = (memory * x[b, :, i, None]).sum(-1) / x.size(-1) ** 0.5
                output[b, :, i] = (scores.softmax(-1)[..., None] * memory).sum(1)
    return output


def attended_fused(x, ids, pad_id):
    """PyTorch's own; some versions give NaN for empty rows."""
    mask = (ids != pad_id)[:, None, None] & torch.ones(x.size(2), x.size(2), dtype=torch.bool).tril()
    return nn.functional.scaled_dot_product_attention(x, x, x, mask).nan_to_num()


def attended_sharply(x, ids, pad_id):
    """A slip that is on no list: scores that are much too large."""
    mask = (ids != pad_id)[:, None, None] & torch.ones(x.size(2), x.size(2), dtype=torch.bool).tril()
    weights = (3 * x @ x.mT).masked_fill(~mask, -1e9).softmax(-1).masked_fill(~mask, 0.0)
    return weights @ x


def attended_with_repeated_padding(x, ids, pad_id):
    """A slip that is on no list, and shows with several heads: repeat for repeat_interleave."""
    batch, heads, length, width = x.shape
    real = (ids != pad_id).repeat(heads, 1).view(batch, heads, 1, length)
    visible = real & torch.ones(length, length, dtype=torch.bool).tril()
    scores = (x @ x.mT / math.sqrt(width)).masked_fill(~visible, -1e9)
    return scores.softmax(-1).masked_fill(~visible, 0.0) @ x


# local_window_mask


def window_of_two_triangles(queries, keys, window, *, device=None):
    full = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return full.tril(keys - queries).triu(keys - queries - window + 1)


def window_by_difference(queries, keys, window):
    full = torch.ones(queries, keys).tril(keys - queries)
    return (full - full.tril(keys - queries - window)).bool()


def window_in_slices(queries, keys, window):
    mask = torch.zeros(queries, keys, dtype=torch.bool)
    for row in range(queries):
        stop = row + keys - queries + 1
        mask[row, max(0, stop - window) : stop] = True
    return mask[None, None]


def window_with_a_sink(queries, keys, window):
    """A slip that is on no list here: the first key stays visible to all."""
    apart = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    return (apart >= 0) & ((apart < window) | (torch.arange(keys) == 0))


# segment_mask


def segments_by_unsqueeze(query_segments, key_segments):
    return query_segments.unsqueeze(1).unsqueeze(-1).eq(key_segments.unsqueeze(1).unsqueeze(2))


def segments_in_loops(query_segments, key_segments):
    pairs = zip(query_segments.tolist(), key_segments.tolist(), strict=True)
    return torch.tensor([[[[q == k for k in keys] for q in queries]] for queries, keys in pairs])


def segments_by_difference(query_segments, key_segments):
    return ((query_segments[:, None, :, None] - key_segments[:, None, None, :]) == 0) & True


def segments_of_neighbours(query_segments, key_segments):
    """A slip that is on no list: neighbouring numbers see each other."""
    return (query_segments[:, None, :, None] - key_segments[:, None, None, :]).abs() <= 1


def segments_by_one_hot(query_segments, key_segments):
    """A slip that is on no list: an error for negative numbers."""
    count = int(max(query_segments.max(), key_segments.max())) + 1
    queries, keys = (nn.functional.one_hot(x, count).float() for x in (query_segments, key_segments))
    return (queries @ keys.mT > 0)[:, None]


RIGHT = {
    "padding_mask": [padding_by_unsqueeze, padding_in_loops, padding_not_equal],
    "causal_mask": [causal_by_tril, causal_by_comparison, causal_in_loops, causal_last_rows],
    "combine_masks": [combined_by_reduce, combined_by_all, combined_by_product],
    "masked_self_attention": [attended_annotated, attended_with_infinity, attended_in_loops, attended_fused],
    "local_window_mask": [window_of_two_triangles, window_by_difference, window_in_slices],
    "segment_mask": [segments_by_unsqueeze, segments_in_loops, segments_by_difference],
}
WRONG = {
    "padding_mask": [(padding_at_the_end_only, {"values"}, set())],
    "causal_mask": [
        (causal_annotated, {"keys"}, set()),
        (causal_every_other, {"triangle", "keys"}, set()),
    ],
    "combine_masks": [(combined_as_odd, {"values", "several", "broadcasting", "none"}, set())],
    "masked_self_attention": [
        (attended_sharply, {"attention"}, set()),
        (attended_with_repeated_padding, {"sentences"}, set()),
    ],
    "local_window_mask": [(window_with_a_sink, {"values", "more_keys"}, set())],
    "segment_mask": [
        (segments_of_neighbours, {"values", "cross"}, set()),
        (segments_by_one_hot, {"values", "cross"}, set()),
    ],
}
