"""nbgrader's gradebook: what is entered into it, a submission at a time, whole or not at all, and what is read.

Only the process that the instructor has started opens it. Whatever is entered twice is there once, so a batch that
was stopped anywhere is graded again without a thought.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from nbgrader.api import (
    BaseCell,
    Comment,
    Grade,
    Gradebook,
    MissingEntry,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import parse_utc
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from traitlets.config import Config

__all__ = ["CellMark", "Entry", "LockedError", "Mark", "Marks", "dump", "marks"]

PATIENCE = 60.0  # seconds that another program may keep the gradebook for itself


class LockedError(Exception):
    """Another program keeps the gradebook for itself."""


@dataclass(frozen=True)
class Entry:
    """What a grading enters.

    Attributes:
        student, assignment: whose and of what; the notebook is called like the assignment.
        scores: points by grade id; None where a person has to give them.
        unanswered: the answers that are as they were handed out.
        new: the answers that a person has not seen yet, by grade id; all of them at a first grading.
        timestamp: when it was handed in.
    """

    student: str
    assignment: str
    scores: dict[str, float | None]
    unanswered: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    timestamp: str | None = None


class Marks:
    """The gradebook, opened for entering marks; a context manager that closes it.

    Args:
        url: of the database.
        config: nbgrader's, for the late policy.
        wait: called while another program keeps the database for itself.
    """

    def __init__(self, url: str, config: Config, wait: Callable[[float], None] = time.sleep):
        self._gradebook, self._wait = Gradebook(url), wait
        self._late = AssignLatePenalties(config=config)
        self._late.init_plugin()

    def __enter__(self) -> "Marks":
        return self

    def __exit__(self, *_) -> None:
        self._gradebook.close()

    def enter(self, entry: Entry) -> None:
        """Enter a grading in one transaction; marks and comments of a person stay.

        Raises:
            LockedError: if another program keeps the database for itself for longer than a minute.
        """
        for pause in (*(2.0**n for n in range(-3, 4)), *[8.0] * 6, None):
            try:
                self._enter(entry)
                self._gradebook.db.commit()
                return
            except OperationalError as error:
                self._gradebook.db.rollback()
                if "locked" not in str(error):
                    raise
            except BaseException:
                self._gradebook.db.rollback()
                raise
            if pause is None:
                raise LockedError("the gradebook is kept by another program")
            self._wait(pause)

    def _enter(self, entry: Entry) -> None:
        submission, notebook = self._submission(entry)
        session = self._gradebook.db
        cells = select(Grade, BaseCell.name).join(BaseCell, Grade.cell_id == BaseCell.id)
        for grade, name in session.execute(cells.where(Grade.notebook_id == notebook.id)):
            _score(grade, entry.scores.get(name), is_new=name in entry.new)
        told = select(Comment, BaseCell.name).join(BaseCell, Comment.cell_id == BaseCell.id)
        for comment, name in session.execute(told.where(Comment.notebook_id == notebook.id)):
            comment.auto_comment = "No response." if name in entry.unanswered else None
        session.flush()
        session.expire(notebook)
        notebook.late_submission_penalty = self._penalty(entry.student, submission, notebook)

    def _submission(self, entry: Entry) -> tuple[SubmittedAssignment, SubmittedNotebook]:
        """nbgrader's entries for a submission, made at its first grading as `Gradebook.add_submission` does.

        That one commits by itself, and a submission without points would be seen until the next commit.
        """
        book = self._gradebook
        with book.db.no_autoflush:
            try:
                submission = book.find_submission(entry.assignment, entry.student)
            except MissingEntry:
                submission = self._added(entry)
        if entry.timestamp:
            submission.timestamp = parse_utc(entry.timestamp)
        book.db.flush()
        [notebook] = [one for one in submission.notebooks if one.name == entry.assignment]
        return submission, notebook

    def _added(self, entry: Entry) -> SubmittedAssignment:
        book = self._gradebook
        student = book.db.get(Student, entry.student) or Student(id=entry.student)
        submission = SubmittedAssignment(assignment=book.find_assignment(entry.assignment), student=student)
        for notebook in submission.assignment.notebooks:
            one = SubmittedNotebook(notebook=notebook, assignment=submission)
            for cell in (*notebook.grade_cells, *notebook.task_cells):
                Grade(cell_id=cell.id, notebook=one, needs_manual_grade=False)
            for cell in (*notebook.solution_cells, *notebook.task_cells):
                Comment(cell_id=cell.id, notebook=one)
        book.db.add(submission)
        return submission

    def _penalty(
        self, student: str, submission: SubmittedAssignment, notebook: SubmittedNotebook
    ) -> float | None:
        """What nbgrader's late policy takes off; its plugin is the instructor's choice."""
        if not (late := submission.total_seconds_late):
            return None
        penalty = self._late.plugin_inst.late_submission_penalty(student, notebook.score, late)
        return None if penalty is None else min(max(penalty, 0.0), notebook.score)


def _score(grade: Grade, score: float | None, *, is_new: bool) -> None:
    """A person is asked where nobody else can tell, and again where what they have marked is no longer the same."""
    changed = is_new or grade.auto_score != score
    grade.auto_score = score
    if grade.manual_score is None:
        grade.needs_manual_grade = score is None
    elif changed:
        grade.needs_manual_grade = True


# ---- Reading


@dataclass(frozen=True)
class CellMark:
    """What a submission got for one graded cell.

    Attributes:
        auto, manual, extra: points of the tests, of a person instead, and of a person on top.
        worth: the most it gives, but for what is extra.
        waits: whether a person has yet to look at it.
        written: whether it is an answer in words.
    """

    auto: float | None
    manual: float | None
    extra: float | None
    worth: float
    waits: bool
    written: bool

    @property
    def earned(self) -> float:
        """As nbgrader counts."""
        return (self.auto or 0.0 if self.manual is None else self.manual) + (self.extra or 0.0)


@dataclass(frozen=True)
class Mark:
    """A student's mark for one assignment; students who handed in nothing have one too.

    Attributes:
        student: the id.
        first_name, last_name, email, lms_user_id: as nbgrader has them, or "".
        assignment: its name.
        submitted: whether anything of theirs is in the gradebook.
        timestamp: when it was handed in, in UTC, or None.
        penalty: for being late.
        worth: the most that there is to earn.
        cells: by grade id, in the order of the assignment.
        comments: a person's, by grade id.
    """

    student: str
    first_name: str
    last_name: str
    email: str
    lms_user_id: str
    assignment: str
    submitted: bool
    timestamp: datetime | None
    penalty: float
    worth: float
    cells: dict[str, CellMark] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> float:
        """All points."""
        return sum(cell.earned for cell in self.cells.values())

    @property
    def score(self) -> float:
        """All points less the penalty."""
        return max(0.0, self.raw - self.penalty)

    @property
    def waits(self) -> bool:
        """Whether a person has yet to look at a part of it."""
        return any(cell.waits for cell in self.cells.values())


def marks(url: str, assignment: str) -> list[Mark]:
    """The marks of all students whom the gradebook knows, by id.

    Raises:
        MissingEntry: if the gradebook does not know the assignment.
    """
    with _reading(url) as book:
        known = book.find_assignment(assignment)
        order = {cell.name: n for n, cell in enumerate(c for nb in known.notebooks for c in nb.source_cells)}
        submissions = {one.student.id: one for one in known.submissions}
        return [
            _mark(student, submissions.get(student.id), assignment, known.max_score, order)
            for student in sorted(book.students, key=lambda student: student.id)
        ]


def _mark(
    student: Student, submission: SubmittedAssignment | None, name: str, worth: float, order: dict[str, int]
) -> Mark:
    about = [getattr(student, field) or "" for field in ("first_name", "last_name", "email", "lms_user_id")]
    notebooks = submission.notebooks if submission else []
    grades = sorted((g for nb in notebooks for g in nb.grades), key=lambda grade: order.get(grade.name, 0))
    comments = {c.name: c.manual_comment for nb in notebooks for c in nb.comments if c.manual_comment}
    return Mark(
        student.id,
        *about,
        name,
        submission is not None,
        submission.timestamp if submission else None,
        sum(nb.late_submission_penalty or 0.0 for nb in notebooks),
        worth,
        {grade.name: _cell_mark(grade) for grade in grades},
        comments,
    )


def _cell_mark(grade: Grade) -> CellMark:
    points = (grade.auto_score, grade.manual_score, grade.extra_credit)
    return CellMark(*points, grade.max_score, grade.needs_manual_grade, grade.cell_type == "markdown")


@contextmanager
def _reading(url: str) -> Iterator[Gradebook]:
    with Gradebook(url) as book:
        yield book


def dump(url: str) -> list[str]:
    """All that the gradebook says of submissions, a line each, sorted; without ids and times of its own."""
    with _reading(url) as book:
        lines = [f"student {student.id}" for student in book.students]
        for assignment in book.assignments:
            for one in assignment.submissions:
                place = f"{assignment.name} {one.student.id}"
                lines.append(f"submission {place} {one.timestamp}")
                for notebook in one.notebooks:
                    lines.append(
                        f"notebook {place} {notebook.name} penalty {notebook.late_submission_penalty}"
                    )
                    lines += [f"grade {place} {_points(grade)}" for grade in notebook.grades]
                    lines += [f"comment {place} {_words(comment)}" for comment in notebook.comments]
    return sorted(lines)


def _points(grade: Grade) -> str:
    points = (grade.auto_score, grade.manual_score, grade.extra_credit, grade.needs_manual_grade)
    return " ".join(map(str, (grade.name, *points)))


def _words(comment: Comment) -> str:
    return f"{comment.name} {comment.auto_comment!r} {comment.manual_comment!r}"
