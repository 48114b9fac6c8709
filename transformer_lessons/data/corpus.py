"""Parallel texts, one sentence per line: line n of one file is the translation of line n of the other.

The encoding and the ids are computed once and kept in the user's cache, under names derived from the texts.
Install the libraries with ``pip install "transformer-lessons[text]"``.
"""

import gzip
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path

from tqdm import tqdm

from transformer_lessons.data.encoded import EncodedPairs, Pair
from transformer_lessons.data.files import digest
from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords

TextPair = tuple[str, str]
DATA_VARIABLE = "TRANSFORMER_LESSONS_DATA"  # names a folder with local files, used instead of downloads
CHUNK = 10_000  # pairs encoded at a time, on all cores


def in_chunks(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items. A pitfall: the last one may be shorter; dropping it would lose sentences."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def read_pairs(source: Path, target: Path) -> Iterator[TextPair]:
    """Pairs of lines of both files, plain or ``.gz``, stripped; a pair with an empty side is skipped.

    ValueError for bytes that are not UTF-8, a damaged gzip file, or files of different lengths.
    """
    for number, pair in enumerate(zip_longest(_lines(source), _lines(target))):
        if None in pair:
            shorter, longer = (source, target) if pair[0] is None else (target, source)
            raise ValueError(f"{shorter}: expected as many lines as in {longer}, got {number}")
        if all(pair):
            yield pair


def _lines(path: Path) -> Iterator[str]:
    r"""The lines of a file, cut at \n only: other characters that end lines can occur within a sentence."""
    count = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for line in file:
                count += 1
                yield line.decode("utf-8-sig").strip()  # there may be a byte order mark
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"{path}: expected UTF-8, got the byte {byte:#04x} in line {count}") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: expected a whole gzip file, got: {error}") from None


@dataclass(frozen=True)
class Corpus:
    """Two parallel files for training, and optionally two for testing.

    Without test files, every 20th pair is held out, or at most 1,000 evenly spread pairs of a large corpus.
    Pairs whose source is held out are not used for training, because small corpora repeat sentences.
    """

    source: Path
    target: Path
    test: Sequence[Path] | None = None

    @cached_property
    def held_out(self) -> list[TextPair]:
        """The pairs for testing if there are no test files."""
        every = max(20, math.ceil(sum(1 for _ in read_pairs(self.source, self.target)) / 1_000))
        return list(islice(read_pairs(self.source, self.target), 0, None, every))

    def training(self) -> Iterator[TextPair]:
        """The pairs for training."""
        left_out = set() if self.test else {source for source, _ in self.held_out}
        return (pair for pair in read_pairs(self.source, self.target) if pair[0] not in left_out)

    @cached_property
    def fingerprint(self) -> str:
        """A fingerprint of the training set that does not depend on where its files are."""
        digests = map(library("pooch", extra="text").file_hash, (self.source, self.target))
        return " ".join([*digests, *(["test files"] if self.test else [])])

    def joint_encoding(self, vocab_size: int) -> Subwords:
        """One byte-pair encoding for both languages, learned from the whole training set (§5.1).

        A pitfall: an encoding learned from other sentences has other ids, so a model trained with it cannot
        be used with this one. There are fewer than `vocab_size` tokens if the text yields no more.
        """

        def learn(path: Path) -> None:
            texts = (text for pair in self._with_progress("to learn its encoding") for text in pair)
            Subwords.train(texts, vocab_size, progress=sys.stderr.isatty()).save(path)

        return Subwords.load(self._cached(f"tokenizer-{vocab_size}.json", learn))

    def encoded(self, joint: Subwords) -> EncodedPairs:
        """The training set as ids of the given encoding.

        A pitfall: with millions of pairs, the first call takes minutes; one process does it for all others.
        """

        def encode() -> Iterator[Pair]:
            for chunk in in_chunks(self._with_progress("to encode it"), CHUNK):
                yield from zip(*(joint.encode_all(side) for side in zip(*chunk, strict=True)), strict=True)

        name = f"ids-{digest(joint.tokenizer.to_str())}.pt"
        return EncodedPairs.load(self._cached(name, lambda path: EncodedPairs.of(encode()).save(path)))

    def _with_progress(self, why: str) -> Iterator[TextPair]:
        """The training set, with a progress bar if it takes long (in a log file, a line every 10 seconds)."""
        pause = 0.1 if sys.stderr.isatty() else 10.0
        bar = {"unit": "pair", "unit_scale": True, "mininterval": pause, "delay": 1}
        yield from tqdm(self.training(), f"reading the training set {why}", **bar)

    def _cached(self, name: str, make: Callable[[Path], None]) -> Path:
        """A cached file, made if missing. The operating system releases the lock of a killed process."""
        path = cache_folder() / "corpora" / digest(self.fingerprint) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with library("filelock", extra="text").FileLock(f"{path}.lock"):
            if not path.exists():
                make(path)
        return path


def find_local(*names: str) -> Path:
    """The first of these files that exists in the user's own folder; FileNotFoundError if none does."""
    folder = Path(os.environ[DATA_VARIABLE]).expanduser()
    if found := [folder / name for name in names if (folder / name).is_file()]:
        return found[0]
    raise FileNotFoundError(f"{DATA_VARIABLE}: expected a folder with {names[0]}, got {folder}")


def cache_folder() -> Path:
    """The user's cache folder, for files that can be recreated."""
    return Path(library("pooch", extra="text").os_cache("transformer-lessons"))
