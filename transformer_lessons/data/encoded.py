"""Encoded sentence pairs as two flat arrays, in memory or on disk."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from transformer_lessons.data.files import replacing

Pair = tuple[list[int], list[int]]


class EncodedPairs(Sequence[Pair]):
    """To be used as a list of pairs of lists of ids, at four bytes an id where lists take tens of bytes.

    In a file, what is not looked at stays on disk, and processes share it. A pitfall: a look-up makes new lists.

    Args:
        ids: of all sentences, one after another: source, target, source, target, …
        ends: where each sentence ends in them, after a 0.
        numbers: which pairs were chosen; None for all.
    """

    def __init__(self, ids: np.ndarray, ends: np.ndarray, numbers: np.ndarray | None = None):
        self.ids, self.ends = ids, ends
        self.numbers = np.arange(len(ends) // 2) if numbers is None else numbers

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> "EncodedPairs":
        """The pairs of a list or a generator, held in memory."""
        ids, lengths = array("i"), array("q", [0])
        for pair in pairs:
            for sentence in pair:
                ids.extend(sentence)
                lengths.append(len(sentence))
        return cls(np.array(ids), np.cumsum(lengths))

    @classmethod
    def load(cls, path: Path) -> "EncodedPairs":
        """What `save` wrote, mapped into memory."""
        found = torch.load(path, mmap=True, weights_only=True)
        return cls(found["ids"].numpy(), found["ends"].numpy())

    def save(self, path: Path) -> None:
        """Write all pairs, also those that were not chosen; the whole file or none."""
        with replacing(path) as temporary:
            torch.save({"ids": torch.from_numpy(self.ids), "ends": torch.from_numpy(self.ends)}, temporary)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> Pair:
        number = 2 * self.numbers[place]
        start, middle, end = self.ends[number : number + 3].tolist()
        return self.ids[start:middle].tolist(), self.ids[middle:end].tolist()

    @property
    def sizes(self) -> np.ndarray:
        """How many ids each pair has, source and target, a row a pair."""
        return np.diff(self.ends).reshape(-1, 2)[self.numbers]

    def chosen(self, which: slice | np.ndarray) -> "EncodedPairs":
        """Some of the pairs: a slice, or True for each that stays. Nothing is copied."""
        return EncodedPairs(self.ids, self.ends, self.numbers[which])
