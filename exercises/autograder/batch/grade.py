"""Grading a batch: take submissions in, have them run in their boxes, enter the marks, and write feedback.

Only what is new is graded: a submission that was not graded yet, or was handed in again with another text.
What was graded with an earlier master, or by an earlier grader, is left to `regrade`, which first shows what
would change. A submission does not run if nothing that matters has changed: a master's prose, for example, is
not part of a grading's key. A person's marks stay; where the tests now say something else, the person is
asked to look again.
"""

import fcntl
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import OperationalError
from tqdm import tqdm

from exercises.autograder import result as results
from exercises.autograder.batch.grading import Grading, Submission
from exercises.autograder.batch.pool import InProcessPool, Pool
from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import Mark
from exercises.autograder.course.roster import Enrolled, enrol
from exercises.autograder.feedback import write_page
from exercises.autograder.intake import Arrival
from exercises.autograder.result import Result
from exercises.autograder.running.job import Outcome
from transformer_lessons.data.files import write_json

Use = Callable[[Submission, Outcome], object]  # what is done with an outcome


class Change(NamedTuple):
    """A submission whose points would change, or that a person should look at again.

    `cells` has the points before and after, by grade id, of the tests that differ; `marked` are those of a
    person's marks, which stay, that are for one of these, or above what the cell gives now.
    """

    student: str
    assignment: str
    before: float
    after: float
    cells: dict[str, tuple[float, float]]
    marked: tuple[str, ...] = ()


@dataclass
class Summary:
    """The outcome of a batch, or of a regrading."""

    graded: list[Result] = field(default_factory=list)  # the results that were entered now
    unchanged: int = 0  # how many submissions had been graded before
    # Submissions that an earlier master or grader graded; a regrading runs them again
    stale: list[Submission] = field(default_factory=list)
    quarantined: list[Arrival] = field(default_factory=list)  # what was put aside at the intake
    # What could not be graded, or given back, because of the grader
    failed: list[Arrival] = field(default_factory=list)
    applied: bool = False  # whether a regrading was entered


def grade(
    source: Path | None,
    folder: Path,
    *,
    people: Collection[Enrolled] = (),
    isolated: bool = True,
    pool: Pool | None = None,
) -> Summary:
    """Grade everything in a source, and what was taken in earlier and not graded yet.

    Args:
        source: a notebook, a folder of them, nbgrader's `submitted`, or a zip archive of Canvas or Moodle;
            None if there is nothing new to take in.
        folder: the course's, into which everything is written; created if missing.
        people: the class, see `course.roster`.
        isolated: False runs the students' code unprotected, and marks every grade so.
        pool: where the work is done; by default this process.

    Raises:
        ValueError: if the master itself does not earn all points here, for an invalid class, or if another
            command is at work on the course.
    """
    summary, pool = Summary(), pool or InProcessPool()
    with open_course(folder, isolated=isolated) as grading:
        enrol(grading.course, people)
        if source is not None:
            _, summary.quarantined = grading.collect(source)
        states = _by_state(grading)
        summary.stale, summary.unchanged = states["stale"], len(states["graded"])
        grading.check_masters((assignment for _, assignment in states["waiting"]), pool)

        def enter(one: Submission, outcome: Outcome) -> None:
            summary.graded.append(grading.enter(*one, outcome))

        _run(grading, states["waiting"], pool, summary, enter)
        write_feedback(grading, summary)
        summary.graded.sort(key=lambda result: (result.student, result.assignment))
        failed = [one.entry() for one in summary.failed]
        write_json(grading.course.not_graded, {**grading.course.left_out(), "failed": failed})
    return summary


