"""The segment mask in other words."""

import torch


def refuse(query_segments, key_segments):
    for segments in (query_segments, key_segments):
        if segments.ndim != 2 or segments.dtype.is_floating_point:
            raise ValueError("segments: expected integers of shape (batch, length)")
    if len(query_segments) != len(key_segments):
        raise ValueError("segments: expected one batch size")


def unsqueezed(query_segments, key_segments):
    refuse(query_segments, key_segments)
    return query_segments.unsqueeze(1).unsqueeze(-1).eq(key_segments.unsqueeze(1).unsqueeze(2))


def difference(query_segments, key_segments):
    refuse(query_segments, key_segments)
    return (query_segments[:, None, :, None] - key_segments[:, None, None, :]) == 0


def one_hot(query_segments, key_segments):
    """Two tokens share a segment if the product of their one-hot vectors is one."""
    refuse(query_segments, key_segments)
    names = torch.cat([query_segments.flatten(), key_segments.flatten()]).unique()
    queries, keys = ((s[..., None] == names).long() for s in (query_segments, key_segments))
    return torch.einsum("bqn,bkn->bqk", queries, keys).bool()[:, None]


def in_loops(query_segments, key_segments):
    refuse(query_segments, key_segments)
    rows = [
        [[[q == k for k in key] for q in query]]
        for query, key in zip(query_segments.tolist(), key_segments.tolist(), strict=True)
    ]
    return torch.tensor(rows)


ALTERNATES = [unsqueezed, difference, one_hot, in_loops]
