"""A course's folder: where everything lies, and what is read from it.

gradebook.db                       nbgrader's
roster.json                        students' ids by the platform's numbers, if there was a roster
received/STUDENT/ASSIGNMENT/       what was taken in, mended; the originals stay where they are
journal/KEY.json                   what each grading gave, before anything else is done with it
autograded/STUDENT/ASSIGNMENT/     the notebook with its outputs, which formgrader shows
records/STUDENT/ASSIGNMENT/        a `Result`, as JSON
feedback/STUDENT/ASSIGNMENT/       the page that the student gets
released/ASSIGNMENT/               each version that was handed out
not_graded.json                    what could not be graded, and why
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exercises.autograder import result as results
from exercises.autograder.result import Result
from transformer_lessons.data.files import read_json

__all__ = ["Course"]


@dataclass(frozen=True)
class Course:
    """One folder; an assignment has one notebook, of its name.

    Attributes:
        folder: need not be there yet.
    """

    folder: Path

    @property
    def gradebook(self) -> str:
        """The address of nbgrader's database."""
        return f"sqlite:///{self.folder / 'gradebook.db'}"

    @property
    def journal(self) -> Path:
        """The folder for what gradings gave."""
        return self.folder / "journal"

    @property
    def not_graded(self) -> Path:
        """The list for a person of what could not be graded."""
        return self.folder / "not_graded.json"

    def received(self, student: str, assignment: str) -> Path:
        """A submission's notebook, mended."""
        return self.folder / "received" / student / assignment / f"{assignment}.ipynb"

    def autograded(self, student: str, assignment: str) -> Path:
        """A graded notebook, with outputs."""
        return self.folder / "autograded" / student / assignment / f"{assignment}.ipynb"

    def record(self, student: str, assignment: str) -> Path:
        """The result of a submission that is in the gradebook."""
        return self.folder / "records" / student / assignment / f"{assignment}.json"

    def page(self, student: str, assignment: str) -> Path:
        """A student's feedback."""
        return self.folder / "feedback" / student / assignment / f"{assignment}.html"

    def report(self, assignment: str) -> Path:
        """The page about the class."""
        return self.folder / "report" / f"{assignment}.html"

    def submissions(self, assignment: str = "*") -> list[tuple[str, str]]:
        """Student and assignment of all that was taken in, sorted."""
        found = self.folder.glob(f"received/*/{assignment}/*.ipynb")
        return sorted((path.parts[-3], path.parts[-2]) for path in found if path.stem == path.parts[-2])

    def results(self, assignment: str = "*") -> Iterator[Result]:
        """What is in the gradebook, one submission after the other."""
        for path in sorted(self.folder.glob(f"records/*/{assignment}/*.json")):
            yield results.read(path)

    def left_out(self) -> dict[str, list[dict]]:
        """What was "quarantined" and what "failed": path, student, assignment as far as known, and the reason."""
        if not self.not_graded.exists():
            return {"quarantined": [], "failed": []}
        return read_json(self.not_graded)
