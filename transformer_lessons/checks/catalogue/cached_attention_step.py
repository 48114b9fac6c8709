"""Attention at one new position, with a cache that may have a fixed size."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from transformer_lessons.checks.definitions import Call, Draw, Task


def cached_attention_step(query, key, value, keys, values, window=None):
    """The output at a new position, and the keys and values to keep."""
    keys = torch.cat([keys, key], dim=-2)
    values = torch.cat([values, value], dim=-2)
    if window is not None:
        keys, values = keys[..., -window:, :], values[..., -window:, :]
    scores = query @ keys.transpose(-2, -1) / math.sqrt(query.size(-1))
    return scores.softmax(dim=-1) @ values, keys, values


def call(draw: Draw, earlier: int, *window: int, d_k: int = 3, lead: tuple[int, ...] = (2, 2)) -> Call:
    """A call with this many earlier positions, perhaps a window, and values of width 5."""
    new = [draw.normal(*lead, 1, width) for width in (d_k, d_k, 5)]
    kept = [draw.normal(*lead, earlier, width) for width in (d_k, 5)]
    return Call((*new, *kept, *window))


def window(draw: Draw) -> list[Call]:
    """Windows narrower and wider than the cache; a query of zeros averages, whatever the scale."""
    calls = [call(draw, *sizes) for sizes in ((5, 3), (3, 3), (4, 1), (2, 4))]
    return [replace(one, args=(0 * one.args[0], *one.args[1:])) for one in calls]


def small(earlier: int, *window: int) -> Iterator[Call]:
    """Whole numbers; the values 10, 20, … show which of them are averaged."""
    for query, key in ((1.0, 0.0), (2.0, 1.0), (1.0, 2.0)):
        new = [torch.tensor([[number, 0.0]]) for number in (query, key)]
        kept = torch.tensor([[2.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), torch.tensor([[10.0], [20.0], [30.0]])
        yield Call((*new, torch.tensor([[40.0]]), *(tensor[:earlier] for tensor in kept), *window))


TASK = Task(
    name="cached_attention_step",
    solution=[cached_attention_step],
    results=("output", "keys", "values"),
    probes={
        "values": (lambda draw: [call(draw, 4), call(draw, 3, lead=()), call(draw, 2, d_k=7)], small(3)),
        "first": (lambda draw: [call(draw, 0), call(draw, 0, lead=())], small(0)),
        "window": (window, [*small(3, 2), *small(2, 2), *small(2, 4), *small(2, 1)]),
        "gradients": (lambda draw: [call(draw, 3), call(draw, 3, 3)], small(2)),
    },
)
