"""Grade again what a changed master or grader concerns, show who changes by how much, and only then enter it.

What nothing that matters has changed for is not run: a master's prose, for one, is not part of a grading's key.
The marks that a person has given stay; where the tests now say something else, the person is asked to look again.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tqdm import tqdm
from traitlets.config import Config

from exercises.autograder import result as results
from exercises.autograder.batch.grade import Summary, failure, feed_back, opened
from exercises.autograder.batch.grading import Grading, Submission
from exercises.autograder.batch.pool import Here, Pool
from exercises.autograder.course import marks
from exercises.autograder.course.marks import Mark
from exercises.autograder.result import Result
from exercises.autograder.running.job import Outcome

__all__ = ["Change", "Regraded", "regrade"]


@dataclass(frozen=True)
class Change:
    """A submission whose points would be others.

    Attributes:
        student, assignment: whose and of what.
        before, after: points of all tests.
        cells: points before and after by grade id, of the tests that differ.
        marked: the tests among these for which a person has given points, which stay.
    """

    student: str
    assignment: str
    before: float
    after: float
    cells: dict[str, tuple[float, float]]
    marked: tuple[str, ...] = ()


@dataclass
class Regraded(Summary):
    """What became of a regrading; `graded` is what was entered.

    Attributes:
        affected: how many submissions were run again, or would have been but for the journal.
        changes: those whose points differ.
        applied: whether it was entered.
    """

    affected: int = 0
    changes: list[Change] = field(default_factory=list)
    applied: bool = False


def regrade(
    folder: Path,
    assignments: list[str],
    apply: Callable[[list[Change]], bool],
    *,
    isolated: bool = True,
    pool: Pool | None = None,
    changes: Config | None = None,
) -> Regraded:
    """Grade again what is behind.

    Args:
        folder: the course's.
        assignments: whose submissions are looked at; all, if there are none.
        apply: is shown what would change, and says whether it is entered. If not, nothing changes; what was run
            is kept in the journal, so that the next time costs nothing.

    Raises:
        BusyError: if another command is at work on the course.
        ValueError: if the changed master itself does not earn all points.
    """
    found = Regraded()
    with opened(folder, isolated=isolated, changes=changes) as grading:
        behind = _behind(grading, assignments, found)
        pool = pool or Here()
        grading.check_masters((assignment for _, assignment in behind), pool)
        done = _outcomes(grading, behind, pool, found)
        found.affected = len(behind)
        by_hand = cache(
            lambda name: {one.student: one for one in marks.marks(grading.course.gradebook, name)}
        )
        found.changes = [
            change
            for one in behind
            if one in done and (change := _change(grading, one, done[one], by_hand(one[1]).get(one[0])))
        ]
        found.applied = bool(done) and apply(found.changes)
        if found.applied:
            for one in behind:
                if one in done and (outcome := grading.found(done[one].key)):
                    found.graded.append(grading.enter(*one, outcome))
            feed_back(grading, [(one.student, one.assignment) for one in found.graded], found)
    return found


def _behind(grading: Grading, assignments: list[str], found: Regraded) -> list[Submission]:
    """The submissions that were graded and would now be graded with something else."""
    behind = []
    for student, assignment in grading.course.submissions():
        if not assignments or assignment in assignments:
            state = grading.state(student, assignment)
            found.unchanged += state == "graded"
            if state == "behind":
                behind.append((student, assignment))
    return behind


def _outcomes(grading: Grading, behind: list, pool: Pool, found: Regraded) -> dict[Submission, Result]:
    """What the new gradings give; their notebooks stay in the journal until they are wanted."""
    done = {}
    with tqdm(total=len(behind), unit="submission", disable=not sys.stderr.isatty()) as bar:
        for one, outcome in grading.outcomes(behind, pool):
            if isinstance(outcome, Outcome):
                done[one] = outcome.result
            else:
                found.failed.append(failure(grading.course, one, outcome))
            bar.update()
    return done


def _change(grading: Grading, one: Submission, after: Result, mark: Mark | None) -> Change | None:
    before = results.read(grading.course.record(*one))
    old, new = ({cell.cell: cell.earned for cell in result.cells} for result in (before, after))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name, 0.0) != new.get(name, 0.0)]
    if not names:
        return None
    cells = {name: (old.get(name, 0.0), new.get(name, 0.0)) for name in names}
    known = mark.cells if mark else {}
    by_hand = tuple(name for name in names if name in known and known[name].manual is not None)
    return Change(*one, before.earned, after.earned, cells, by_hand)
