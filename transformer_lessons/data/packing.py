"""Packed batches: several sentence pairs in one row, told apart by segments; hardly any padding is computed.

Krell et al. 2021, https://arxiv.org/abs/2107.02027. Attention stays within a segment (`masks.segment_mask`), and
positions start anew with each: every pair gets the same loss as in a row of its own (`fast.packing`).
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lessons.data.batches import Batch, TokenBatches
from transformer_lessons.data.encoded import Pair
from transformer_lessons.data.vocabulary import Vocabulary, pad


class PackedBatch(NamedTuple):
    """As `batches.Batch`, with several pairs in a row.

    Of each token: its segment, which is the number of its pair in the row, from 1 on, with 0 for what fills the
    row up; and its position in its own sentence. A pitfall: segments of different rows share their numbers, so
    rows must not be joined into one.
    """

    src: Int[Tensor, "rows source"]
    tgt_in: Int[Tensor, "rows target"]
    tgt_out: Int[Tensor, "rows target"]
    src_segments: Int[Tensor, "rows source"]
    src_positions: Int[Tensor, "rows source"]
    tgt_segments: Int[Tensor, "rows target"]
    tgt_positions: Int[Tensor, "rows target"]

    to = Batch.to


def fill_rows(sizes: Sequence[tuple[int, int]], length: int) -> list[list[int]]:
    """Which pairs go into which row of at most `length` tokens a side: first-fit decreasing (Johnson 1973).

    The longest pair comes first, and each goes into the first row that has room for its source and its target, or
    into a new one. A pitfall: a row that is full on one side is closed for the other as well.
    """
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # what is left of each row
    for number in sorted(range(len(sizes)), key=lambda n: (max(sizes[n]), sum(sizes[n])), reverse=True):
        source, target = sizes[number]
        fitting = (row for row, (left, right) in enumerate(room) if source <= left and target <= right)
        row = next(fitting, len(rows))
        if row == len(rows):
            rows.append([])
            room.append((length, length))
        rows[row].append(number)
        room[row] = (room[row][0] - source, room[row][1] - target)
    return rows


def make_packed_batch(pairs: Sequence[Pair], length: int) -> PackedBatch:
    """Several pairs a row, of at most `length` tokens a side; each with the shift of `batches.make_batch`.

    A pitfall: each target has a start mark and an end mark of its own; without them, the last token of a sentence
    would be asked for the first of the next.
    """
    bos, eos = Vocabulary.bos_id, Vocabulary.eos_id
    rows = fill_rows([(len(source), 1 + len(target)) for source, target in pairs], length)

    def fields(place: int, source: list[int], target: list[int]) -> tuple[Iterable[int], ...]:
        """Of one pair, in the order of `PackedBatch`."""
        n, m = len(source), 1 + len(target)
        return source, [bos, *target], [*target, eos], [place] * n, range(n), [place] * m, range(m)

    each = ([fields(place, *pairs[n]) for place, n in enumerate(row, start=1)] for row in rows)
    joined = ([[*chain(*field)] for field in zip(*row, strict=True)] for row in each)
    return PackedBatch(*(pad(field, Vocabulary.pad_id) for field in zip(*joined, strict=True)))


class PackedBatches(TokenBatches):
    """Endless packed batches, each with about `tokens` real tokens, in as many rows of `length` as they need.

    In every epoch all pairs are shuffled and cut at equal sums of tokens: unlike a batch of `TokenBatches`,
    each is a random sample. A pitfall: scores between sentences of a row are computed and thrown away, so
    their cost grows with the length of a row: take one that holds a few sentences, not all.
    """

    def __init__(self, pairs: Sequence[Pair], tokens: int, length: int, *, seed: int):
        super().__init__(pairs, tokens, seed=seed)
        self.length = length

    def __getitem__(self, step: int) -> PackedBatch:
        """The batch of a training step, counted from 0."""
        return make_packed_batch(self._chosen(step), self.length)

    def _order(self, generator: torch.Generator) -> np.ndarray:
        return torch.randperm(len(self.pairs), generator=generator).numpy()
