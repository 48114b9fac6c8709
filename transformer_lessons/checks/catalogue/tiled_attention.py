"""Attention with an online softmax, whose memory is linear in training, too. d_k = 1 hides the scale."""

import itertools
import math
from collections.abc import Iterator

import torch

from transformer_lessons.checks.catalogue.checkpointing import checkpoint
from transformer_lessons.checks.catalogue.chunked_cross_entropy import is_finite
from transformer_lessons.checks.definitions import Call, Draw, Task


def tiled_attention(query, key, value, block):
    """Attention in which nothing is as large as its weights, forwards or backwards."""

    def rows(q, key, value):
        q = q / math.sqrt(q.size(-1))
        m = torch.full_like(q[..., :1], -math.inf)
        total, output = 0.0, 0.0
        for k, v in zip(key.split(block, dim=-2), value.split(block, dim=-2), strict=True):
            scores = q @ k.mT
            larger = torch.maximum(m, scores.detach().amax(dim=-1, keepdim=True))
            old, e = (m - larger).exp(), (scores - larger).exp()
            total = total * old + e.sum(dim=-1, keepdim=True)
            output = output * old + e @ v
            m = larger
        return output / total

    groups = query.split(3 * block, dim=-2)
    done = [checkpoint(rows, q, key, value, use_reentrant=False) for q in groups]
    return torch.cat(done, dim=-2)


def call(draw: Draw, queries: int, keys: int, block: int, *lead: int, d_k: int = 7) -> Call:
    """A call whose values are 5 wide."""
    return Call((*(draw.normal(*lead, n, d) for n, d in ((queries, d_k), (keys, d_k), (keys, 5))), block))


def values(draw: Draw) -> list[Call]:
    """One tile, several, and a smaller last one; more keys than queries, and fewer."""
    return [
        call(draw, 4, 6, 11, 2, 3),
        call(draw, 6, 12, 3, 2, 3, d_k=2),
        call(draw, 11, 7, 4, 2, 3),
        call(draw, 4, 11, 3, 2, d_k=2),
        call(draw, 2, 5, 1, d_k=3),
    ]


def large(draw: Draw) -> list[Call]:
    """Scores in the thousands that rise, fall, are all low, or differ widely from row to row."""
    one, steps = torch.ones(3, 1), torch.arange(8.0)[:, None]
    apart = torch.tensor([[1.0], [100.0], [0.01]])
    pairs = (one, 900 * steps), (one, -900 * steps), (one, -4e4 - steps), (apart, 30 * steps)
    at = (..., None, (None, None), ...)  # with leading axes, and without
    given = [(q[n], k[n], draw.normal(8, 5)[n], 3) for n, (q, k) in zip(at, pairs, strict=True)]
    return [Call(args, view=is_finite) for args in given]


def memory_call(queries: int, keys: int, block: int, width: int, *lead: int, **enough: int) -> Call:
    """A call with inputs of ones, as only bytes count."""
    inputs = (torch.ones(*lead, n, width) for n in (queries, keys, keys))
    return Call((*inputs, block), limits=enough)


# Few queries and many keys tell one tile from whole rows, from two tiles, and from `block` tiles; then many
# queries tell some rows from all of them.
LARGEST = [
    memory_call(11, 67, 11, 2, largest=67 * 2 * 4),
    memory_call(3, 129, 29, 1, largest=129 * 4 * 4 // 3),
    memory_call(11, 67, 34, 2, largest=11 * 34 * 4),
    memory_call(12, 34, 2, 1, 1, 1, largest=250),  # in a tile of 17 keys, 6 rows of scores take 408 bytes
    memory_call(97, 97, 17, 2, 1, largest=51 * 97 * 4),
]
SQUARE = 97 * 97 * 4
SAVED = [memory_call(97, 97, *sizes, saved=SQUARE // 8) for sizes in ((17, 2), (99, 2, 1, 1), (17, 2, 1))]
PEAK = [memory_call(97, 97, 17, 2, *lead, peak=2 * SQUARE // 3) for lead in ((), (1, 1), (1,))]
PEAK += [memory_call(41, 21, 2, 1, peak=2000)]  # groups of `block` queries, or `block` groups?


def small(*blocks: int, d_k: int = 1, far: float = 1.0) -> Iterator[Call]:
    """Whole numbers; the values 10, 20, … show which of them are averaged."""
    columns = [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, -1, -2], [-1, -1, -1]
    for block, column in itertools.product(blocks, columns):
        query, key = torch.zeros(1, d_k), torch.zeros(3, d_k)
        query[:, 0], key[:, 0] = 1, far * torch.tensor(column)
        yield Call((query, key, torch.tensor([[10.0], [20.0], [30.0]]), block))
    wide = torch.tensor([[1.0], [-1.0]]), far * torch.tensor([[1.0], [2.0], [3.0]])
    yield Call((*wide, torch.tensor([[10.0], [20.0], [30.0]]), blocks[0]))


TASK = Task(
    name="tiled_attention",
    solution=[tiled_attention],
    probes={
        "values": (values, [*small(3, 1, 2), *small(3, d_k=4)]),
        "any_size": (large, small(2, 1, far=900.0)),
        "gradients": (lambda draw: [call(draw, 7, 11, 4, *n) for n in ((2, 3), (), (2,))], small(2, d_k=4)),
        "largest": (LARGEST, LARGEST),
        "saved": (SAVED, SAVED),
        "peak": (PEAK, PEAK),
    },
)
