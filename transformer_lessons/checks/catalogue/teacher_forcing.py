"""What the decoder reads and says. One length hides padding; 1, 2 and 0 hide whose ids they are."""

from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task, calls

WORDS = range(5, 28)


def teacher_forcing(targets, bos_id, eos_id, pad_id):
    """What the decoder reads, and what it should say at each position."""
    length = 1 + max(len(sentence) for sentence in targets)
    reads, says = [], []
    for sentence in targets:
        padding = [pad_id] * (length - 1 - len(sentence))
        reads.append([bos_id, *sentence, *padding])
        says.append([*sentence, eos_id, *padding])
    return torch.tensor(reads), torch.tensor(says)


def rows(value: list) -> list[list[Tensor]]:
    """Of both, of whatever type, which is a requirement of its own, and of whatever lengths."""
    return [[torch.as_tensor(row).long() for row in side] for side in value]


def padding(value: list) -> list[Any]:
    """Of both: how much each row has, whether it stands last, or first, and whether rows have one length."""
    found = []
    for side in rows(value):
        fill = [((row < min(WORDS)) & (row != 1) & (row != 2)).long() for row in side]
        is_last = all(torch.equal(row, row.cummax(-1).values) for row in fill)
        is_first, lengths = any(row[:1].any() for row in fill), {len(row) for row in fill}
        found.append([[int(row.sum()) for row in fill], is_last, is_first, len(lengths) == 1])
    return found


def used(value: list) -> Tensor:
    """All ids that occur."""
    return torch.cat([row for side in rows(value) for row in side]).unique()


def words(value: list) -> Tensor:
    """Those that occur: in an answer that looks at nothing, none."""
    return used(value)[used(value) >= min(WORDS)]


def types(value: list) -> list[str]:
    """Of both, in words."""
    return [str(getattr(side, "dtype", type(side).__name__)) for side in value]


def typed(value: list) -> list:
    """Not of an answer that looks at nothing."""
    return [types(value), words(value)]


def sentences(draw: Draw, *lengths: int) -> list[list[int]]:
    """Of words only."""
    return [draw.integers(min(WORDS), max(WORDS), length).tolist() for length in lengths]


def shift(draw: Draw) -> list[Call]:
    """Of one length; what is padding all the same does not count."""
    view = lambda value: [[row[row != 0] for row in side] for side in rows(value)]  # noqa: E731
    return [Call((sentences(draw, *some), 1, 2, 0), view=view) for some in ((4, 4, 4), (1,), (3, 3))]


def filled(draw: Draw) -> list[Call]:
    """Of several lengths, in no order; one is empty."""
    several = (2, 5, 1, 4), (3, 2), (0, 3, 1)
    return [Call((sentences(draw, *lengths), 1, 2, 0), view=padding) for lengths in several]


def ids(draw: Draw) -> list[Call]:
    """Other marks; in the last, words are what marks are elsewhere."""
    several = sentences(draw, 3, 5, 1)
    calls = [Call((several, *marks), view=used) for marks in ((1, 2, 3), (4, 3, 0), (41, 31, 37))]
    small = lambda value: [ids[ids < 31].unique() for ids in map(torch.cat, rows(value))]  # noqa: E731
    return [*calls, Call(([[1, 2, 0, 7], [0, 7, 2], [1]], 41, 31, 37), view=small)]


def int64(draw: Draw) -> list[Call]:
    """With and without an empty sentence."""
    return [Call((sentences(draw, *lengths), 1, 2, 0), view=typed) for lengths in ((2, 3), (0, 2), (0,))]


TASK = Task(
    name="teacher_forcing",
    right=[teacher_forcing],
    results=("tgt_in", "tgt_out"),
    probes={
        "shift": (shift, calls(([[5, 6]], 1, 2, 0), ([[5, 6], [7, 8]], 1, 2, 0))),
        "padding": (filled, calls(([[5], [6, 7]], 1, 2, 0), ([[5, 6], []], 1, 2, 0))),
        "ids": (ids, calls(([[5], [6, 7]], 3, 4, 9))),
        "type": (int64, calls(([[5, 6]], 1, 2, 0), ([[5], []], 1, 2, 0), view=types)),
        "kept": (
            lambda draw: [Call((sentences(draw, 2, 4, 1), 1, 2, 0), edits=True, view=words)],
            calls(([[5, 6]], 1, 2, 0), edits=True),
        ),
    },
)
