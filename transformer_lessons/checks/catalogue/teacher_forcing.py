"""The decoder's inputs and targets. Equal lengths hide padding; ids 1, 2 and 0 hide hard-coded ones."""

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
    """The rows of both results as int64, of any lengths; their type is a requirement of its own."""
    return [[torch.as_tensor(row).long() for row in side] for side in value]


def padding(value: list) -> list[Any]:
    """The padding of both: each row's amount, whether it is last or first, and whether lengths are equal."""
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


def words(value: list) -> bool:
    """Whether words occur; none do in an answer that ignores its arguments."""
    return bool((used(value) >= min(WORDS)).any())


def types(value: list) -> list[str]:
    """The dtypes of both, or their Python types, in words."""
    return [str(getattr(side, "dtype", type(side).__name__)) for side in value]


def sentences(draw: Draw, *lengths: int) -> list[list[int]]:
    """Sentences of these lengths, of words only."""
    return [draw.integers(min(WORDS), max(WORDS), length).tolist() for length in lengths]


def shift(draw: Draw) -> list[Call]:
    """Sentences of equal length; padding, if there is any all the same, does not count."""
    view = lambda value: [[row[row != 0] for row in side] for side in rows(value)]  # noqa: E731
    return [Call((sentences(draw, *some), 1, 2, 0), view=view) for some in ((4, 4, 4), (1,), (3, 3))]


def filled(draw: Draw) -> list[Call]:
    """Sentences of several lengths, in no order, one of them empty."""
    several = (2, 5, 1, 4), (3, 2), (0, 3, 1)
    return [Call((sentences(draw, *lengths), 1, 2, 0), view=padding) for lengths in several]


def ids(draw: Draw) -> list[Call]:
    """Other marks and padding; in the last call, words are ids that are marks elsewhere."""
    several = sentences(draw, 3, 5, 1)
    calls = [Call((several, *marks), view=used) for marks in ((1, 2, 3), (4, 3, 0), (41, 31, 37))]
    small = lambda value: [ids[ids < 31].unique() for ids in map(torch.cat, rows(value))]  # noqa: E731
    return [*calls, Call(([[1, 2, 0, 7], [0, 7, 2], [1]], 41, 31, 37), view=small)]


def int64(draw: Draw) -> list[Call]:
    """Batches without an empty sentence, with one, and of nothing else; words must occur as well."""
    view = lambda value: [types(value), words(value)]  # noqa: E731
    return [Call((sentences(draw, *lengths), 1, 2, 0), view=view) for lengths in ((2, 3), (0, 2), (0,))]


TASK = Task(
    name="teacher_forcing",
    solution=[teacher_forcing],
    results=("tgt_in", "tgt_out"),
    probes={
        "shift": (shift, calls(([[5, 6]], 1, 2, 0), ([[5, 6], [7, 8]], 1, 2, 0))),
        "padding": (filled, calls(([[5], [6, 7]], 1, 2, 0), ([[5, 6], []], 1, 2, 0))),
        "ids": (ids, calls(([[5], [6, 7]], 3, 4, 9))),
        "type": (int64, calls(([[5, 6]], 1, 2, 0), ([[5], []], 1, 2, 0), ([[]], 1, 2, 0), view=types)),
        "kept": (
            lambda draw: calls(
                *((sentences(draw, *n), 1, 2, 0) for n in ((2, 4, 1), (3, 3))), edits=True, view=words
            ),
            calls(([[5, 6]], 1, 2, 0), ([[5], [6, 7]], 1, 2, 0), edits=True),
        ),
    },
)
