"""A course's assignments: what was handed out, now and earlier, and what the gradebook knows of the masters."""

import hashlib
import re
from functools import cached_property

import nbformat
from nbformat import NotebookNode
from nbgrader.api import MissingEntry
from nbgrader.apps import NbGraderAPI

from exercises import release
from exercises.autograder.course.folders import Course
from exercises.autograder.running.notebook import MasterCell, master_of
from transformer_lessons.data.files import replacing

__all__ = ["Assignments"]


class Assignments:
    """All of a course.

    Args:
        course: its folder, where what was handed out is kept.
        api: nbgrader, configured for it.
    """

    def __init__(self, course: Course, api: NbGraderAPI):
        self._course, self._api = course, api
        self.masters = {path.parent.name: path for path in release.masters()}
        self._known: dict[str, tuple[MasterCell, ...]] = {}

    @cached_property
    def released(self) -> dict[str, NotebookNode]:
        """By name, as they are handed out now."""
        paths = {name: release.released(master) for name, master in self.masters.items()}
        return {name: nbformat.read(path, as_version=4) for name, path in paths.items()}

    def earlier(self) -> dict[str, list[NotebookNode]]:
        """By name, the versions that were handed out before, as far as this course was graded with them."""
        found: dict[str, list[NotebookNode]] = {}
        for path in sorted(self._course.folder.glob("released/*/*.ipynb")):
            name = path.parent.name
            version = nbformat.read(path, as_version=4)
            if name in self.released and version != self.released[name]:
                found.setdefault(name, []).append(version)
        return found

    def master(self, name: str) -> tuple[MasterCell, ...]:
        """The cells of an assignment as they are now, of which the gradebook is told if they have changed.

        Raises:
            ValueError: if nbgrader refuses the master: once there are marks, no cell may come or go.
        """
        if name not in self._known:
            path = self.masters[name]
            told = self._course.folder / "released" / name / "master.sha256"
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if not told.exists() or told.read_text() != digest or not self._is_in_the_gradebook(name):
                self._tell(name)
                with replacing(told) as temporary:
                    temporary.write_text(digest)
            self._known[name] = master_of(self._course.gradebook, name, name)
        return self._known[name]

    def _is_in_the_gradebook(self, name: str) -> bool:
        try:
            return bool(master_of(self._course.gradebook, name, name))
        except MissingEntry:
            return False

    def _tell(self, name: str) -> None:
        """Have nbgrader read the master, and keep what is handed out now."""
        try:
            release.generate(self.masters[name], self._api)
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            refused = re.search("Cannot add or remove cells[^\n]*", str(error))
            raise ValueError(
                f"{name}: nbgrader refuses its master: {refused[0] if refused else last}"
            ) from error
        text = release.released(self.masters[name]).read_text(encoding="utf-8")
        version = hashlib.sha256(text.encode()).hexdigest()[:12]
        path = self._course.folder / "released" / name / f"{version}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
