"""Attention with capped scores. With d_k = 1 the scale does not show, and neither does a high cap."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue import scaled_dot_product_attention as attention
from transformer_lessons.checks.catalogue.scaled_dot_product_attention import averages, is_finite, qkv
from transformer_lessons.checks.definitions import Call, Draw, Task


def soft_capped_attention(query, key, value, cap, mask=None):
    """The output and the weights of attention with scores limited to −cap … cap."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    scores = cap * torch.tanh(scores / cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def averaged(args: tuple[Tensor, ...], cap: float, *mask: Tensor) -> Call:
    """A call judged only by what all kinds of attention have in common."""
    return Call((*args, cap, *mask), view=averages((*args, *mask)))


def result(draw: Draw) -> list[Call]:
    """Averages of the values, whatever the scores."""
    sizes = (4, (1,)), (7, ()), (4, (2, 3)), (3, (2,))
    return [averaged(qkv(draw, 3, keys, 2, *lead), 2.0) for keys, lead in sizes]


def cap(draw: Draw) -> list[Call]:
    """Scores above the cap, near it and below it; last, a mask that hides nothing."""
    sizes = (3.0, 2.0, (2,)), (0.5, 0.3, (2, 2)), (1.0, 5, ())
    calls = [Call((*qkv(draw, 3, 4, 1, *lead, size=size), cap)) for size, cap, lead in sizes]
    return [*calls, Call((*calls[0].args, torch.ones(3, 4, dtype=torch.bool)))]


def scale(draw: Draw) -> list[Call]:
    """First, sizes that are all different, and a mask; then scores that do not come near the cap."""
    everything = (*qkv(draw, 3, 5, 7, 2, 2), 1.5, draw.mask(2, 1, 1, 5))
    return [Call(everything), *(Call((*qkv(draw, 3, 4, *sizes), 20.0)) for sizes in ((7, 2), (2,)))]


def mask(draw: Draw) -> list[Call]:
    """Masks of any number of axes; with a low cap, hidden scores that are capped stay near the others."""
    full, row = qkv(draw, 3, 4, 1, 2, 2), qkv(draw, 3, 4, 1)
    given = [(full, 1.5, draw.mask(*shape)) for shape in ((2, 2, 3, 4), (2, 1, 1, 4))]
    lowest = torch.full((3, 1), -12.0), torch.full((3, 1), 12.0), draw.normal(3, 5)
    given += [(qkv(draw, 3, 4, 1, 2), 1.5, draw.mask(3, 4)), (lowest, 200.0, torch.ones(3, 3).tril() > 0)]
    given += [(row, 0.1, draw.mask(3, 4)), (row, 50.0, torch.ones(3, 4, dtype=torch.bool))]
    return [averaged(*args) for args in given]


def finite(draw: Draw) -> list[Call]:
    """A query that sees nothing."""
    some, leads = torch.tensor([True, False, True])[:, None], ((2,), (2, 2), ())
    given = [(*qkv(draw, 3, 4, 1, *lead), 1.5, draw.mask(*lead, 3, 4) & some) for lead in leads]
    return [Call(args, view=is_finite) for args in given]


def gradients(draw: Draw) -> list[Call]:
    """Gradients with and without a mask."""
    masked = [(*qkv(draw, 3, 4, 1, *lead), 1.5, draw.mask(*lead, 3, 4)) for lead in ((2, 2), ())]
    return [Call((*qkv(draw, 3, 4, 2, 2), 1.5)), *map(Call, masked)]


def small(*caps: float, **sizes: Any) -> Iterator[Call]:
    """The small calls of plain attention, each with these caps."""
    for plain, cap in itertools.product(attention.small(**sizes), caps):
        yield Call((*plain.args[:3], cap, *plain.args[3:]))


TASK = Task(
    name="soft_capped_attention",
    solution=[soft_capped_attention],
    results=("output", "weights"),
    probes={
        "result": (result, (c for lead in ((), (1,)) for c in small(2.0, queries=2, keys=3, lead=lead))),
        "cap": (cap, small(2.0, 1.0, 4.0)),
        "scale": (scale, [*small(1000.0, 1.0, d_k=4), *small(1000.0, d_k=2), *small(9.0, d_k=4, lead=(1,))]),
        "mask": (mask, small(1.0, 2.0, keys=3, masks=([[True, False, True]], [[False, True, True]]))),
        "finite": (finite, (replace(c, view=is_finite) for c in small(1.0, masks=([[False, False]],)))),
        "gradients": (gradients, [*small(1.0, masks=(None, [[True, False]])), *small(1.0, d_k=4)]),
    },
)
