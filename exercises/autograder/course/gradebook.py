"""Entering marks into nbgrader's gradebook: a submission at a time, whole or not at all.

Only the process that the instructor has started opens it. Whatever is entered twice is there once, so a batch
that was stopped anywhere is graded again without a thought.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep

from dateutil.parser import parse
from dateutil.tz import gettz
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
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from traitlets.config import Config

__all__ = ["Entry", "LockedError", "Writer", "in_utc"]

# Seconds between two tries while another program has the gradebook locked; at last it is given up.
PAUSES = (*(2.0**n for n in range(-3, 4)), *[8.0] * 6, None)


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


class Writer:
    """The gradebook, opened for entering marks.

    Args:
        url: of the database.
        config: nbgrader's, for the late policy.
    """

    def __init__(self, url: str, config: Config):
        self._gradebook = Gradebook(url)
        self._late = AssignLatePenalties(config=config)
        self._late.init_plugin()

    def close(self) -> None:
        """Close the database."""
        self._gradebook.close()

    def enter(self, entry: Entry) -> None:
        """Enter a grading in one transaction; marks and comments of a person stay.

        Raises:
            LockedError: if another program keeps the database for itself for longer than a minute.
        """
        for pause in PAUSES:
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
            sleep(pause)

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
        notebook.late_submission_penalty = self._penalty(submission, notebook.score)

    def _submission(self, entry: Entry) -> tuple[SubmittedAssignment, SubmittedNotebook]:
        """nbgrader's entries for a submission."""
        book = self._gradebook
        with book.db.no_autoflush:
            try:
                submission = book.find_submission(entry.assignment, entry.student)
            except MissingEntry:
                submission = self._added(entry)
        if entry.timestamp:
            submission.timestamp = in_utc(entry.timestamp)
        book.db.flush()
        [notebook] = [notebook for notebook in submission.notebooks if notebook.name == entry.assignment]
        return submission, notebook

    def _added(self, entry: Entry) -> SubmittedAssignment:
        """As `Gradebook.add_submission` makes it, which commits: it would be seen without points."""
        book = self._gradebook
        student = book.db.get(Student, entry.student) or Student(id=entry.student)
        submission = SubmittedAssignment(assignment=book.find_assignment(entry.assignment), student=student)
        for notebook in submission.assignment.notebooks:
            submitted = SubmittedNotebook(notebook=notebook, assignment=submission)
            for cell in (*notebook.grade_cells, *notebook.task_cells):
                Grade(cell_id=cell.id, notebook=submitted, needs_manual_grade=False)
            for cell in (*notebook.solution_cells, *notebook.task_cells):
                Comment(cell_id=cell.id, notebook=submitted)
        book.db.add(submission)
        return submission

    def _penalty(self, submission: SubmittedAssignment, score: float) -> float | None:
        """What nbgrader's late policy takes off; its plugin is the instructor's choice."""
        if not (late := submission.total_seconds_late):
            return None
        penalty = self._late.plugin_inst.late_submission_penalty(submission.student_id, score, late)
        return None if penalty is None else min(max(penalty, 0.0), score)


def in_utc(text: str) -> datetime:
    """A time as nbgrader keeps it: in UTC, without saying so.

    Not by nbgrader's `parse_utc`, to which "+0100" behind a time is a hundred seconds.

    Args:
        text: "2026-12-01 12:00:00 +0100", "… UTC" or "… Europe/Berlin"; in UTC if it names no zone.

    Raises:
        ValueError: if it is no time.
    """
    words = text.split()
    named = gettz(words[2]) if len(words) == 3 and not re.match(r"[+-]?\d", words[2]) else None
    try:
        found = parse(" ".join(words[:2])).replace(tzinfo=named) if named else parse(text)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _score(grade: Grade, score: float | None, *, is_new: bool) -> None:
    """A person is asked where nobody else can tell, and again where what they have marked has changed."""
    if grade.manual_score is None:
        grade.needs_manual_grade = score is None
    elif is_new or grade.auto_score != score:
        grade.needs_manual_grade = True
    grade.auto_score = score
