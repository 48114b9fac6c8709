"""The local window in other words."""

import torch


def refuse(queries, keys, window):
    if not 0 <= queries <= keys:
        raise ValueError("lengths do not fit")
    if window <= 0:
        raise ValueError("window: expected at least 1")


def two_triangles(queries, keys, window, *, device=None):
    refuse(queries, keys, window)
    full = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return full.tril(keys - queries).triu(keys - queries - window + 1)


def difference(queries, keys, window, device=None):
    refuse(queries, keys, window)
    full = torch.ones(queries, keys, device=device).tril(keys - queries)
    return (full - full.tril(keys - queries - window)).bool()[None, None]


def by_distance(queries, keys, window, *, device=None):
    refuse(queries, keys, window)
    rows = torch.arange(keys, device=device)[keys - queries :]
    distance = rows[:, None] - torch.arange(keys, device=device)
    return ((distance >= 0) & (distance < window)).reshape(1, 1, queries, keys)


def in_loops(queries, keys, window, *, device=None):
    refuse(queries, keys, window)
    rows = [[0 <= i + keys - queries - j < window for j in range(keys)] for i in range(queries)]
    return torch.tensor([[rows]], dtype=torch.bool, device=device).view(1, 1, queries, keys)


def in_slices(queries, keys, window, *, device=None):
    refuse(queries, keys, window)
    mask = torch.zeros(1, 1, queries, keys, dtype=torch.bool, device=device)
    for row in range(queries):
        stop = row + keys - queries + 1
        mask[..., row, max(0, stop - window) : stop] = True
    return mask


ALTERNATES = [two_triangles, difference, by_distance, in_loops, in_slices]
