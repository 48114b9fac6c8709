"""WMT14, English to German: the 4.5 million pairs that the paper trains on, and newstest2014 (§5.1, §6.1).

Europarl, Common Crawl and News Commentary for training, news of 2013 for validation and of 2014 for testing
(Bojar et al. 2014, https://doi.org/10.3115/v1/W14-3302). No single licence covers them, so this package does
not include them: the `datasets` library streams a fixed revision from its public source into the user's
cache. Without a network, set ``TRANSFORMER_LESSONS_DATA`` to a folder that contains ``wmt14/train.en.gz``,
``wmt14/train.de.gz``, and the same for ``validation`` and ``test``, one sentence per line (or uncompressed,
without ``.gz``). Install the libraries with ``pip install "transformer-lessons[wmt14]"``.
"""

import os
from pathlib import Path

from tqdm import tqdm

from transformer_lessons.data.corpus import DATA_VARIABLE, cache_folder, find_local
from transformer_lessons.data.files import brief, replacing
from transformer_lessons.data.libraries import library

DATASET, CONFIG = "wmt/wmt14", "de-en"
REVISION = "b199e406369ec1b7634206d3ded5ba45de2fe696"
PAIRS = {"train": 4_508_785, "validation": 3_000, "test": 3_003}


def files(split: str) -> tuple[Path, Path]:
    """The paths of the English and the German sentences of "train", "validation" or "test".

    The first call for "train" writes 1.3 GB. OSError if that fails, or if the named folder lacks a file.
    """
    if os.environ.get(DATA_VARIABLE):
        english, german = (f"wmt14/{split}.{language}" for language in ("en", "de"))
        return find_local(f"{english}.gz", english), find_local(f"{german}.gz", german)
    folder = cache_folder() / "wmt14" / REVISION
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{split}.en", folder / f"{split}.de"
    with library("filelock", extra="wmt14").FileLock(folder / f"{split}.lock"):
        if not all(path.exists() for path in paths):
            _stream(split, *paths)
    return paths


def _stream(split: str, english: Path, german: Path) -> None:
    datasets = library("datasets", extra="wmt14")
    try:
        rows = datasets.load_dataset(DATASET, CONFIG, split=split, revision=REVISION, streaming=True)
        with (
            replacing(english) as sources,
            replacing(german) as targets,
            sources.open("w", encoding="utf-8") as source,
            targets.open("w", encoding="utf-8") as target,
        ):
            for row in tqdm(rows, f"WMT14, {split}", PAIRS[split], unit="pair", unit_scale=True):
                for file, language in ((source, "en"), (target, "de")):
                    file.write(row["translation"][language].replace("\n", " ") + "\n")
    except Exception as error:  # the layers below raise many kinds of error without a network
        got = f"{type(error).__name__}: {brief(error)}"
        hint = f"Without a network, set {DATA_VARIABLE} to a folder that contains wmt14."
        raise OSError(f"{DATASET}: expected to download it, got {got}. {hint}") from error
