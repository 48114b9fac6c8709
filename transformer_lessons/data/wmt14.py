"""WMT14, English to German: the 4.5 million pairs that the paper trains on, and newstest2014 (§5.1, §6.1).

Europarl, Common Crawl and News Commentary, and news of 2013 and 2014 to choose and to judge by (Bojar et al.
2014, https://doi.org/10.3115/v1/W14-3302). They come without one licence for all, so this package does not bring
them: the `datasets` library streams them from their public home, in one fixed revision. Where there is no
network, ``TRANSFORMER_LESSONS_DATA`` names a folder with a folder ``wmt14`` in it, and in that ``train.en.gz``,
``train.de.gz``, and the same for ``validation`` and ``test``, a sentence a line (or unpacked, without ``.gz``).
It needs ``pip install "transformer-lessons[wmt14]"``.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from transformer_lessons.data.corpus import TextFiles, TextPair, aligned
from transformer_lessons.data.libraries import library
from transformer_lessons.data.multi30k import VARIABLE

HOME, CONFIG = "wmt/wmt14", "de-en"
REVISION = "b199e406369ec1b7634206d3ded5ba45de2fe696"
PAIRS = {"train": 4_508_785, "validation": 3_000, "test": 3_003}
LANGUAGES = ("en", "de")


def sentences(split: str) -> Iterator[TextPair]:
    """The English and German sentences of a split, side by side, one pair after another.

    A pitfall: in the training set, some have nothing on one side; they are not left out here, so that a pair's
    number is its line.

    Args:
        split: "train", "validation" (newstest2013) or "test" (newstest2014).

    Raises:
        ValueError: for two files of different lengths.
        OSError: if the corpus cannot be fetched, or the folder that was named lacks a file.
    """
    return aligned(*_files(split)) if os.environ.get(VARIABLE) else _streamed(split)


def origin() -> str:
    """The revision, or what is in the files."""
    if os.environ.get(VARIABLE):
        return TextFiles(*_files("train"), test=_files("test")).origin()
    return f"{HOME} {CONFIG} {REVISION}"


def _files(split: str) -> tuple[Path, Path]:
    folder = Path(os.environ[VARIABLE]).expanduser() / "wmt14"
    return tuple(_file(folder, f"{split}.{language}") for language in LANGUAGES)


def _file(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{VARIABLE}: expected a folder with wmt14/{name}.gz, got {folder.parent}")


def _streamed(split: str) -> Iterator[TextPair]:
    datasets = library("datasets", extra="wmt14")
    try:
        rows = datasets.load_dataset(HOME, CONFIG, split=split, revision=REVISION, streaming=True)
        for row in rows:
            yield tuple(row["translation"][language].strip() for language in LANGUAGES)
    except Exception as error:  # whatever the many layers below have for a network that is not there
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        way_out = f"Where there is no network, {VARIABLE} names a folder with the folder wmt14."
        raise OSError(f"{HOME}: expected to stream it, got {reason} {way_out}") from error
