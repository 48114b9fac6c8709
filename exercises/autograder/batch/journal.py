"""What gradings gave, by what they depend on: each is kept whole before anything else is done with it.

Two submissions of the same text are graded once. An entry is never changed, so an interrupted batch goes on where
it was, and a grading that is wanted again costs nothing.
"""

from dataclasses import asdict
from pathlib import Path

from exercises.autograder.running.job import Outcome, outcome_from_dict
from transformer_lessons.data.files import read_json, write_json

__all__ = ["Journal"]


class Journal:
    """A folder with a file for each grading.

    Args:
        folder: need not be there yet.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def find(self, key: str) -> Outcome | None:
        """What a grading gave, or None; a file that cannot be read counts as none, and is replaced by `keep`."""
        try:
            return outcome_from_dict(read_json(self._path(key)))
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def keep(self, key: str, outcome: Outcome) -> None:
        """Keep it; on return it is on disk.

        Raises:
            OSError: if there is no room, for one; nothing is left half-written.
        """
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(outcome))

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
