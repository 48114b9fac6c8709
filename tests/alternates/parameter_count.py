"""The number of parameters in other words."""

import math


def by_shapes(
    vocab_size, d_model, d_ff, num_layers, num_heads, d_k, *, tied="all", norm_first=False, share_layers=False
):
    """A list of all shapes, multiplied out and summed."""
    if tied not in ("all", "output", "none"):
        raise ValueError(tied)
    if any(size < 1 for size in (vocab_size, d_model, d_ff, num_layers, num_heads, d_k)):
        raise ValueError("sizes")
    inner, norm = num_heads * d_k, [(d_model,), (d_model,)]
    attention = [(d_model, inner), (inner,)] * 3 + [(inner, d_model), (d_model,)]
    network = [(d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)]
    stacks = [attention + network + norm * 2, attention * 2 + network + norm * 3]
    shapes = [stack * (1 if share_layers else num_layers) for stack in stacks]
    shapes.append([(vocab_size, d_model)] * (1 + ("all", "output", "none").index(tied)))
    shapes.append(norm * 2 if norm_first else [])
    return sum(math.prod(shape) for group in shapes for shape in group)


def by_formula(V, d, d_ff, N, h, d_k, *, tied="all", norm_first=False, share_layers=False):
    """As equation 13.6, one term after the other."""
    if min(V, d, d_ff, N, h, d_k) < 1 or tied not in {"all", "output", "none"}:
        raise ValueError("arguments")
    A = 4 * d * h * d_k + 3 * h * d_k + d
    F = 2 * d * d_ff + d_ff + d
    total = (3 * A + 2 * F + 10 * d) * (N if not share_layers else 1)
    total += V * d
    if tied != "all":
        total += V * d
    if tied == "none":
        total += V * d
    if norm_first:
        total += 4 * d
    return total


def by_loops(
    vocab_size, d_model, d_ff, num_layers, num_heads, d_k, *, tied="all", norm_first=False, share_layers=False
):
    """Linear maps counted one by one."""
    for size in (vocab_size, d_model, d_ff, num_layers, num_heads, d_k):
        if size <= 0:
            raise ValueError(f"expected a positive size, got {size}")
    matrices = {"all": 1, "output": 2, "none": 3}
    if tied not in matrices:
        raise ValueError(f"unknown: {tied}")

    def linear(rows, columns):
        return (rows + 1) * columns

    attention = 0
    for _ in range(num_heads):
        attention += 3 * linear(d_model, d_k) + d_k * d_model
    attention += d_model
    network = linear(d_model, d_ff) + linear(d_ff, d_model)
    total = matrices[tied] * vocab_size * d_model
    for sublayers in ((attention, network), (attention, attention, network)):
        layer = sum(sublayers) + len(sublayers) * 2 * d_model
        total += layer if share_layers else layer * num_layers
        total += 2 * d_model if norm_first else 0
    return total


ALTERNATES = [by_shapes, by_formula, by_loops]
