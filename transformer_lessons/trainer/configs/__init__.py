"""Settings of runs that come with the package, in the form of a run's ``config.json``, for ``--config``."""

from importlib.resources import files
from pathlib import Path


def find(name: str) -> Path:
    """The file of the settings that have this name, such as ``wmt14-big``; for any other name, the path it is.

    A pitfall: a file of the user's own that is called like that, without an ending, comes first.
    """
    return packaged(name) if name in names() and not Path(name).exists() else Path(name)


def packaged(name: str) -> Path:
    """The file of that name in the package."""
    return Path(str(files(__name__) / f"{name}.json"))


def names() -> list[str]:
    """Which settings there are."""
    found = (path.name for path in files(__name__).iterdir())
    return sorted(name.removesuffix(".json") for name in found if name.endswith(".json"))
