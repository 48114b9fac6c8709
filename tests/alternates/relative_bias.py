"""The relative bias in other words."""

import torch
import torch.nn.functional as F


def refuse(table, queries, keys):
    if keys < queries or table.shape[1] % 2 == 0:
        raise ValueError("keys, table")


def in_loops(table, queries, keys=None):
    keys = queries if keys is None else keys
    refuse(table, queries, keys)
    c = (table.size(1) - 1) // 2
    rows = []
    for i in range(keys - queries, keys):
        rows.append(torch.stack([table[:, c + max(-c, min(c, j - i))] for j in range(keys)], dim=1))
    return torch.stack(rows, dim=1)


def embedded(table, queries, keys=None):
    keys = queries if keys is None else keys
    refuse(table, queries, keys)
    c = table.size(1) // 2
    i, j = torch.arange(keys)[-queries:], torch.arange(keys)
    return F.embedding((j[None] - i[:, None]).clip(-c, c) + c, table.t()).permute(2, 0, 1)


def slid(table, queries, keys=None):
    """One long row of biases, of which each query sees a window."""
    keys = queries if keys is None else keys
    refuse(table, queries, keys)
    c = table.size(1) // 2
    row = table[:, torch.arange(1 - keys, queries).clamp(-c, c) + c]
    return row.unfold(1, keys, 1).flip(1)


def one_hot(table, queries, keys=None):
    keys = queries if keys is None else keys
    refuse(table, queries, keys)
    c = table.size(1) // 2
    distance = torch.arange(keys) - torch.arange(keys - queries, keys).unsqueeze(1)
    column = torch.minimum(torch.maximum(distance, torch.tensor(-c)), torch.tensor(c)) + c
    chosen = F.one_hot(column, table.size(1)).to(table.dtype)
    return torch.einsum("hc,qkc->hqk", table, chosen)


def gathered(table, queries, keys=None):
    keys = queries if keys is None else keys
    refuse(table, queries, keys)
    c, heads = table.size(1) // 2, table.size(0)
    column = (torch.arange(keys) - torch.arange(keys - queries, keys)[:, None] + c).clamp(0, 2 * c)
    return table.gather(1, column.flatten().expand(heads, -1)).view(heads, queries, keys)


ALTERNATES = [in_loops, embedded, slid, one_hot, gathered]
