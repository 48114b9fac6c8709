"""Settings of runs that come with the package, in the form of a run's ``config.json``, for ``--config``."""

from pathlib import Path

PACKAGED = {path.stem: path for path in Path(__file__).parent.glob("*.json")}


def find(name: str) -> Path:
    """The file of the settings that have this name, such as ``wmt14-big``; for any other name, the path it is.

    A pitfall: a file of the user's own that is called like that, without an ending, comes first.
    """
    return Path(name) if Path(name).is_file() else PACKAGED.get(name, Path(name))
