"""WMT14, English to German: the 4.5 million pairs that the paper trains on, and newstest2014 (§5.1, §6.1).

Europarl, Common Crawl and News Commentary, and news of 2013 and 2014 to choose and to judge by (Bojar et al.
2014, https://doi.org/10.3115/v1/W14-3302). They come without one licence for all, so this package does not bring
them: the `datasets` library streams them from their public home, in one fixed revision. Where there is no
network, ``TRANSFORMER_LESSONS_DATA`` names a folder with a folder ``wmt14`` in it, and in that ``train.en.gz``,
``train.de.gz``, and the same for ``validation`` and ``test``, a sentence a line (or unpacked, without ``.gz``).
It needs ``pip install "transformer-lessons[wmt14]"``.

Nothing here holds the corpus in memory. What is made of it, the encoding and the ids (`encoded`), is made once,
under a name that says of what, and kept in the user's cache.
"""

import gzip
import hashlib
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transformer_lessons import expect
from transformer_lessons.data.encoded import CHUNK, EncodedPairs, Pair, write_pairs
from transformer_lessons.data.multi30k import VARIABLE
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.texts import check_vocab_size

HOME, CONFIG = "wmt/wmt14", "de-en"
REVISION = "b199e406369ec1b7634206d3ded5ba45de2fe696"
PAIRS = {"train": 4_508_785, "validation": 3_000, "test": 3_003}
LANGUAGES = ("en", "de")


def sentences(split: str) -> Iterator[tuple[str, str]]:
    """The English and German sentences of a split, side by side, one pair after another.

    A pitfall: in the training set, some have nothing on one side; they are not left out here, so that a pair's
    number is its line.

    Args:
        split: "train", "validation" (newstest2013) or "test" (newstest2014).

    Raises:
        ValueError: for another split, or two files of different lengths.
        FileNotFoundError: if the folder that was named lacks a file.
        OSError: if the corpus cannot be fetched.
        ImportError: to fetch it without the `datasets` library.
    """
    if not isinstance(split, str) or split not in PAIRS:
        raise ValueError(f"split: expected one of {', '.join(PAIRS)}, got {split!r}")
    pairs = _lines(split) if os.environ.get(VARIABLE) else _streamed(split)
    return ((english.strip(), german.strip()) for english, german in pairs)


def find(name: str) -> Path:
    """The file of that name, packed or not, in the folder ``wmt14`` of ``$TRANSFORMER_LESSONS_DATA``.

    A pitfall: if both are there, the packed one is taken.

    Raises:
        ValueError: for a name that is none of the six, or if the variable names nothing.
        FileNotFoundError: if there is neither.
    """
    known = [f"{split}.{language}" for split in PAIRS for language in LANGUAGES]
    if name not in known:
        raise ValueError(f"name: expected one of {', '.join(known)}, got {name!r}")
    named = os.environ.get(VARIABLE)
    if not named:
        raise ValueError(f"{VARIABLE}: expected the name of a folder, got nothing")
    paths = [Path(named).expanduser() / "wmt14" / f"{name}{end}" for end in (".gz", "")]
    if not any(path.is_file() for path in paths):
        raise FileNotFoundError(f"{VARIABLE}: expected a folder with wmt14/{name}.gz, got {named}")
    return next(path for path in paths if path.is_file())


def joint_encoding(vocab_size: int) -> Subwords:
    """One byte-pair encoding for both languages, learned once from the whole training set, then kept (§5.1).

    The paper's has about 37,000 tokens, and is not published. A pitfall: one that was learned from other
    sentences has other ids, and a model trained with it cannot be used with this one.

    Raises:
        ValueError: for a vocab_size below 259; for the rest, as `sentences`.
        OSError: if the corpus cannot be fetched.
        ImportError: without the libraries that it needs.
    """
    check_vocab_size(vocab_size)
    path = _kept() / f"tokenizer-{vocab_size}.json"
    with _alone(path):
        if not path.is_file():
            texts = (text for pair in _watched("to learn the encoding") for text in pair)
            Subwords.train(texts, vocab_size, progress=True).save(path)
    return Subwords.load(path)


def encoded(joint: Subwords) -> EncodedPairs:
    """The training set as ids of that encoding, written to disk at first and then read from there.

    Pairs with nothing on one side are left out. Cut off, it begins anew the next time. A pitfall: the first call
    takes minutes; of several processes one does it, and the others wait for it.

    Raises:
        ValueError: for what is no encoding; for the rest, as `sentences`.
        OSError: if the corpus cannot be fetched.
        ImportError: without the libraries that it needs.
    """
    expect.kind(Subwords, joint=joint)
    folder = _kept() / f"ids-{_digest(joint.tokenizer.to_str().encode())}"
    with _alone(folder):
        if not folder.is_dir():
            write_pairs(folder, _encode(joint, _watched("to encode it")), len(joint))
    return EncodedPairs(folder)


def _encode(joint: Subwords, pairs: Iterator[tuple[str, str]]) -> Iterator[Pair]:
    whole = (pair for pair in pairs if all(pair))
    while chunk := list(islice(whole, CHUNK)):
        sides = (joint.encode_all(texts) for texts in zip(*chunk, strict=True))
        yield from zip(*sides, strict=True)


def _watched(why: str) -> Iterator[tuple[str, str]]:
    """The training set, with a bar; a log file gets a line every ten seconds."""
    total = None if os.environ.get(VARIABLE) else PAIRS["train"]
    about = f"WMT14, read {why}"
    pause = 0.1 if sys.stderr.isatty() else 10.0
    yield from tqdm(sentences("train"), about, total, unit="pair", unit_scale=True, mininterval=pause)


def _kept() -> Path:
    """The cache's folder for the training set that there is."""
    origin = f"{HOME} {CONFIG} {REVISION}"
    if os.environ.get(VARIABLE):
        origin = " ".join(_file_digest(find(f"train.{language}")) for language in LANGUAGES)
    cache = expect.library("pooch", extra="wmt14").os_cache("transformer-lessons")
    return Path(cache) / "wmt14" / _digest(origin.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _alone(path: Path) -> Any:
    """Only one process makes it. The lock is the system's: a process that is killed leaves it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return expect.library("filelock", extra="wmt14").FileLock(path.with_name(f"{path.name}.lock"))


def _lines(split: str) -> Iterator[tuple[str, str]]:
    paths = [find(f"{split}.{language}") for language in LANGUAGES]
    with _opened(paths[0]) as english, _opened(paths[1]) as german:
        for number, pair in enumerate(zip_longest(english, german)):
            if None in pair:
                shorter = paths[pair.index(None)]
                raise ValueError(f"{shorter}: expected as many lines as the other language, got {number}")
            yield pair


def _opened(path: Path) -> TextIOWrapper:
    """Lines end with \\n alone: what else Python would cut at can stand within a sentence."""
    opener = gzip.open if path.suffix == ".gz" else open
    return opener(path, "rt", encoding="utf-8", newline="\n")


def _streamed(split: str) -> Iterator[tuple[str, str]]:
    library = expect.library("datasets", extra="wmt14")
    try:
        rows = library.load_dataset(HOME, CONFIG, split=split, revision=REVISION, streaming=True)
        for row in rows:
            yield tuple(row["translation"][language] for language in LANGUAGES)
    except Exception as error:  # whatever the many layers below have for a network that is not there
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        way_out = f"Where there is no network, {VARIABLE} names a folder with the folder wmt14."
        raise OSError(f"{HOME}: expected to stream it, got {reason} {way_out}") from error
