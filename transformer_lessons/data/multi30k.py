"""Multi30k, English to German: captions of photographs (Elliott et al. 2016, https://arxiv.org/abs/1605.00459).

29,000 pairs for training, 1,014 for validation, and the 1,000 of the 2016 test set. The captions come without
a licence, so this package does not include them: each user's machine downloads them once from their public
source and checks their SHA-256 sums. Without a network, set ``TRANSFORMER_LESSONS_DATA`` to a folder with the
six files. Install the libraries with ``pip install "transformer-lessons[text]"``.
"""

import os
from pathlib import Path

from transformer_lessons.data.corpus import DATA_VARIABLE, cache_folder, find_local
from transformer_lessons.data.libraries import library

# The authors' repository, and a CDN for public repositories in case the first is unreachable.
BASE_URLS = (
    "https://github.com/multi30k/dataset/raw/master/data/task1/raw/",
    "https://cdn.jsdelivr.net/gh/multi30k/dataset@master/data/task1/raw/",
)
SPLITS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}


def files(split: str) -> tuple[Path, Path]:
    """The paths of the English and the German captions of a split, downloaded if necessary.

    ValueError for a file with another checksum; OSError if it can neither be found nor downloaded.
    """
    return _find(f"{SPLITS[split]}.en.gz"), _find(f"{SPLITS[split]}.de.gz")


def _find(name: str) -> Path:
    """The path of a file, in the folder that the user named, which is only read, or in the cache."""
    if not os.environ.get(DATA_VARIABLE):
        return _fetched(name)
    path = find_local(name, f"multi30k/{name}")
    digest = library("pooch", extra="text").file_hash(path)
    if digest != SHA256[name]:
        raise ValueError(f"{path}: expected SHA-256 {SHA256[name]}, got {digest}")
    return path


def _fetched(name: str) -> Path:
    """The path of a file from the first source that has the expected one; pooch tries each three times."""
    reasons = []
    for url in BASE_URLS:
        about = {"path": cache_folder() / "multi30k", "registry": {name: SHA256[name]}, "retry_if_failed": 2}
        fetcher = library("pooch", extra="text").create(base_url=url, **about)
        try:
            return Path(fetcher.fetch(name, progressbar=True))
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    hint = f"Without a network, set {DATA_VARIABLE} to a folder with the six files."
    raise OSError(f"{name}: expected to download it, got {'; '.join(reasons)}. {hint}")
