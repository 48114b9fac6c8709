"""Grouped-query attention. Equal heads of keys hide the sharing; keys of zero hide everything else."""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task


def grouped_query_attention(query, key, value, mask=None):
    """Neighbouring heads of queries share one head of keys and values."""
    each = query.size(1) // key.size(1)
    key, value = key.repeat_interleave(each, dim=1), value.repeat_interleave(each, dim=1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


def qkv(draw: Draw, heads: int, groups: int, queries: int = 3, keys: int = 5, d_k: int = 4) -> tuple:
    """Query, key and value for two sentences; values have width 7."""
    shapes = (heads, queries, d_k), (groups, keys, d_k), (groups, keys, 7)
    return tuple(draw.normal(2, *shape) for shape in shapes)


def sharing(draw: Draw) -> list[Call]:
    """Averages of a group's values; clear matches, whatever the scale; last, a mask that hides nothing."""
    calls = []
    for heads, groups in ((6, 2), (6, 3), (3, 1), (3, 3)):
        query, key, value = qkv(draw, heads, groups, d_k=5)
        match = [torch.stack([20 * torch.eye(5).roll(n, 0) for n in range(many)]) for many in (groups, heads)]
        keys, queries = (one.expand(2, -1, -1, -1).clone() for one in match)
        calls += [Call((query, 0 * key, value)), Call((queries, keys, value))]
    return [*calls, Call((*calls[-1].args, torch.ones(2, 3, 5, 5, dtype=torch.bool)))]


def attention(draw: Draw) -> list[Call]:
    """Equal heads of keys and values, so that sharing does not matter; last, a mask that hides nothing."""
    calls = []
    for heads, groups, *sizes in ((3, 3, 3, 5, 4), (2, 2, 4, 3, 6), (1, 1, 1, 2, 3), (4, 2, 3, 5, 4)):
        query, key, value = qkv(draw, heads, 1, *sizes)
        calls.append(Call((query, key.repeat(1, groups, 1, 1), value.repeat(1, groups, 1, 1))))
    return [*calls, Call((*calls[0].args, torch.ones(2, 3, 3, 5, dtype=torch.bool)))]


def averages(mask: Tensor) -> Callable[[list[Tensor]], dict]:
    """A view of what a mask decides: the weights of hidden keys, and the sum of each row."""

    def view(results: list[Tensor]) -> dict:
        weights, hidden = results[1], ~mask.broadcast_to(results[1].shape)
        return {"weights of hidden keys": weights[hidden], "weights.sum(-1)": weights.sum(-1)}

    return view


def mask(draw: Draw) -> list[Call]:
    """Masks for all sentences, for each sentence, and for each head."""
    shapes = (3, 5), (2, 1, 1, 5), (2, 1, 3, 5), (6, 3, 5), (2, 6, 3, 5), (2, 6, 1, 5)
    return [Call((*qkv(draw, 6, 2), one), view=averages(one)) for one in itertools.starmap(draw.mask, shapes)]


ROW, HEADS = [[True, False]], [[[True, False]], [[False, True]]]
SENTENCES = [[[[True, False]]], [[[False, True]]]]


def small(heads: int, groups: int, d_k: int = 1, masks: tuple = (None,)) -> Iterator[Call]:
    """One query per head and two keys; the values 10, 20, … show which of them are averaged."""
    rest = [0.0] * (d_k - 1)
    for visible, (q, k) in itertools.product(masks, ((1, 1), (0, 0), (1, 2), (2, 1), (2, 2))):
        batch = 2 if visible == SENTENCES else 1
        query = torch.tensor([[[float(q + q * h), *rest]] for h in range(heads)]).repeat(batch, 1, 1, 1)
        key = torch.tensor([[[0.0, *rest], [float(k + g), *rest]] for g in range(groups)])
        value = 10 * torch.arange(1.0, 1 + 2 * groups).view(1, groups, 2, 1).repeat(batch, 1, 1, 1)
        args = query, key.repeat(batch, 1, 1, 1), value
        yield Call(args if visible is None else (*args, torch.tensor(visible)))


TASK = Task(
    name="grouped_query",
    solution=[grouped_query_attention],
    results=("output", "weights"),
    probes={
        "sharing": (sharing, [*small(4, 2), *small(6, 2)]),
        "attention": (attention, [*small(1, 1, d_k=4, masks=(None, [[[[True] * 2]]])), *small(2, 1, d_k=4)]),
        "mask": (mask, small(2, 1, masks=(ROW, HEADS, SENTENCES))),
        "gradients": (
            lambda draw: [Call(qkv(draw, 4, 2)), Call((*qkv(draw, 3, 3), draw.mask(2, 3, 3, 5)))],
            [*small(2, 1), *small(1, 1, d_k=4)],
        ),
    },
)
