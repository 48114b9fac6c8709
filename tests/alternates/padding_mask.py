"""The padding mask in other words."""

import torch


def refuse(ids):
    if ids.ndim != 2 or ids.dtype.is_floating_point:
        raise ValueError("ids must be a batch of token ids")


def unsqueezed(ids, pad_id):
    refuse(ids)
    return (ids != pad_id).unsqueeze(1).unsqueeze(1)


def viewed(tokens, padding):
    refuse(tokens)
    batch, keys = tokens.shape
    return tokens.ne(padding).view(batch, 1, 1, keys)


def negated(ids, pad_id):
    refuse(ids)
    return ~torch.eq(ids, pad_id)[:, None, None]


def in_loops(ids, pad_id):
    refuse(ids)
    rows = [[token != pad_id for token in row] for row in ids.tolist()]
    return torch.tensor(rows, dtype=torch.bool).reshape(ids.size(0), 1, 1, ids.size(1))


def started_from_ones(ids, pad_id):
    refuse(ids)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[ids == pad_id] = False
    return mask[:, None, None, :]


ALTERNATES = [unsqueezed, viewed, negated, in_loops, started_from_ones]
