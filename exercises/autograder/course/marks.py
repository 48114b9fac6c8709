"""What the gradebook says: each student's marks for an assignment as plain values, and all of it as lines."""

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
from sqlalchemy import Select, select

__all__ = ["CellMark", "Mark", "dump", "marks", "students"]

ABOUT = ("first_name", "last_name", "email", "lms_user_id")  # of a student


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
        found = {one.student_id: one for one in known.submissions}
        points, comments = _points_of(book, known), _comments_of(book, known)
        return [
            Mark(
                student.id,
                *(getattr(student, name) or "" for name in ABOUT),
                assignment,
                student.id in found,
                found[student.id].timestamp if student.id in found else None,
                found[student.id].late_submission_penalty or 0.0 if student.id in found else 0.0,
                known.max_score,
                _cell_marks(cells, points.get(student.id, {})),
                comments.get(student.id, {}),
            )
            for student in sorted(book.students, key=lambda student: student.id)
        ]


def _cell_marks(cells: dict, points: dict[str, tuple]) -> dict[str, CellMark]:
    """In the order of the assignment."""
    return {
        name: CellMark(*points[name][:3], cell.max_score, points[name][3], cell.cell_type == "markdown")
        for name, cell in cells.items()
        if name in points
    }


def _points_of(book: Gradebook, assignment: Assignment) -> dict[str, dict[str, tuple]]:
    """By student and cell; one query, as asking each grade for its cell takes seconds for a class."""
    columns = (Grade.auto_score, Grade.manual_score, Grade.extra_credit, Grade.needs_manual_grade)
    found: dict[str, dict[str, tuple]] = {}
    for student, name, *points in book.db.execute(_of_submissions(Grade, assignment, *columns)):
        found.setdefault(student, {})[name] = tuple(points)
    return found


def _comments_of(book: Gradebook, assignment: Assignment) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for student, name, text in book.db.execute(_of_submissions(Comment, assignment, Comment.manual_comment)):
        if text:
            found.setdefault(student, {})[name] = text
    return found


def _of_submissions(table: type, assignment: Assignment, *columns) -> Select:
    """Student, name of the cell, and these columns of the grades or comments of an assignment."""
    return (
        select(SubmittedAssignment.student_id, BaseCell.name, *columns)
        .join(SubmittedNotebook, table.notebook_id == SubmittedNotebook.id)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(BaseCell, table.cell_id == BaseCell.id)
        .where(SubmittedAssignment.assignment_id == assignment.id)
    )


def students(url: str) -> list[str]:
    """The ids of all students whom the gradebook knows."""
    with Gradebook(url) as book:
        return sorted(student.id for student in book.students)


def dump(url: str) -> list[str]:
    """All that the gradebook says of submissions, a line each, sorted; without ids and times of its own."""
    with Gradebook(url) as book:
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
