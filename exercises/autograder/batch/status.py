"""How far a course is: of each assignment, what came in, what is graded, and what waits for whom."""

from dataclasses import dataclass

from nbgrader.api import MissingEntry

from exercises.autograder.batch.grading import Grading
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course

__all__ = ["Status", "statuses"]


@dataclass(frozen=True)
class Status:
    """Of one assignment.

    Attributes:
        assignment: its name.
        received: submissions that were taken in.
        graded: those of them that are graded as they are.
        waiting: those that are not, for `grade`.
        behind: those that an earlier master or grader graded, for `regrade`.
        by_hand: those with an answer that a person has yet to read, for formgrader.
        flagged: those with a flag for a person to look at; repairs and lateness are told elsewhere.
        aside: files that were put aside or could not be graded.
        missing: students whom the gradebook knows and of whom there is nothing.
    """

    assignment: str
    received: int
    graded: int
    waiting: int
    behind: int
    by_hand: int
    flagged: int
    aside: int
    missing: tuple[str, ...]


def statuses(grading: Grading) -> list[Status]:
    """Of all assignments of which there is anything."""
    course = grading.course
    aside = {one["assignment"] for one in _aside(course)}
    names = {assignment for _, assignment in course.submissions()} | (aside - {None})
    return [_status(grading, name) for name in sorted(names)]


def _status(grading: Grading, name: str) -> Status:
    course, counts = grading.course, {"graded": 0, "waiting": 0, "behind": 0}
    submissions = course.submissions(name)
    for one in submissions:
        counts[grading.state(*one)] += 1
    known = _marks(course, name)
    handed_in = {student for student, _ in submissions}
    return Status(
        assignment=name,
        received=len(submissions),
        **counts,
        by_hand=sum(mark.waits for mark in known),
        flagged=sum(any(f.kind not in ("repair", "late") for f in one.flags) for one in course.results(name)),
        aside=sum(one["assignment"] == name for one in _aside(course)),
        missing=tuple(mark.student for mark in known if mark.student not in handed_in),
    )


def _aside(course: Course) -> list[dict]:
    return [one for those in course.aside().values() for one in those]


def _marks(course: Course, name: str) -> list[marks.Mark]:
    try:
        return marks.marks(course.gradebook, name)
    except MissingEntry:
        return []
