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

from transformer_lessons import expect
from transformer_lessons.data.files import read_json, write_json

Pair = tuple[list[int], list[int]]

SIDES = ("source", "target")
CHUNK = 10_000  # pairs that are in memory at a time while they are written


class EncodedPairs(Sequence[Pair]):
    """Pairs of a folder that `write_pairs` wrote, to be used as a list of pairs of lists; a slice is as cheap.

    A pitfall: each look-up makes new lists, so go through all of them once, not once for each side.

    Args:
        folder: where they are.

    Raises:
        ValueError: for what is no path, or a folder whose files contradict one another.
        OSError: if there is no such folder. Of a look-up, IndexError for a number that no pair has.
    """

    def __init__(self, folder: Path):
        folder = expect.path(folder, "folder")
        about = read_json(folder / "about.json")
        self._starts = np.load(folder / "starts.npy", mmap_mode="r")
        # Seen as plain arrays: slices of np.memmap cost several times as much.
        self._ids = [np.asarray(np.memmap(folder / f"{side}.ids", about["dtype"], "r")) for side in SIDES]
        ends = [len(ids) for ids in self._ids]
        if len(self._starts) != about["pairs"] + 1 or self._starts[-1].tolist() != ends:
            raise ValueError(f"folder: expected {about['pairs']} pairs, got other files in {folder}")
        self.folder = folder
        self._numbers: np.ndarray | None = None  # of the pairs that were chosen; None means all

    def __len__(self) -> int:
        return len(self._starts) - 1 if self._numbers is None else len(self._numbers)

    def __getitem__(self, number: int | slice) -> "Pair | EncodedPairs":
        place = range(len(self))[number]
        if isinstance(place, range):
            return self._chosen(np.arange(place.start, place.stop, place.step))
        row = place if self._numbers is None else self._numbers[place]
        (start, other_start), (end, other_end) = self._starts[row : row + 2].tolist()
        return self._ids[0][start:end].tolist(), self._ids[1][other_start:other_end].tolist()

    @property
    def sizes(self) -> np.ndarray:
        """How many tokens each pair has: a row a pair, source and target."""
        sizes = np.diff(self._starts, axis=0)
        return sizes if self._numbers is None else sizes[self._numbers]

    def within(self, max_length: int) -> "EncodedPairs":
        """The pairs that a model with `max_length` positions can be trained on: as in `lengths.limit_pairs`, a
        target may have ``max_length − 1`` ids, since a mark is added.

        Raises:
            ValueError: for a max_length below 1.
        """
        expect.sizes(max_length=max_length)
        return self._chosen(np.flatnonzero((self.sizes + np.array([0, 1]) <= max_length).all(1)))

    def _chosen(self, places: np.ndarray) -> "EncodedPairs":
        chosen = object.__new__(EncodedPairs)
        chosen.__dict__.update(self.__dict__)
        chosen._numbers = places if self._numbers is None else self._numbers[places]
        return chosen


def write_pairs(folder: Path, pairs: Iterable[Pair], vocab_size: int) -> None:
    """Write pairs as they come, whole or not at all: under another name first. Memory holds `CHUNK` of them.

    What an earlier attempt has left half done is removed, and the writing begins anew. A pitfall: two processes
    must not write the same folder at the same time.

    Args:
        folder: where to; it must not exist yet.
        pairs: ids of source and target sentences, for example from a generator.
        vocab_size: what all ids are below; up to 65,536, each takes two bytes.

    Raises:
        ValueError: for what is no path, no pairs, a vocab_size below 1, no pair at all, or ids outside the
            vocabulary, or a folder that is there already.
    """
    folder = expect.path(folder, "folder")
    expect.several(pairs=pairs)
    expect.sizes(vocab_size=vocab_size)
    if folder.exists():
        raise ValueError(f"folder: expected a new one, got {folder}, which exists")
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
                _ids(sentences, vocab_size).astype(dtype).tofile(file)
            sizes.append(np.array([list(map(len, pair)) for pair in chunk], dtype=np.int64))
        for file in (source, target):
            file.flush()
            os.fsync(file.fileno())
    starts = np.concatenate(sizes).cumsum(0)
    if not starts[-1].all():
        raise ValueError("pairs: expected tokens on either side, got none")
    np.save(folder / "starts.npy", starts)
    write_json(folder / "about.json", {"pairs": len(starts) - 1, "dtype": dtype.name})


def _ids(sentences: Iterable[Sequence[int]], vocab_size: int) -> np.ndarray:
    ids = np.fromiter(chain.from_iterable(sentences), dtype=np.int64)
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        odd = ids[(ids < 0) | (ids >= vocab_size)][0]
        raise ValueError(f"pairs: expected ids, 0 to {vocab_size - 1}, got {odd}")
    return ids
