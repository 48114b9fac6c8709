"""Reading marks from nbgrader's gradebook and entering them: a submission at a time, whole or not at all.

Only the process that the instructor has started opens it. Whatever is entered twice is there once, so a batch
that was stopped anywhere can simply be graded again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from nbgrader.api import (
    Assignment,
    BaseCell,
    Comment,
    Grade,
    Gradebook,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy import select
from traitlets.config import Config

from exercises.autograder.intake import in_utc
from exercises.autograder.running.job import Outcome

STUDENT_FIELDS = ("first_name", "last_name", "email", "lms_user_id")  # attributes of a student
POINTS = (Grade.auto_score, Grade.manual_score, Grade.extra_credit, Grade.needs_manual_grade)


@dataclass(frozen=True)
class CellMark:
    """What a submission got for one graded cell."""

    auto: float | None = None  # points from the tests
    manual: float | None = None  # a person's points instead
    extra: float | None = None  # a person's points on top
    waits: bool = False  # whether a person has yet to look at it
    worth: float = field(kw_only=True)  # the most it gives, without extra points

    @property
    def earned(self) -> float:
        """The points, as nbgrader counts them."""
        return (self.auto or 0.0 if self.manual is None else self.manual) + (self.extra or 0.0)


@dataclass(frozen=True)
class Mark:
    """A student's mark for an assignment; students who handed in nothing have one too."""

    student: str  # the id
    # As nbgrader has them:
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""
    submitted: bool = True  # whether the gradebook has a submission of theirs
    timestamp: datetime | None = None  # when it was handed in, in UTC
    penalty: float = 0.0  # for being late
    worth: float = field(kw_only=True)  # the most that can be earned
    cells: dict[str, CellMark] = field(default_factory=dict)  # by grade id, in the order of the assignment
    comments: dict[str, str] = field(default_factory=dict)  # a person's, by grade id
    late: bool = False  # whether it was handed in after it was due
    set_aside: bool = False  # whether there is a file of theirs; without a mark, it waits to be looked at

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
    """The marks of all students whom the gradebook knows, sorted by id.

    Raises:
        MissingEntry: if the gradebook does not know the assignment.
    """
    with Gradebook(url) as book:
        known = book.find_assignment(assignment)
        cells = {cell.name: cell for nb in known.notebooks for cell in (*nb.grade_cells, *nb.task_cells)}
        submissions = {submission.student_id: submission for submission in known.submissions}
        points = _by_student(book, known, Grade, *POINTS)
        comments = _by_student(book, known, Comment, Comment.manual_comment)
        found = []
        for student in sorted(book.students, key=lambda student: student.id):
            submission, given = submissions.get(student.id), points.get(student.id, {})
            found.append(
                Mark(
                    student.id,
                    *(getattr(student, name) or "" for name in STUDENT_FIELDS),
                    submission is not None,
                    submission and submission.timestamp,
                    (submission and submission.late_submission_penalty) or 0.0,
                    worth=known.max_score,
                    cells={
                        name: CellMark(*given[name], worth=cell.max_score)
                        for name, cell in cells.items()
                        if name in given
                    },
                    comments={name: text for name, (text,) in comments.get(student.id, {}).items() if text},
                    late=bool(submission and submission.total_seconds_late),
                )
            )
        return found


def _by_student(book: Gradebook, assignment: Assignment, table: type, *columns) -> dict[str, dict]:
    """Values by student and cell, in one query: asking each grade for its cell takes seconds per class."""
    query = (
        select(SubmittedAssignment.student_id, BaseCell.name, *columns)
        .join(SubmittedNotebook, table.notebook_id == SubmittedNotebook.id)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(BaseCell, table.cell_id == BaseCell.id)
        .where(SubmittedAssignment.assignment_id == assignment.id)
    )
    found: dict[str, dict] = {}
    for student, name, *values in book.db.execute(query):
        found.setdefault(student, {})[name] = values
    return found


class Writer:
    """The gradebook at an address, opened for entering marks; nbgrader's configuration has the late policy."""

    def __init__(self, url: str, config: Config):
        self._gradebook = Gradebook(url)
        # nbgrader's methods commit one by one: a submission would be seen without its points.
        self._commit, self._gradebook.db.commit = self._gradebook.db.commit, lambda: None
        self._late = AssignLatePenalties(config=config)
        self._late.init_plugin()

    def close(self) -> None:
        """Close the database."""
        self._gradebook.close()

    def enter(self, outcome: Outcome, new: set[str]) -> None:
        """Enter a grading in one transaction; marks and comments of a person stay.

        Args:
            outcome: its result names student and assignment; the notebook has the assignment's name.
            new: the answers that a person has not seen yet, by grade id; all of them at a first grading.

        Raises:
            OperationalError: if another program keeps the database locked for too long.
        """
        book, session, result = self._gradebook, self._gradebook.db, outcome.result
        with self._transaction():
            book.update_or_create_student(result.student)
            session.flush()
            with session.no_autoflush:
                submission = book.update_or_create_submission(result.assignment, result.student)
            if result.timestamp:
                submission.timestamp = in_utc(result.timestamp)
            session.flush()
            [notebook] = [notebook for notebook in submission.notebooks if notebook.name == result.assignment]
            grades = select(Grade, BaseCell.name).join(BaseCell, Grade.cell_id == BaseCell.id)
            for grade, name in session.execute(grades.where(Grade.notebook_id == notebook.id)):
                _score(grade, outcome.scores.get(name), is_new=name in new)
            comments = select(Comment, BaseCell.name).join(BaseCell, Comment.cell_id == BaseCell.id)
            for comment, name in session.execute(comments.where(Comment.notebook_id == notebook.id)):
                comment.auto_comment = "No response." if name in outcome.unanswered else None
            session.flush()
            session.expire(notebook)
            notebook.late_submission_penalty = self._penalty(submission, notebook.score)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            yield
            self._commit()
        finally:
            self._gradebook.db.rollback()

    def renew_penalties(self) -> None:
        """Recompute late penalties: points by hand, a date or the policy may have changed since grading."""
        dated = select(SubmittedAssignment).where(SubmittedAssignment.timestamp.is_not(None))
        with self._transaction():
            for submission in self._gradebook.db.scalars(dated).all():
                for notebook in submission.notebooks:
                    notebook.late_submission_penalty = self._penalty(submission, notebook.score)

    def _penalty(self, submission: SubmittedAssignment, score: float) -> float | None:
        """The points that nbgrader's late policy takes off; its plugin is the instructor's choice."""
        if not (late := submission.total_seconds_late):
            return None
        penalty = self._late.plugin_inst.late_submission_penalty(submission.student_id, score, late)
        return None if penalty is None else min(max(penalty, 0.0), score)


def _score(grade: Grade, score: float | None, *, is_new: bool) -> None:
    """Enter a score; a person marks if there is none, and again if the answer, score or maximum says so."""
    if grade.manual_score is None:
        grade.needs_manual_grade = score is None
    elif is_new or grade.auto_score != score or grade.manual_score > grade.max_score:
        grade.needs_manual_grade = True
    grade.auto_score = score
