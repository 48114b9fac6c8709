"""The padding mask. What it hides, whatever its axes; and its axes, whatever it hides."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.causal_mask import booleans, form
from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.masks import padding_mask

ROWS = ([[5, 0]], [[5, 7], [5, 0]], [[2, 5]], [[1, 5]], [[5, 0, 6]], [[5, 6], [0, 3]])


def keys_seen(ids: Tensor) -> Callable[[Tensor], Tensor]:
    """A view of the visible keys of each sentence, for its first query if there are several."""
    return lambda mask: booleans(mask).reshape(ids.size(0), -1, ids.size(1))[:, 0]


def shape(mask: Tensor) -> dict[str, Any]:
    """The mask's shape, what it is, and whether it is more than a constant."""
    return {"shape": list(torch.as_tensor(mask).shape), **form(mask)}


def padded(draw: Draw, sentences: int, keys: int) -> Tensor:
    """Ids with padding on the right, on the left and in the middle, and a row of nothing but padding."""
    ids = draw.integers(10, 23, sentences, keys)
    ids[0, -2:] = ids[1, :2] = ids[2, 1] = 0
    ids[3:4] = 0
    return ids


def values(draw: Draw) -> list[Call]:
    """Ids padded with 0, and ids without any padding."""
    all_ids = padded(draw, 3, 5), padded(draw, 5, 3), draw.integers(10, 23, 2, 3)
    return [Call((ids, 0), view=keys_seen(ids)) for ids in all_ids]


def others(draw: Draw) -> list[Call]:
    """Other pad_ids, inside the sentences, where 0 is a word and some words are below pad_id."""
    calls = []
    for pad_id in (5, 17, 1):
        ids = draw.integers(20, 30, 3, 5)
        ids[:, 1], ids[:, 3] = pad_id, torch.tensor([0, 2, 3])
        calls.append(Call((ids, pad_id), view=keys_seen(ids)))
    large = torch.tensor([[11, 50_256, 115_792, 12]])  # as in real vocabularies
    return [*calls, Call((large, 50_256), view=keys_seen(large))]


def small(*pad_ids: int, view: Any = keys_seen) -> Iterator[Call]:
    """Sentences of two or three ids."""
    for pad_id in pad_ids:
        for rows in ROWS:
            ids = torch.tensor(rows)
            if view is keys_seen or pad_id in ids:
                yield Call((ids, pad_id), view=view(ids) if view is keys_seen else view)


TASK = Task(
    name="padding_mask",
    solution=[padding_mask],
    probes={
        "values": (values, small(0)),
        "pad_id": (others, small(2, 1, 5)),
        "shape": (
            [Call((torch.tensor(ids), 0), view=shape) for ids in ([[5, 0, 6]], [[0, 5], [6, 7]])],
            small(0, view=shape),
        ),
    },
)
