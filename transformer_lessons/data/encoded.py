"""Encoded sentence pairs on disk, for corpora of millions: flat arrays of ids that are mapped into memory.

As lists of Python integers, a corpus of 4.5 million pairs takes tens of bytes a token; here it takes two, and
what is not looked at stays on the disk. Processes that read the same folder share one copy. A folder::

    source.ids  target.ids   the ids of all sentences, one after another, two or four bytes each
    starts.npy               where each sentence begins in them, and where the last one ends
    about.json               how many pairs there are, and of which type the ids are
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from transformer_lessons.data.files import read_json, write_json

Pair = tuple[list[int], list[int]]

SIDES = ("source", "target")
CHUNK = 10_000  # pairs that are in memory at a time while they are written


class EncodedPairs(Sequence[Pair]):
    """Pairs of a folder that `write_pairs` wrote, to be used as a list of pairs of lists; a slice is as cheap.

    A pitfall: each look-up makes new lists, so go through all of them once, not once for each side.

    Raises:
        ValueError: for a folder whose files contradict one another.
    """

    def __init__(self, folder: Path):
        about = read_json(folder / "about.json")
        self._starts = np.load(folder / "starts.npy", mmap_mode="r")
        # Seen as plain arrays: slices of np.memmap cost several times as much.
        self._ids = [np.asarray(np.memmap(folder / f"{side}.ids", about["dtype"], "r")) for side in SIDES]
        ends = [len(ids) for ids in self._ids]
        if len(self._starts) != about["pairs"] + 1 or self._starts[-1].tolist() != ends:
            raise ValueError(f"folder: expected {about['pairs']} pairs, got other files in {folder}")
        self.folder = folder
        self._numbers = np.arange(about["pairs"])  # of the pairs that were chosen

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int | slice) -> "Pair | EncodedPairs":
        if isinstance(number, slice):
            return self._chosen(self._numbers[number])
        row = self._numbers[number]
        (start, other_start), (end, other_end) = self._starts[row : row + 2].tolist()
        return self._ids[0][start:end].tolist(), self._ids[1][other_start:other_end].tolist()

    @property
    def sizes(self) -> np.ndarray:
        """How many tokens each pair has: a row a pair, source and target."""
        return np.diff(self._starts, axis=0)[self._numbers]

    def within(self, max_length: int) -> "EncodedPairs":
        """The pairs that a model with `max_length` positions can be trained on.

        A target may have ``max_length − 1`` ids, since a mark is added.
        """
        fits = (self.sizes + np.array([0, 1]) <= max_length).all(1)
        return self._chosen(self._numbers[fits])

    def _chosen(self, numbers: np.ndarray) -> "EncodedPairs":
        chosen = object.__new__(EncodedPairs)
        chosen.__dict__ |= {**self.__dict__, "_numbers": numbers}
        return chosen


def write_pairs(folder: Path, pairs: Iterable[Pair], vocab_size: int) -> None:
    """Write pairs as they come, whole or not at all: under another name first. Memory holds `CHUNK` of them.

    What an earlier attempt has left half done is removed, and the writing begins anew. A pitfall: two processes
    must not write the same folder at the same time.

    Args:
        folder: where to; it must not exist yet.
        pairs: ids of source and target sentences, for example from a generator; ValueError for none.
        vocab_size: what all ids are below; up to 65,536, each takes two bytes.
    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _write(unfinished, iter(pairs), vocab_size)
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(folder: Path, pairs: Iterator[Pair], vocab_size: int) -> None:
    dtype = np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)
    sizes = [np.zeros((1, 2), dtype=np.int64)]
    with (folder / "source.ids").open("wb") as source, (folder / "target.ids").open("wb") as target:
        while chunk := list(islice(pairs, CHUNK)):
            for file, sentences in zip((source, target), zip(*chunk, strict=True), strict=True):
                np.fromiter(chain.from_iterable(sentences), dtype=dtype).tofile(file)
            sizes.append(np.array([list(map(len, pair)) for pair in chunk], dtype=np.int64))
        for file in (source, target):
            file.flush()
            os.fsync(file.fileno())
    starts = np.concatenate(sizes).cumsum(0)
    if not starts[-1].all():
        raise ValueError("pairs: expected some, got none")
    np.save(folder / "starts.npy", starts)
    write_json(folder / "about.json", {"pairs": len(starts) - 1, "dtype": dtype.name})
