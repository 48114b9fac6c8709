"""Grade a batch: take submissions in, run them through nbgrader in their boxes, and write feedback.

The course's folder then holds

    received/STUDENT/ASSIGNMENT/       what was taken in, mended; the originals stay where they are
    gradebook.db, autograded/          nbgrader's, as ever
    records/STUDENT/ASSIGNMENT/        a `Result` for each notebook, as JSON
    feedback/STUDENT/ASSIGNMENT/       the page that the student gets
    not_graded.json                    what could not be graded, and why
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
from nbgrader.apps import NbGraderAPI
from tqdm import tqdm
from traitlets.config import Config

from exercises import release
from exercises.autograder import feedback, flags
from exercises.autograder import result as results
from exercises.autograder.execute import record_path
from exercises.autograder.intake import Quarantined, Received, take_in
from exercises.autograder.result import Flag, Result
from transformer_lessons.files import replacing, write_json
from transformer_lessons.submission import grade_id

__all__ = ["Summary", "grade"]


@dataclass
class Summary:
    """What became of a batch.

    Attributes:
        graded: the results, in the order of grading.
        quarantined: what was put aside at the intake.
        failed: what could not be graded for a reason of the grader's, not of the student's: path and reason.
    """

    graded: list[Result] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


def grade(source: Path, course: Path, *, isolated: bool = True, changes: Config | None = None) -> Summary:
    """Grade everything that a source holds.

    Args:
        source: a notebook, a folder of them, nbgrader's `submitted`, or a zip archive of Canvas or Moodle.
        course: the folder that everything is written into; made if it is not there.
        isolated: False runs the students' code unprotected, and marks every grade so.
        changes: of nbgrader's configuration.

    Raises:
        FileNotFoundError: if there is no such source.
    """
    course.mkdir(parents=True, exist_ok=True)
    config = Config(IsolatedExecute=Config(isolation="full" if isolated else "none"))
    config.CourseDirectory.submitted_directory = str(course / "received")
    config.IsolatedExecute.records = str(course / "records")
    config.merge(changes or Config())
    with _nbgraders_commands():
        batch = _Batch(course, release.course(course, config))
        found = list(take_in(source, batch.released))
        for one in tqdm(found, unit="submission", disable=not sys.stderr.isatty()):
            batch.take(one)
    batch.note_what_was_not_graded()
    return batch.summary


class _Batch:
    """A batch on its way through nbgrader.

    Args:
        course: its folder.
        api: nbgrader, configured for it.
    """

    def __init__(self, course: Path, api: NbGraderAPI):
        self._course, self._api = course, api
        masters = release.masters()
        self._masters = {master.parent.name: master for master in masters}
        paths = {name: release.released(master) for name, master in self._masters.items()}
        self.released = {name: nbformat.read(path, as_version=4) for name, path in paths.items()}
        self._known: set[str] = set()  # to the gradebook
        self.summary = Summary()

    def take(self, one: Received | Quarantined) -> None:
        """Grade one submission; whatever goes wrong with it is noted, and the next one follows."""
        if isinstance(one, Quarantined):
            self.summary.quarantined.append(one)
            return
        try:
            self.summary.graded.append(self._graded(one))
        except Exception as error:
            self.summary.failed.append((one.path, f"{type(error).__name__}: {error}"))

    def _graded(self, one: Received) -> Result:
        self._introduce(one.assignment)
        _write(self._course / "received" / one.student / one.assignment, one)
        done = self._api.autograde(one.assignment, one.student, force=True)
        if not done["success"]:
            raise RuntimeError(f"nbgrader: {done.get('error') or ''}{done.get('log') or ''}"[-2000:])
        result = Result(one.student, one.assignment)
        path = record_path(self._course / "records", result, one.assignment)
        result = self._with_what_else_is_known(results.read(path), one)
        results.write(path, result)
        return self._fed_back(result, one)

    def _introduce(self, assignment: str) -> None:
        """Have the gradebook know the assignment as its master is now."""
        if assignment not in self._known:
            release.generate(self._masters[assignment], self._api)
            self._known.add(assignment)

    def _with_what_else_is_known(self, result: Result, one: Received) -> Result:
        """What was mended, and what the text of the learner's cells shows."""
        released = [cell for cell in self.released[one.assignment].cells if cell.cell_type == "code"]
        locked = {grade_id(cell) for cell in released if cell.metadata.get("nbgrader", {}).get("locked")}
        answers = flags.answered((grade_id(cell), cell.source) for cell in released)
        tasks = {part.task for cell in result.cells for part in cell.parts}.union(*answers.values())
        code = [(grade_id(cell), cell.source) for cell in one.notebook.cells if cell.cell_type == "code"]
        seen = flags.in_source([cell for cell in code if cell[0] not in locked], tasks, answers)
        repaired = (Flag("repair", sentence) for sentence in one.repairs)
        return replace(result, flags=(*result.flags, *seen, *repaired), repairs=one.repairs)

    def _fed_back(self, result: Result, one: Received) -> Result:
        """Write the student's page, with answers in words as they were written."""
        name = f"{result.assignment}.ipynb"
        done = self._course / "autograded" / result.student / result.assignment / name
        path = self._course / "feedback" / result.student / result.assignment / f"{result.assignment}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        notebook, written = nbformat.read(done, as_version=4), {cell.id: cell for cell in one.notebook.cells}
        notebook.cells = [written.get(c.id, c) if c.cell_type == "markdown" else c for c in notebook.cells]
        text = feedback.page(notebook, self.released[result.assignment], result)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return result

    def note_what_was_not_graded(self) -> None:
        """A list for a person, with the reasons that students can act on."""
        aside = [
            {"path": q.path, "student": q.student, "assignment": q.assignment, "reason": q.reason}
            for q in self.summary.quarantined
        ]
        failed = [{"path": path, "reason": reason} for path, reason in self.summary.failed]
        write_json(self._course / "not_graded.json", {"quarantined": aside, "failed": failed})


def _write(folder: Path, one: Received) -> None:
    """A submission where nbgrader looks for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{one.assignment}.ipynb") as temporary:
        nbformat.write(one.notebook, temporary)
    if one.timestamp:
        with replacing(folder / "timestamp.txt") as temporary:
            temporary.write_text(one.timestamp, encoding="utf-8")


@contextmanager
def _nbgraders_commands() -> Iterator[None]:
    """nbgrader starts the command `alembic`, which lies beside this Python."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
