"""Linear attention. Where all keys are alike, the output is the mean of the visible values, whatever φ is."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task

CAUSAL = {"is_causal": True}
ENOUGH = {"largest": 14_000}  # bytes; the queries × keys weights would take 41,612


def linear_attention(query, key, value, *, is_causal=False, key_mask=None):
    """Attention with weights φ(q)·φ(k), φ(x) = elu(x) + 1."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    if key_mask is not None:
        k = k.masked_fill(~key_mask[..., None], 0.0)
    if is_causal:
        weights = (q @ k.mT).tril(k.size(-2) - q.size(-2))
        above, below = weights @ value, weights.sum(-1, keepdim=True)
    else:
        above = q @ (k.mT @ value)
        below = q @ k.sum(-2)[..., None]
    return above / below.masked_fill(below == 0, 1.0)


def qkv(draw: Draw, queries: int, keys: int, *lead: int) -> tuple[Tensor, ...]:
    """Query and key of width 4, and value of width 6."""
    return draw.normal(*lead, queries, 4), draw.normal(*lead, keys, 4), draw.normal(*lead, keys, 6)


def alike(draw: Draw, queries: int, keys: int, *lead: int) -> tuple[Tensor, ...]:
    """Query and key of ones, and a random value."""
    query, key, value = qkv(draw, queries, keys, *lead)
    return torch.ones_like(query), torch.ones_like(key), value


def formula(draw: Draw) -> list[Call]:
    """Several leading axes or none; one query; last, is_causal where it does not matter: the last query."""
    calls = [Call(qkv(draw, *sizes)) for sizes in ((3, 5, 2, 7), (7, 3), (1, 5, 2), (5, 5, 3))]
    return [*calls, Call(qkv(draw, 5, 5, 2, 3), CAUSAL, view=lambda output: output[..., -1, :])]


def causal(draw: Draw) -> list[Call]:
    """As many keys as queries, or more; up to two leading axes; last, a key_mask that hides nothing."""
    calls = [(alike(draw, *size), CAUSAL) for size in ((5, 5, 2, 3), (3, 7, 2), (4, 4), (1, 5, 2), (7, 7, 7))]
    return list(itertools.starmap(Call, [*calls, (calls[1][0], {**CAUSAL, "key_mask": torch.ones(7) > 0})]))


def key_mask(draw: Draw) -> list[Call]:
    """Masks for all, for each sentence and for each head, also with is_causal."""
    masks = [draw.mask(*shape) for shape in ((5,), (2, 1, 5), (2, 3, 5), (3, 5))]
    calls = [Call(alike(draw, 4, 5, 2, 3), {"key_mask": mask}) for mask in masks]
    seen = draw.mask(2, 1, 5)
    seen[..., 0] = True  # so that every query sees a key
    calls.append(Call(alike(draw, 5, 5, 2, 3), {**CAUSAL, "key_mask": seen}))
    query, key, _ = qkv(draw, 4, 5, 2, 3)
    ones = torch.where(masks[2], 1.0, 1000.0)[..., None]  # 1 where visible: an average of 1, whatever φ is
    calls.append(Call(alike(draw, 4, 5, 2), {"key_mask": masks[0]}))
    return [*calls, Call((query, key, ones), {"key_mask": masks[2]})]


def empty(draw: Draw) -> list[Call]:
    """A sentence with all keys hidden; a first query with its only key hidden. Which rows are zero?"""
    hidden = torch.tensor([[False], [True]]).expand(2, 5)
    first, some = {**CAUSAL, "key_mask": torch.arange(5) > 0}, {"key_mask": hidden}
    given = (first, 2), (first, 2, 3), (some, 2)
    return [Call(qkv(draw, 5, 5, *n), own, view=lambda output: (output == 0).all(-1)) for own, *n in given]


def gradients(draw: Draw) -> list[Call]:
    """Gradients with and without is_causal, and with hidden keys, in one sentence all of them."""
    hidden = torch.tensor([[False] * 5, [True, True, False, True, False]])
    plain = Call(qkv(draw, 3, 5, 2, 3)), Call(qkv(draw, 5, 5, 2), CAUSAL)
    return [*plain, Call(qkv(draw, 3, 5, 2), {"key_mask": hidden})]


def size(value: list) -> str:
    """A phrase that says whether a tensor was too large."""
    if not value[0].any():
        return "only zeros"
    return "no tensor of queries × keys numbers" if value[1]["largest"] else "one of as many or more"


def cost(draw: Draw) -> list[Call]:
    """About a hundred queries and keys with few features, so that a matrix of weights stands out."""
    long = draw.normal(1, 101, 5), draw.normal(1, 103, 5), draw.normal(1, 103, 1)
    given = (long, {}), ([x[None] for x in long], {"key_mask": draw.mask(103)})
    return [Call(tuple(args), options, limits=ENOUGH, view=size) for args, options in given]


def small(*keys: tuple[int, ...], **options: Any) -> Iterator[Call]:
    """Whole numbers; the values 10, 20, … show which are averaged. A mask is cut to the number of keys."""
    for n, queries in itertools.product((2, 3), ([[1]], [[1], [0]], [[0, 1], [2, 0]])):
        for numbers in itertools.product((0.0, 1.0, 2.0, -1.0), repeat=n):
            key = torch.tensor([[x] + [0.0] * (len(queries[0]) - 1) for x in numbers])
            args = torch.tensor(queries).float(), key, 10 * torch.arange(1.0, n + 1)[:, None]
            for mask in keys or [None]:
                own = {} if mask is None else {"key_mask": torch.tensor(mask[-n:])}
                yield Call(args, options | own)


TASK = Task(
    name="linear_attention",
    solution=[linear_attention],
    probes={
        "formula": (formula, small()),
        "causal": (causal, small(**CAUSAL)),
        "key_mask": (key_mask, small((True, True, False), (False, True, True))),
        "empty": (empty, small((False, False, False))),
        "gradients": (gradients, small((True, True, True), (False, False, False))),
        "cost": (cost, [Call((torch.ones(8, 1),) * 3, limits={"largest": 128}, view=size)]),
    },
)
