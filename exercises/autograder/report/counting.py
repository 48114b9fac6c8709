"""A class's numbers for an assignment: all that the page shows, before anything of it is drawn.

They are counted from marks, results and the list of what was not graded, and from nothing else: who replaces the
names in those has replaced them here.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exercises.autograder.course.marks import Mark
from exercises.autograder.report import people
from exercises.autograder.report.misconceptions import BOOK, Misconception, misconceptions
from exercises.autograder.report.people import Aside, ByHand, Flagged, Late, Missing, Person, Repaired
from exercises.autograder.report.questions import Question, questions, share
from exercises.autograder.result import Result
from transformer_lessons.tools import submission

__all__ = ["Bin", "Numbers", "numbers"]

BINS = 10


@dataclass(frozen=True)
class Bin:
    """Of the distribution: submissions with a score from `start` on, below `end`; the last holds what is above.

    Attributes:
        start, end: shares.
        complete: submissions of which all is marked.
        waiting: those of which a part waits for a person.
    """

    start: float
    end: float
    complete: int
    waiting: int


@dataclass(frozen=True)
class Numbers:
    """What there is to know of a class and an assignment; `dataclasses.asdict` gives plain values, for JSON.

    A score is a share: of the points that are marked so far, less the penalty for being late.

    Attributes:
        assignment: its name.
        title: for people.
        worth: the most points that there are to earn.
        students: all whom the gradebook knows.
        submitted: those of them with a submission.
        waiting: submissions of which a part waits for a person.
        tested: submissions with a result of the tests, of which mistakes are shares.
        scores: in ascending order; without submissions of which nothing is marked yet.
        bins: their distribution.
        mean, median, deviation: of the scores; None if there are none. The deviation is the class's own
            (divided by n).
        questions: one for each graded cell.
        misconceptions: known mistakes, the most frequent first.
        by_hand, flagged, aside, failed, missing, repaired, late: for a person.
        unprotected: whose code ran without isolation.
    """

    assignment: str
    title: str
    worth: float
    students: int
    submitted: int
    waiting: int
    tested: int
    scores: tuple[float, ...]
    bins: tuple[Bin, ...]
    mean: float | None
    median: float | None
    deviation: float | None
    questions: tuple[Question, ...]
    misconceptions: tuple[Misconception, ...]
    by_hand: tuple[ByHand, ...]
    flagged: tuple[Flagged, ...]
    aside: tuple[Aside, ...]
    failed: tuple[Aside, ...]
    missing: tuple[Missing, ...]
    repaired: tuple[Repaired, ...]
    late: tuple[Late, ...]
    unprotected: tuple[Person, ...]


def numbers(
    assignment: str,
    marks: Iterable[Mark],
    results: Iterable[Result],
    aside: Iterable[Mapping[str, Any]] = (),
    failed: Iterable[Mapping[str, Any]] = (),
    *,
    title: str | None = None,
    book: str = BOOK,
) -> Numbers:
    """Count everything.

    Args:
        assignment: its name; marks and results of others are left out.
        marks: of all students whom the gradebook knows.
        results: of the tests.
        aside: files that were put aside: path, reason, and student and assignment as far as they are known.
        failed: likewise, files that could not be graded for a reason of the grader's.
        title: of the assignment; as it was handed out, unless given.
        book: the address of the built book, with a slash at its end.
    """
    everyone = sorted((one for one in marks if one.assignment == assignment), key=lambda one: one.student)
    found = {one.student: one for one in results if one.assignment == assignment}
    results = [found[student] for student in sorted(found)]
    submitted = [one for one in everyone if one.submitted]
    about = submission.assignments().get(assignment, {})
    asked = questions(submitted, results, about)
    return Numbers(
        assignment=assignment,
        title=title or about.get("title") or assignment,
        worth=max((one.worth for one in everyone), default=0.0),
        students=len(everyone),
        submitted=len(submitted),
        waiting=sum(one.waits for one in submitted),
        tested=len(results),
        **_scores(submitted),
        questions=asked,
        misconceptions=misconceptions(results, [one.cell for one in asked], book),
        **_lists(assignment, everyone, results, aside, failed),
    )


def _scores(submitted: list[Mark]) -> dict[str, Any]:
    """Each score, their distribution and what sums it up."""
    found = [(share(one.cells.values(), one.penalty), one.waits) for one in submitted]
    known = sorted(score for score, _ in found if score is not None)
    bins = [[0, 0] for _ in range(BINS)]
    for score, waits in found:
        if score is not None:
            bins[min(int(score * BINS), BINS - 1)][waits] += 1
    return {
        "scores": tuple(known),
        "bins": tuple(Bin(n / BINS, (n + 1) / BINS, *counts) for n, counts in enumerate(bins)),
        "mean": statistics.fmean(known) if known else None,
        "median": statistics.median(known) if known else None,
        "deviation": statistics.pstdev(known) if known else None,
    }


def _lists(
    assignment: str, everyone: list[Mark], results: list[Result], aside: Iterable, failed: Iterable
) -> dict[str, tuple]:
    """Who is to be looked at."""
    known = people.people(everyone, results)
    put_aside = people.not_graded(aside, assignment, known)
    broken = people.not_graded(failed, assignment, known)
    return {
        "by_hand": people.by_hand(everyone, known),
        "flagged": people.flagged(results, known),
        "aside": put_aside,
        "failed": broken,
        "missing": people.missing(everyone, (*put_aside, *broken), known),
        "repaired": people.repaired(results, known),
        "late": people.late(everyone, results, known),
        "unprotected": tuple(known[one.student] for one in results if one.isolation != "full"),
    }
