"""What the gradebook says: each student's marks for an assignment as plain values, and all of it as lines."""

import itertools
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
from sqlalchemy import select

__all__ = ["CellMark", "Mark", "dump", "marks"]

ABOUT = ("first_name", "last_name", "email", "lms_user_id")  # of a student
POINTS = (Grade.auto_score, Grade.manual_score, Grade.extra_credit, Grade.needs_manual_grade)


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
                    *(getattr(student, name) or "" for name in ABOUT),
                    assignment,
                    submission is not None,
                    submission and submission.timestamp,
                    (submission and submission.late_submission_penalty) or 0.0,
                    known.max_score,
                    {
                        name: CellMark(
                            *given[name][:3], cell.max_score, given[name][3], cell.cell_type == "markdown"
                        )
                        for name, cell in cells.items()
                        if name in given
                    },
                    {name: text for name, (text,) in comments.get(student.id, {}).items() if text},
                )
            )
        return found


def _by_student(book: Gradebook, assignment: Assignment, table: type, *columns) -> dict[str, dict]:
    """By student and cell; one query, as asking each grade for its cell takes seconds for a class."""
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


def dump(url: str) -> list[str]:
    """All that the gradebook says of submissions, a line each, sorted; without ids and times of its own."""
    with Gradebook(url) as book:
        lines = [f"student {student.id}" for student in book.students]
        submissions = (book.assignment_submissions(assignment.name) for assignment in book.assignments)
        for submission in itertools.chain.from_iterable(submissions):
            place = f"{submission.assignment.name} {submission.student.id}"
            lines.append(f"submission {place} {submission.timestamp}")
            for notebook in submission.notebooks:
                lines.append(f"notebook {place} {notebook.name} penalty {notebook.late_submission_penalty}")
                for grade in notebook.grades:
                    points = (getattr(grade, column.key) for column in POINTS)
                    lines.append(f"grade {place} {grade.name} {' '.join(map(str, points))}")
                for comment in notebook.comments:
                    words = f"{comment.auto_comment!r} {comment.manual_comment!r}"
                    lines.append(f"comment {place} {comment.name} {words}")
    return sorted(lines)