def regrade(
    folder: Path,
    assignments: list[str],
    apply: Callable[[list[Change]], bool],
    *,
    isolated: bool = True,
    pool: Pool | None = None,
) -> Summary:
    """Grade again what a changed master or grader affects, show whose points change, only then enter it.

    Args:
        folder: the course's.
        assignments: whose submissions are looked at; all, if there are none.
        apply: gets what would change, and says whether to enter it. If not, nothing changes; what was run is
            kept in the journal, so that the next time costs nothing.

    Raises:
        ValueError: if the changed master itself does not earn all points, or if another command is at work on
            the course.
    """
    summary, pool = Summary(), pool or InProcessPool()
    with open_course(folder, isolated=isolated) as grading:
        states = _by_state(grading, assignments)
        summary.stale, summary.unchanged = states["stale"], len(states["graded"])
        grading.check_masters((assignment for _, assignment in summary.stale), pool)
        # The notebooks stay in the journal until they are needed: a thousand would fill the memory.
        done: dict[Submission, Result] = {}
        _run(grading, summary.stale, pool, summary, lambda one, outcome: done.update({one: outcome.result}))
        again = sorted(done)
        compared = (_change(grading.course, one, done[one], grading.marks(one[1])[one[0]]) for one in again)
        summary.applied = bool(done) and apply([change for change in compared if change])
        if summary.applied:
            kept = ((one, grading.in_journal(done[one].key)) for one in again)
            summary.graded = [grading.enter(*one, outcome) for one, outcome in kept if outcome]
            write_feedback(grading, summary)
    return summary


@contextmanager
def open_course(folder: Path, *, isolated: bool = True) -> Iterator[Grading]:
    """Open a course, for one command at a time.

    Raises:
        ValueError: if another command is at work on it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it, however this ends
        except OSError:
            raise ValueError(f"another command is using {folder}: wait for it, or stop it") from None
        with closing(Grading(Course(folder), isolated=isolated)) as grading:
            yield grading


def _by_state(grading: Grading, assignments: Collection[str] = ()) -> dict[str, list[Submission]]:
    """The submissions of these assignments, or of all, by their state."""
    found: dict[str, list[Submission]] = {"graded": [], "waiting": [], "stale": [], "left": []}
    for one in grading.course.submissions():
        if not assignments or one[1] in assignments:
            found[grading.state(*one)].append(one)
    return found


def _run(grading: Grading, wanted: list[Submission], pool: Pool, summary: Summary, use: Use) -> None:
    """Use the outcomes of gradings as they come; if one goes wrong, note that and go on to the next."""
    outcomes = grading.outcomes(wanted, pool)
    for one, outcome in tqdm(outcomes, total=len(wanted), unit="submission", disable=None):
        with _record_failure(grading, one, summary):
            if isinstance(outcome, Exception):
                raise outcome
            use(one, outcome)


@contextmanager
def _record_failure(grading: Grading, one: Submission, summary: Summary) -> Iterator[None]:
    """Note a failure of one submission; errors of the disk, the gradebook or the cluster are raised."""
    try:
        yield
    except (OSError, OperationalError):
        raise
    except Exception as error:
        path = grading.course.origin(*one)["path"] or "/".join(one)
        summary.failed.append(Arrival(path, *one, f"{type(error).__name__}: {error}"))


def _change(course: Course, one: Submission, after: Result, mark: Mark) -> Change | None:
    before = results.read(course.record(*one))
    old = {cell.cell: cell.earned for cell in before.cells}
    cells = {now.cell: (old[now.cell], now.earned) for now in after.cells if old[now.cell] != now.earned}
    by_hand = {name: cell for name, cell in mark.cells.items() if cell.manual is not None}
    again = tuple(name for name, cell in by_hand.items() if name in cells or cell.manual > cell.worth)
    return Change(*one, before.earned, after.earned, cells, again) if cells or again else None


def write_feedback(grading: Grading, summary: Summary, *, rewrite: bool = False) -> int:
    """Write the pages that are older than the marks, or all if `rewrite`; return how many."""
    course, written = grading.course, 0
    for one in course.submissions():
        record, page = course.record(*one), course.page(*one)
        if not record.exists():
            continue
        if rewrite or not page.exists() or page.stat().st_mtime < record.stat().st_mtime:
            with _record_failure(grading, one, summary):
                mark = grading.marks(one[1]).get(one[0])
                if mark and mark.submitted:  # or it is to be entered again, or the student has left
                    released = grading.released.get(one[1]) or course.versions(one[1])[-1]
                    write_page(course, results.read(record), released, mark)
                    written += 1
    return written
