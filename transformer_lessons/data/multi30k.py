"""Multi30k, English to German: captions of photographs (Elliott et al. 2016, https://arxiv.org/abs/1605.00459).

29,000 pairs to train on, 1,014 to choose by, and the 1,000 of the test set of 2016. The captions come without a
licence, so this package does not bring them: each user's machine fetches them from their public home, once, and
holds what it got against SHA-256 sums. Where there is no network, ``TRANSFORMER_LESSONS_DATA`` names a folder
with the six files. It needs ``pip install "transformer-lessons[multi30k]"``.
"""

import gzip
import hashlib
import os
from pathlib import Path
from typing import Any

from transformer_lessons import expect

# The authors' repository, and a network that serves files of public repositories, where that one is out of reach.
HOMES = (
    "https://github.com/multi30k/dataset/raw/master/data/task1/raw/",
    "https://cdn.jsdelivr.net/gh/multi30k/dataset@master/data/task1/raw/",
)
VARIABLE = "TRANSFORMER_LESSONS_DATA"
SPLITS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}


def sentences(split: str) -> list[tuple[str, str]]:
    """The English and German captions of a split, side by side, downloaded if they are not here yet.

    A pitfall: forty German captions of the training set have stray spaces at an end, and would teach the model
    to write them; what is returned is stripped. (No caption of the test set's German side has any.)

    Args:
        split: "train", "validation" or "test".

    Raises:
        ValueError: for another split, or a file that is not the one whose sum is known.
        FileNotFoundError: if the folder that was named lacks a file.
        OSError: if it cannot be fetched.
        ImportError: to fetch something without the `pooch` library.
    """
    expect.kind(str, split=split)
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
    english, german = (_lines(find(f"{SPLITS[split]}.{language}.gz")) for language in ("en", "de"))
    return list(zip(english, german, strict=True))


def find(name: str) -> Path:
    """Where the file of that name is: in ``$TRANSFORMER_LESSONS_DATA`` (or its folder ``multi30k``), if that is
    set, or else in the user's cache, into which it is downloaded at first.

    A pitfall: a folder that was named is only read. What is wrong in it is said, not mended.

    Raises:
        ValueError: for a name that is none of the six, or a file whose SHA-256 is another.
        FileNotFoundError: if the folder that was named lacks it.
        OSError: if it cannot be fetched.
        ImportError: to fetch it without the `pooch` library.
    """
    if name not in SHA256:
        raise ValueError(f"name: expected one of {', '.join(SHA256)}, got {name!r}")
    named = os.environ.get(VARIABLE)
    if not named:
        return _fetched(name)
    folder = Path(named).expanduser()
    path = next(
        (path for path in (folder / "multi30k" / name, folder / name) if path.is_file()), folder / name
    )
    if not path.is_file():
        raise FileNotFoundError(f"{VARIABLE}: expected a folder with {name}, got {named}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256[name]:
        raise ValueError(f"{path}: expected SHA-256 {SHA256[name]}, got {found}")
    return path


def _fetched(name: str) -> Path:
    """From the first home that gives what is expected; pooch asks each three times, and keeps nothing else."""
    reasons, is_another = [], True
    for home in HOMES:
        try:
            return Path(_fetcher(home).fetch(name, progressbar=True))
        except (OSError, ValueError) as error:
            reasons.append(str(error))
            is_another = is_another and isinstance(error, ValueError)
    message = (
        f"{name}: expected to fetch it, got {'; '.join(reasons)}. Where there is no network, {VARIABLE} names a "
        "folder with the six files."
    )
    if is_another:
        raise ValueError(message)
    raise OSError(message)


def _fetcher(home: str) -> Any:
    pooch = expect.library("pooch", extra="multi30k")
    return pooch.create(
        path=pooch.os_cache("transformer-lessons") / "multi30k",
        base_url=home,
        registry={name: f"sha256:{digest}" for name, digest in SHA256.items()},
        retry_if_failed=2,
    )


def _lines(path: Path) -> list[str]:
    """The lines of a file. Not str.splitlines, which would also cut at characters that are no end of a line."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    return [line.strip() for line in text.removesuffix("\n").split("\n")]
