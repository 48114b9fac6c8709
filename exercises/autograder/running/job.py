"""The grading of one submission, from text to text: whatever runs it knows no student, file or gradebook.

So it can run in another process or on another machine, twice or not at all, without harm.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

import transformer_lessons
from exercises.autograder.box.confine import Limits
from exercises.autograder.result import Flag, Result
from exercises.autograder.running import notebook
from exercises.autograder.running.flags import parsed
from exercises.autograder.running.inert import sanitize
from exercises.autograder.running.notebook import MasterCell
from transformer_lessons.tools.submission import grade_id

DECISIVE_FOLDERS = ("box", "running")


@dataclass(frozen=True)
class Job:
    """Everything that a grading depends on."""

    notebook: str  # the submission as JSON, repaired
    master: tuple[MasterCell, ...]  # the assignment's cells
    limits: Limits = field(default_factory=Limits)  # what it may use
    isolation: str = "full"  # "full", or "none" for running it unprotected

    @cached_property
    def submission(self) -> str:
        """A digest of what the student wrote and plotted, with the places of cells of their own."""
        locked, cells = {cell.name: cell.locked for cell in self.master}, json.loads(self.notebook)["cells"]
        texts, place = [], None
        for cell in cells:
            name = grade_id(cell)
            place = name if name in locked else place  # whether code is above a test may decide over it
            if not locked.get(name):
                texts.append([cell["cell_type"], name, "".join(cell["source"]), place])
        plots = [cell["outputs"] for cell in cells if cell.get("outputs")]  # only experiments have any
        return _digest([*texts, *plots])

    @cached_property
    def key(self) -> str:
        """A digest that changes with everything that may change the marks, not with the course's prose."""
        cells = [cell for cell in self.master if cell.type == "code" or cell.is_graded or cell.is_answer]
        rest = (asdict(self.limits), self.isolation, notebook.versions(), _grader_digest())
        return _digest([self.submission, [asdict(cell) for cell in cells], *rest])


@dataclass(frozen=True)
class Outcome:
    """The outcome of a grading."""

    result: Result  # without a student
    notebook: str  # the submission with its outputs, as JSON; it is safe to look at
    scores: dict[str, float | None]  # points by grade id; None where a person has to give them
    unanswered: tuple[str, ...]  # the answers left as handed out, without own words beside them


def run(job: Job) -> Outcome:
    """Grade a submission.

    Raises:
        WorkerError: if the box cannot be made, or its processes break the protocol.
    """
    submission = nbformat.v4.reads(job.notebook)  # checked at the intake
    _restore_master_cells(submission, job.master)
    result = notebook.run(submission, job.master, job.limits, job.isolation)
    sources = {grade_id(cell): cell.source for cell in submission.cells}
    handed_out = {cell.name: cell.source for cell in job.master if cell.is_answer}
    same = (name for name, source in handed_out.items() if sources.get(name) == source)
    unanswered = tuple(name for name in same if name not in _next_to_own_text(submission))
    by_hand = [cell.name for cell in job.master if cell.is_answer and cell.is_graded]
    scores = {cell.cell: cell.earned for cell in result.cells}
    scores |= {name: 0.0 if name in unanswered else None for name in by_hand}
    left = [name for name in by_hand if name in unanswered]
    if left and any(_has_words(cell) for cell in submission.cells if not grade_id(cell)):
        text = f"An extra cell has words, but {', '.join(left)}, where they count, has none."
        result = replace(result, flags=(*result.flags, Flag("elsewhere", text, left[0])))
    answers = {name: _digest(sources[name]) for name in by_hand if name in sources}
    sanitize(submission)  # last, as whether an answer was touched depends on the student's own text
    about = {"key": job.key, "submission": job.submission, "answers": answers}
    return Outcome(replace(result, **about), nbformat.writes(submission), scores, unanswered)


def _next_to_own_text(submission: NotebookNode) -> set[str | None]:
    """Answers in words with words of the student's own right before or after, even in a cell for code."""
    found: set[str | None] = set()
    for pair in pairwise(submission.cells):
        names = {grade_id(cell) for cell in pair}
        if None in names and all(map(_has_words, pair)):
            found |= names
    return found


def _has_words(cell: NotebookNode) -> bool:
    """Whether something is written in a cell, but no code."""
    is_code = cell.cell_type == "code" and getattr(parsed(cell.source), "body", ())
    return bool(cell.source.strip()) and not is_code


def _restore_master_cells(submission: NotebookNode, master: tuple[MasterCell, ...]) -> None:
    """Give each cell that nbgrader knows the master's metadata and text; answers keep their own text."""
    known = {cell.name: cell for cell in master}
    for cell in submission.cells:
        if original := known.get(grade_id(cell)):
            metadata = cell.metadata.nbgrader
            metadata.locked = original.locked
            metadata.grade, metadata.solution = original.is_graded, original.is_answer
            if original.is_graded:
                metadata.points = original.points
            if original.locked:
                cell.source = original.source


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@cache
def _grader_digest() -> str:
    """A digest of the source code that decides marks: the course's checks, and what runs students' code."""
    autograder = Path(__file__).parents[1]
    folders = [Path(transformer_lessons.__file__).parent, *(autograder / name for name in DECISIVE_FOLDERS)]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
