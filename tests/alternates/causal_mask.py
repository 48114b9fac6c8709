"""The causal mask in other words."""

import torch


def refuse(queries, keys):
    if queries < 0 or keys < queries:
        raise ValueError("lengths do not fit")


def compared(queries, keys=None, *, device=None):
    keys = keys if keys is not None else queries
    refuse(queries, keys)
    rows = torch.arange(keys - queries, keys, device=device)
    return (rows[:, None] >= torch.arange(keys, device=device))[None, None]


def complement_of_triu(queries, keys=None, device="cpu"):
    keys = queries if keys is None else keys
    refuse(queries, keys)
    hidden = torch.triu(torch.ones((1, 1, queries, keys), device=device), diagonal=keys - queries + 1)
    return hidden == 0


def in_loops(queries, keys=None, *, device=None):
    keys = queries if keys is None else keys
    refuse(queries, keys)
    rows = [[j <= i + keys - queries for j in range(keys)] for i in range(queries)]
    return torch.tensor(rows, dtype=torch.bool, device=device).reshape(1, 1, queries, keys)


def cut_from_square(queries, keys=None, *, device=None):
    """The last rows of the square mask over all keys."""
    keys = queries if keys is None else keys
    refuse(queries, keys)
    square = torch.ones(keys, keys, dtype=torch.bool, device=device).tril()
    return square[keys - queries :].unsqueeze(0).unsqueeze(0)


def running_sum(queries, keys=None, *, device=None):
    """Ones on the diagonal, spread to the left by a cumulative sum."""
    keys = queries if keys is None else keys
    refuse(queries, keys)
    diagonal = torch.eye(keys, device=device)[keys - queries :]
    return diagonal.flip(-1).cumsum(-1).flip(-1).bool()[None, None]


ALTERNATES = [compared, complement_of_triu, in_loops, cut_from_square, running_sum]
