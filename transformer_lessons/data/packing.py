"""Packed batches: several sentence pairs in one row, told apart by segments; hardly any padding is computed.

Krell et al. 2021, https://arxiv.org/abs/2107.02027. Attention stays within a segment (`masks.segment_mask`), and
positions start anew with each: every pair gets the same loss as in a row of its own.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lessons import expect
from transformer_lessons.data.batches import Pair, TokenBatches, refuse_negative, separate
from transformer_lessons.data.vocabulary import Vocabulary, pad


class Places(NamedTuple):
    """Of each token in packed rows its sentence, counted from 1 in the row, and its position in that sentence.

    Segment 0 is what fills a row up. A pitfall: positions must start anew with every sentence, or the model sees
    the second sentence of a row where no sentence of its own row would ever be.
    """

    segments: Int[Tensor, "rows length"]
    positions: Int[Tensor, "rows length"]


class PackedBatch(NamedTuple):
    """What one training step needs, as `batches.Batch`, with several pairs in a row.

    Source and target of a pair are in the same row, under the same number. A pitfall: segments of different rows
    share their numbers, so rows must not be joined into one.
    """

    src: Int[Tensor, "rows source"]
    tgt_in: Int[Tensor, "rows target"]
    tgt_out: Int[Tensor, "rows target"]
    src_segments: Int[Tensor, "rows source"]
    src_positions: Int[Tensor, "rows source"]
    tgt_segments: Int[Tensor, "rows target"]
    tgt_positions: Int[Tensor, "rows target"]

    @property
    def places(self) -> tuple[Places, Places]:
        """Those of the source and of the target, as `Transformer.hidden` takes them."""
        return Places(self.src_segments, self.src_positions), Places(self.tgt_segments, self.tgt_positions)

    @property
    def density(self) -> float:
        """The share of positions, of both sides, that hold a token; the rest fills rows up."""
        real = (self.src_segments != 0).sum() + (self.tgt_segments != 0).sum()
        return float(real) / max(1, self.src.numel() + self.tgt_in.numel())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "PackedBatch":
        """The same batch on another device; torch's own RuntimeError for one that is not there."""
        return PackedBatch(*(ids.to(device, non_blocking=non_blocking) for ids in self))


def check_places(places: Places, name: str, ids: Int[Tensor, "rows length"]) -> None:
    """Refuse places that are not those of `ids`. A pitfall: one row of them would broadcast to all.

    Raises:
        ValueError: for what are no places, or have another shape or device than `ids`, called `name` there.
    """
    expect.kind(Places, places=places)
    for field, x in zip(places._fields, places, strict=True):
        expect.ids(**{field: x})
        expect.same_device(ids, name, **{field: x})
        if x.shape != ids.shape:
            raise ValueError(f"{field}: expected shape {tuple(ids.shape)}, as {name}, got {tuple(x.shape)}")


def fill_rows(sizes: Sequence[tuple[int, int]], length: int) -> list[list[int]]:
    """Which pairs go into which row: first-fit decreasing (Johnson 1973), for both sides of a pair at once.

    The longest pair comes first, and each goes into the first row that has room for its source and its target, or
    into a new one. A pitfall: a row that is full on one side is closed for the other as well.

    Args:
        sizes: tokens of each pair's source and target.
        length: most tokens of a row, on either side.

    Raises:
        ValueError: for a length below 1, sizes that are no pairs of lengths, or a pair longer than a row.
    """
    expect.sizes(length=length)
    _check_sizes(sizes, length)
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


def _check_sizes(sizes: Sequence[tuple[int, int]], length: int) -> None:
    expect.several(sizes=sizes)
    for number, pair in enumerate(sizes):
        name = f"sizes[{number}]"
        expect.several(**{name: pair})
        if len(pair) != 2:
            raise ValueError(f"{name}: expected a source's and a target's, got {len(pair)}")
        for size in pair:
            expect.lengths(**{name: size})
    _refuse_longer(np.array([max(pair) for pair in sizes]), length)


def _refuse_longer(longer_sides: np.ndarray, length: int) -> None:
    too_long = np.flatnonzero(longer_sides > length)
    if len(too_long):
        number = too_long[0]
        got = f"{length} tokens a side, got {longer_sides[number]}"
        raise ValueError(f"pairs[{number}]: expected at most {got}")


def make_packed_batch(pairs: Sequence[Pair], length: int) -> PackedBatch:
    """Several pairs a row, of at most `length` tokens a side; each with the shift of `batches.make_batch`.

    A pitfall: each target has a start mark and an end mark of its own; without them, the last token of a sentence
    would be asked for the first of the next.

    Raises:
        ValueError: for no pairs, what are no pairs of lists of integers, 0 or more, a length below 1, or a pair
            whose source, or target with a mark, is longer.
    """
    sources, targets = separate(pairs)
    if not sources:
        raise ValueError("pairs: expected one pair or more, got none")
    shown = [[Vocabulary.bos_id, *target] for target in targets]
    wanted = [[*target, Vocabulary.eos_id] for target in targets]
    rows = fill_rows(list(zip(map(len, sources), map(len, shown), strict=True)), length)
    tokens = [_laid_out(rows, sentences, Vocabulary.pad_id) for sentences in (sources, shown, wanted)]
    batch = PackedBatch(*tokens, *_places(rows, sources), *_places(rows, shown))
    refuse_negative(batch)
    return batch


def _laid_out(rows: list[list[int]], sentences: Sequence[Iterable[int]], filling: int) -> Tensor:
    """The sentences of each row, one after another."""
    return pad([[token for number in row for token in sentences[number]] for row in rows], filling)


def _places(rows: list[list[int]], sentences: Sequence[Sequence[int]]) -> Places:
    segments = [[place for place, n in enumerate(row, start=1) for _ in sentences[n]] for row in rows]
    return Places(pad(segments, 0), _laid_out(rows, [range(len(sentence)) for sentence in sentences], 0))


class PackedBatches(TokenBatches):
    """Endless packed batches, each with about `tokens` real tokens, in as many rows as they need.

    In every epoch all pairs are shuffled and cut at equal sums of tokens. As with `TokenBatches`, number `step`
    is a function of the seed and the step, and no pair is left out; but a batch is a random sample, since nothing
    is sorted by length.

    A pitfall: scores between sentences of a row are computed and thrown away, so their cost grows with the length
    of a row: take one that holds a few sentences, not all.

    Args:
        pairs: ids of source and target sentences.
        tokens: of both sides together, with the target's end mark, in a batch: an average, which a batch may
            miss by one pair.
        length: most tokens of a row, on either side; no pair may be longer.
        seed: of the order, anew in every epoch.

    Raises:
        ValueError: as `TokenBatches`; for a length below 1, or a pair that is longer.
    """

    def __init__(self, pairs: Sequence[Pair], tokens: int, length: int, *, seed: int):
        super().__init__(pairs, tokens, seed=seed)
        expect.sizes(length=length)
        # Now, not in the middle of a run.
        _refuse_longer(self._lengths.max(1), length)
        self.length = length

    def __getitem__(self, step: int) -> PackedBatch:
        """The batch of a training step, counted from 0."""
        return make_packed_batch(self._chosen(step), self.length)

    def _order(self, generator: torch.Generator) -> np.ndarray:
        return torch.randperm(len(self.pairs), generator=generator).numpy()
