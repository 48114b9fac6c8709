"""Encoded sentence pairs as two flat arrays, in memory or on disk."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from transformer_lessons.data.files import replacing

Pair = tuple[list[int], list[int]]


class EncodedPairs(Sequence[Pair]):
    """A sequence of pairs of lists of ids, at four bytes per id where lists take tens of bytes.

    After `load`, unused parts stay on disk and processes share the file. A pitfall: look-ups make new lists.

    Args:
        ids: the ids of all sentences, one after another: source, target, source, target, …
        ends: a 0, then the position in `ids` where each sentence ends.
        numbers: the indices of the chosen pairs; None for all.
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
        """The pairs that `save` wrote, mapped into memory."""
        found = torch.load(path, mmap=True, weights_only=True)
        return cls(found["ids"].numpy(), found["ends"].numpy())

    def save(self, path: Path) -> None:
        """Write all pairs, including those not chosen; the whole file or none."""
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
        """The numbers of source ids and target ids, one row per pair."""
        return np.diff(self.ends).reshape(-1, 2)[self.numbers]

    def select(self, which: slice | np.ndarray) -> "EncodedPairs":
        """Some of the pairs, chosen by a slice or a boolean mask. No ids are copied."""
        return EncodedPairs(self.ids, self.ends, self.numbers[which])
