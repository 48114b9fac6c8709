"""Grade a batch: take submissions in, have them run in their boxes, enter the marks, and write feedback.

Only what is new is graded: a submission that was not graded yet, or was handed in anew with another text. What
was graded with an earlier master, or by an earlier grader, is left to `regrade`, which shows first what would
change.
"""

import fcntl
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm
from traitlets.config import Config

from exercises.autograder import result as results
from exercises.autograder.batch.grading import Grading, Submission
from exercises.autograder.batch.pool import Here, Pool
from exercises.autograder.course import marks
from exercises.autograder.course.collect import origin
from exercises.autograder.course.folders import Course
from exercises.autograder.course.gradebook import LockedError
from exercises.autograder.course.roster import enrol, read
from exercises.autograder.feedback.pages import write_page
from exercises.autograder.intake import Quarantined
from exercises.autograder.result import Result
from transformer_lessons.data.files import write_json

__all__ = ["BusyError", "Failure", "Summary", "failure", "feed_back", "grade", "opened"]


TOGETHER = 50  # pages, for which the gradebook is read once


class BusyError(Exception):
    """Another command is at work on the same course."""


class Failure(NamedTuple):
    """What could not be done for a submission: where it came from, why, and whose it is."""

    path: str
    reason: str
    student: str
    assignment: str


@dataclass
class Summary:
    """What became of a batch.

    Attributes:
        graded: the results that were entered now, by student and assignment.
        unchanged: how many submissions had been graded before.
        behind: those that an earlier master or grader graded.
        quarantined: what was put aside at the intake.
        failed: what could not be graded, or given back, for a reason that is the grader's.
    """

    graded: list[Result] = field(default_factory=list)
    unchanged: int = 0
    behind: list[Submission] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)


def grade(
    source: Path | None,
    folder: Path,
    *,
    roster: Path | None = None,
    isolated: bool = True,
    pool: Pool | None = None,
    changes: Config | None = None,
) -> Summary:
    """Grade everything that a source holds, and what was taken in before and not graded yet.

    Args:
        source: a notebook, a folder of them, nbgrader's `submitted`, or a zip archive of Canvas or Moodle; None
            if there is nothing new to take in.
        folder: the course's, which everything is written into; made if it is not there.
        roster: the class, as the platform exports it; kept, see `course.roster`.
        isolated: False runs the students' code unprotected, and marks every grade so.
        pool: where the work is done; this process by itself.
        changes: of nbgrader's configuration.

    Raises:
        FileNotFoundError: if there is no such source.
        BusyError: if another command is at work on the course.
        ValueError: if the master itself does not earn all points here, or for a roster that cannot be.
    """
    if source is not None and not source.exists():
        raise FileNotFoundError(f"source: expected a notebook, a folder or a zip archive, got {source}")
    people = read(roster) if roster else []
    with opened(folder, isolated=isolated, changes=changes) as grading:
        summary = Summary()
        enrol(grading.course, people)
        if source is not None:
            _, summary.quarantined = grading.collect(source)
        new, pool = _new(grading, summary), pool or Here()
        grading.check_masters((assignment for _, assignment in new), pool)
        _grade(grading, new, pool, summary)
        feed_back(grading, _without_page(grading.course), summary)
        summary.graded.sort(key=lambda result: (result.student, result.assignment))
        _list_failed(grading.course, summary)
    return summary


@contextmanager
def opened(folder: Path, *, isolated: bool = True, changes: Config | None = None) -> Iterator[Grading]:
    """A course, for one command at a time.

    Raises:
        BusyError: if another command is at work on it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel gives it back, however this ends
        except OSError:
            raise BusyError(f"another command is at work on {folder}: wait for it, or stop it") from None
        _sweep(folder)
        with Grading(Course(folder), isolated=isolated, changes=changes) as grading:
            yield grading


def _sweep(folder: Path) -> None:
    """Remove what a command that was killed had begun to write."""
    for path in folder.rglob(".*"):
        if re.fullmatch(r"\..+\.\d+", path.name) and path.is_file():
            path.unlink()


def _new(grading: Grading, summary: Summary) -> list[Submission]:
    """The submissions that are not graded as they are now."""
    states = {one: grading.state(*one) for one in grading.course.submissions()}
    summary.behind = [one for one, state in states.items() if state == "behind"]
    summary.unchanged = sum(state == "graded" for state in states.values())
    return [one for one, state in states.items() if state == "waiting"]


def _grade(grading: Grading, wanted: list[Submission], pool: Pool, summary: Summary) -> None:
    """Whatever goes wrong with one is noted, and the next one follows; pages are written while others work."""
    entered: list[Submission] = []
    with tqdm(total=len(wanted), unit="submission", disable=not sys.stderr.isatty()) as bar:
        for one, outcome in grading.outcomes(wanted, pool):
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                summary.graded.append(grading.enter(*one, outcome))
                entered.append(one)
            except (LockedError, OSError):
                raise  # of the gradebook or the disk: it would be so for all
            except Exception as error:
                summary.failed.append(failure(grading.course, one, error))
            if len(entered) == TOGETHER:
                feed_back(grading, entered, summary)
                entered.clear()
            bar.update()


def failure(course: Course, one: Submission, error: Exception) -> Failure:
    """What is said of an error."""
    return Failure(origin(course, *one).path or "/".join(one), f"{type(error).__name__}: {error}", *one)


def _without_page(course: Course) -> list[Submission]:
    """Those whose feedback is older than their marks."""
    found = []
    for student, assignment in course.submissions():
        record, page = course.record(student, assignment), course.page(student, assignment)
        if record.exists() and not (page.exists() and page.stat().st_mtime >= record.stat().st_mtime):
            found.append((student, assignment))
    return found


def feed_back(grading: Grading, wanted: list[Submission], summary: Summary) -> None:
    """Write the students' pages, with what a person has marked."""
    course, of = grading.course, {}
    for one in wanted:
        student, assignment = one
        if assignment not in of:
            of[assignment] = {mark.student: mark for mark in marks.marks(course.gradebook, assignment)}
        try:
            result = results.read(course.record(student, assignment))
            write_page(course, result, grading.assignments.released[assignment], of[assignment].get(student))
        except OSError:
            raise
        except Exception as error:
            summary.failed.append(failure(course, one, error))


def _list_failed(course: Course, summary: Summary) -> None:
    """For a person, beside what was put aside."""
    failed = [one._asdict() for one in summary.failed]
    write_json(course.not_graded, {**course.aside(), "failed": failed})
