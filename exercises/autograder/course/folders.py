"""A course's folder: where everything is stored, and how it is read.

gradebook.db                       nbgrader's
roster.json                        students' ids by the platform's numbers, if there was a roster
received/STUDENT/ASSIGNMENT/       submissions taken in, repaired; the originals stay where they are
journal/KE/KEY.json                the outcome of each grading, stored before anything else is done with it
autograded/STUDENT/ASSIGNMENT/     the notebook with its outputs, which formgrader shows
records/STUDENT/ASSIGNMENT/        a `Result`, as JSON
feedback/STUDENT/ASSIGNMENT/       the page that the student gets
released/ASSIGNMENT/               each version that was handed out
not_graded.json                    what could not be graded, and why
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from exercises.autograder import result as results
from exercises.autograder.intake import Arrival
from exercises.autograder.result import Result
from transformer_lessons.data.files import read_json, write_json, write_text

PATIENCE = 30  # seconds to wait for a gradebook that another program has locked
ORIGIN = "origin.json"  # beside a submission: what is known about it besides its text


def _each(folder: str, suffix: str) -> Callable[["Course", str, str], Path]:
    """A method that gives the path of one kind of file for a student and an assignment."""
    return lambda self, student, name: self.folder / folder / student / name / f"{name}.{suffix}"


@dataclass(frozen=True)
class Course:
    """The folder of a course; an assignment has one notebook, of its name."""

    folder: Path  # need not exist yet

    @property
    def gradebook(self) -> str:
        """The address of nbgrader's database."""
        return f"sqlite:///{self.folder / 'gradebook.db'}?timeout={PATIENCE}"

    @property
    def not_graded(self) -> Path:
        """The list of what could not be graded, for a person."""
        return self.folder / "not_graded.json"

    received = _each("received", "ipynb")  # the notebook of a submission, repaired
    autograded = _each("autograded", "ipynb")  # a graded notebook, with outputs
    record = _each("records", "json")  # the result of a submission that is in the gradebook
    page = _each("feedback", "html")  # a student's feedback page

    def report(self, assignment: str) -> Path:
        """The page about the class."""
        return self.folder / "report" / f"{assignment}.html"

    def versions(self, assignment: str) -> list[NotebookNode]:
        """The versions of an assignment that were handed out and are kept in this folder."""
        paths = sorted((self.folder / "released" / assignment).glob("*.ipynb"))
        return [nbformat.read(path, as_version=4) for path in paths]

    def submissions(self, assignment: str = "*") -> list[tuple[str, str]]:
        """Student and assignment of every submission that was taken in, sorted."""
        found = self.folder.glob(f"received/*/{assignment}/*.ipynb")
        return sorted((path.parts[-3], path.parts[-2]) for path in found if path.stem == path.parts[-2])

    def results(self, assignment: str = "*") -> Iterator[Result]:
        """The results that are in the gradebook, one submission after another."""
        for path in sorted(self.folder.glob(f"records/*/{assignment}/*.json")):
            yield results.read(path)

    def keep(self, received: Arrival) -> None:
        """Write a submission; it replaces an earlier one of the same student and assignment."""
        path = self.received(received.student, received.assignment)
        about = {name: getattr(received, name) for name in ("path", "repairs", "timestamp", "late")}
        # The text first: without the rest it can be graded, but not the other way round.
        _update(path, nbformat.writes(received.notebook) + "\n")
        _update(path.with_name(ORIGIN), json.dumps(about, ensure_ascii=False, indent=2) + "\n")

    def has_other(self, received: Arrival) -> bool:
        """Whether the same student has handed in another text before."""
        path = self.received(received.student, received.assignment)
        return path.exists() and nbformat.read(path, as_version=4) != received.notebook

    def origin(self, student: str, assignment: str) -> dict[str, Any]:
        """What is known about a submission besides its text, as fields of a `Result`."""
        path = self.received(student, assignment).with_name(ORIGIN)
        about = read_json(path) if path.exists() else {"path": ""}
        return {**about, "repairs": tuple(about.get("repairs", ()))}

    def list_quarantined(self, source: Path, received: list[Arrival], quarantined: list[Arrival]) -> None:
        """Add to the list of what was not graded, and remove from it what has been put right.

        A pitfall: a file of the same path in another source, such as another week's, puts nothing right.
        """
        known, where = self.left_out(), str(source.resolve())
        paths = {(where, arrival.path) for arrival in (*received, *quarantined)}
        settled = {(arrival.student, arrival.assignment) for arrival in received}
        kept = [one for one in known["quarantined"] if (one.get("source"), one["path"]) not in paths]
        kept = [one for one in kept if (one["student"], one["assignment"]) not in settled]
        kept += [{"source": where, **arrival.entry()} for arrival in quarantined]
        write_json(self.not_graded, {**known, "quarantined": kept})

    def left_out(self) -> dict[str, list[dict]]:
        """What was "quarantined" and what "failed": path, student, assignment as far as known, and the reason."""
        if not self.not_graded.exists():
            return {"quarantined": [], "failed": []}
        return read_json(self.not_graded)


def _update(path: Path, text: str) -> None:
    """Write a file unless it has this text already; so a batch goes on when the disk is almost full."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
