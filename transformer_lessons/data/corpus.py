"""Texts in two languages, a sentence a line: line n of one file is the translation of line n of the other.

A corpus is `TextFiles`, or a module such as `multi30k` and `wmt14`. Nothing here holds it in memory. What is
made of it, an encoding and ids (`encoded`), is made once, under a name that says of what, and kept in the user's
cache.
"""

import gzip
import hashlib
import math
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

from tqdm import tqdm

from transformer_lessons.data.encoded import CHUNK, EncodedPairs, Pair, write_pairs
from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords

TextPair = tuple[str, str]
HELD_OUT = 20, 1_000  # of 20 pairs one is held out, but no more than 1,000 of all


def aligned(source: Path, target: Path) -> Iterator[TextPair]:
    """The lines of both files, side by side, without the spaces around them; plain, or packed as ``.gz``.

    A pitfall: one side may be empty; a pair's number is its line.

    Raises:
        ValueError: for bytes that are no UTF-8, and files of different lengths.
        OSError: for a file that is not there.
    """
    for number, pair in enumerate(zip_longest(_lines(source), _lines(target))):
        if None in pair:
            shorter, longer = (source, target) if pair[0] is None else (target, source)
            raise ValueError(f"{shorter}: expected as many lines as in {longer}, got {number}")
        yield pair


def _lines(path: Path) -> Iterator[str]:
    r"""Lines end with \n alone: what else Python would cut at can stand within a sentence."""
    count = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for line in file:
                count += 1
                yield line.decode("utf-8-sig").strip()  # an editor may have put a mark at the beginning
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a file with a sentence a line, found none") from None
    except UnicodeDecodeError as error:
        got = f"the byte {error.object[error.start]:#04x}"
        raise ValueError(f"{path}: expected UTF-8, got {got} in line {count}") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: expected a whole gzip file, got: {error}") from None


def whole(pairs: Iterable[TextPair]) -> Iterator[TextPair]:
    """The pairs that have something on both sides."""
    return (pair for pair in pairs if all(pair))


@dataclass(frozen=True)
class TextFiles:
    """A corpus of one's own: two files to train on, and perhaps two to be tested on.

    Without these, every 20th pair is held out, up to 1,000 of them, evenly spread. Nothing is trained on whose
    source is held out: in small corpora, sentences come again.
    """

    source: Path
    target: Path
    test: tuple[Path, Path] | None = None

    def sentences(self, split: str) -> Iterable[TextPair]:
        """Those of the files; of those held out, the ones without an empty side."""
        if split == "test":
            return aligned(*self.test) if self.test else self.held_out
        known = {source for source, _ in self.held_out}
        return (pair for pair in aligned(self.source, self.target) if pair[0] not in known)

    @cached_property
    def held_out(self) -> list[TextPair]:
        """What is not trained on: nothing, if there are files to be tested on."""
        if self.test:
            return []
        one_of, most = HELD_OUT
        count = sum(1 for _ in whole(aligned(self.source, self.target)))
        every = max(one_of, math.ceil(count / most))
        return list(islice(whole(aligned(self.source, self.target)), 0, None, every))

    @cached_property
    def _origin(self) -> str:
        digests = []
        for path in (self.source, self.target):
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return " ".join([*digests, *(["test files"] if self.test else [])])

    def origin(self) -> str:
        """What is in the files, wherever they are."""
        return self._origin


Corpus = TextFiles | ModuleType  # which has the same two functions


def joint_encoding(corpus: Corpus, vocab_size: int) -> Subwords:
    """One byte-pair encoding for both languages, learned once from the whole training set, then kept (§5.1).

    A pitfall: one that was learned from other sentences has other ids, and a model trained with it cannot be used
    with this one. It has fewer tokens than `vocab_size` if the text gives no more.
    """
    path = _kept(corpus) / f"tokenizer-{vocab_size}.json"
    with _alone(path):
        if not path.is_file():
            texts = (text for pair in _watched(corpus, "to learn its encoding") for text in pair)
            Subwords.train(texts, vocab_size, progress=sys.stderr.isatty()).save(path)
    return Subwords.load(path)


def encoded(corpus: Corpus, joint: Subwords) -> EncodedPairs:
    """The training set as ids of that encoding, written to disk at first and then read from there.

    Pairs with nothing on one side are left out and counted. Cut off, it begins anew the next time. A pitfall: the
    first call takes minutes; of several processes one does it, and the others wait for it.
    """
    folder = _kept(corpus) / f"ids-{_digest(joint.tokenizer.to_str())}"
    with _alone(folder):
        if not folder.is_dir():
            write_pairs(folder, _encode(joint, _watched(corpus, "to encode it")), len(joint))
    return EncodedPairs(folder)


def _encode(joint: Subwords, pairs: Iterator[TextPair]) -> Iterator[Pair]:
    count = kept = 0
    while chunk := list(islice(pairs, CHUNK)):
        both = list(whole(chunk))
        count, kept = count + len(chunk), kept + len(both)
        yield from zip(*(joint.encode_all(side) for side in zip(*both, strict=True)), strict=True)
    if kept < count:
        print(f"left out: {count - kept:,} of {count:,} pairs, empty on one side or both", file=sys.stderr)


def _watched(corpus: Corpus, why: str) -> Iterator[TextPair]:
    """The training set; if it takes long, with a bar, of which a log file gets a line every ten seconds."""
    pause = 0.1 if sys.stderr.isatty() else 10.0
    bar = {"unit": "pair", "unit_scale": True, "mininterval": pause, "delay": 1}
    yield from tqdm(corpus.sentences("train"), f"the training set, read {why}", **bar)


def _kept(corpus: Corpus) -> Path:
    cache = library("pooch", extra="text").os_cache("transformer-lessons")
    return Path(cache) / "corpora" / _digest(corpus.origin())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _alone(path: Path) -> Any:
    """Only one process makes it. The lock is the system's: a process that is killed leaves it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return library("filelock", extra="text").FileLock(path.with_name(f"{path.name}.lock"))
