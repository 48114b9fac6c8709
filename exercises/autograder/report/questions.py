"""How a class did on each graded cell: mean, spread, discrimination, and who met which requirement."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.result import CellResult, Result

__all__ = ["Question", "Requirement", "discrimination", "questions", "share"]

FEWEST = 5  # submissions; of fewer, a correlation says nothing
DIGITS = 9  # after which points differ by rounding alone
NOTHING = 10.0**-DIGITS


@dataclass(frozen=True)
class Requirement:
    """How many submissions met a requirement of a question.

    Attributes:
        task: of the check.
        id: of the requirement.
        sentence: what is required.
        met, of: submissions that met it, and all that were tested.
    """

    task: str
    id: str
    sentence: str
    met: int
    of: int


@dataclass(frozen=True)
class Question:
    """How a class did on one graded cell.

    Attributes:
        cell: its grade id.
        task: the title of its task, or "" where it cannot be told.
        written: whether it is an answer in words.
        worth: points.
        marked: submissions with points for it; the numbers that follow are theirs, None if there are none.
        waiting: submissions whose answer waits for a person, which is no 0 and counts nowhere else.
        mean: points.
        deviation: the standard deviation of the points, of the class itself (divided by n).
        full, none: shares with all points and with no points.
        discrimination: see there.
        requirements: what its checks require.
        unfinished: tests that did not come to their end, by status.
    """

    cell: str
    task: str
    written: bool
    worth: float
    marked: int
    waiting: int
    mean: float | None
    deviation: float | None
    full: float | None
    none: float | None
    discrimination: float | None
    requirements: tuple[Requirement, ...] = ()
    unfinished: dict[str, int] = field(default_factory=dict)


def share(cells: Iterable[CellMark], penalty: float = 0.0) -> float | None:
    """Points of what is marked: ``max(0, Σ earned − penalty) / Σ worth`` of the cells that wait for nobody.

    A pitfall: None if there are no such cells, or if they are worth nothing.
    """
    marked = [cell for cell in cells if not cell.waits]
    worth = math.fsum(cell.worth for cell in marked)
    if worth <= 0:
        return None
    return round(max(0.0, math.fsum(cell.earned for cell in marked) - penalty) / worth, DIGITS)


def discrimination(marks: Sequence[Mark], cell: str) -> float | None:
    """Whether those who do well in a question do well elsewhere: the corrected item–total correlation.

    ``r = Σ (x − x̄)(t − t̄) / √(Σ (x − x̄)² · Σ (t − t̄)²)``

    with x a submission's points for the question and t what it reached of all others (Henrysson 1963). That the
    question is not among the others is the correction: with it, even a question that tells nothing correlates.
    Of the others, those that are marked count, as a share, so that submissions compare while some of them wait;
    with nothing waiting, r is that of the points.

    A pitfall: None with fewer than five submissions, or if either of the two is the same for all of them.
    """
    pairs = []
    for mark in marks:
        rest = share(other for name, other in mark.cells.items() if name != cell)
        if cell in mark.cells and not mark.cells[cell].waits and rest is not None:
            pairs.append((round(mark.cells[cell].earned, DIGITS), rest))
    if len(pairs) < FEWEST:
        return None
    try:
        return statistics.correlation(*zip(*pairs, strict=True))
    except statistics.StatisticsError:  # one of the two is constant
        return None


def questions(
    marks: Sequence[Mark], results: Sequence[Result], about: Mapping[str, Any]
) -> tuple[Question, ...]:
    """One for each graded cell, in the order of the assignment.

    Args:
        marks: of those who handed something in.
        results: of the tests.
        about: what `submission.assignments` says of the assignment; may be empty.
    """
    tasks = {row["task"].split(" ")[0]: row["task"] for row in about.get("tasks", ())}
    return tuple(
        _question(cell, _task_of(cell, tasks), marks, results) for cell in _in_order(marks, results, about)
    )


def _in_order(marks: Iterable[Mark], results: Iterable[Result], about: Mapping[str, Any]) -> list[str]:
    """The graded cells; those that the assignment does not know come last."""
    places = {name: place for place, name in enumerate(about.get("cells", ()))}
    names = [name for mark in marks for name in mark.cells]
    names += [cell.cell for result in results for cell in result.cells]
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(places)))


def _task_of(cell: str, tasks: Mapping[str, str]) -> str:
    """``ps01-4-repaired-test`` belongs to the task whose title begins with 4."""
    number = re.match(r"[^-]+-(\d+)-", cell)
    return tasks.get(number[1], "") if number else ""


def _question(cell: str, task: str, marks: Sequence[Mark], results: Sequence[Result]) -> Question:
    found = [mark.cells[cell] for mark in marks if cell in mark.cells]
    tested = [one for result in results for one in result.cells if one.cell == cell]
    marked = [one for one in found if not one.waits]
    return Question(
        cell,
        task,
        any(one.written for one in found),
        max((one.worth for one in (*found, *tested)), default=0.0),
        len(marked),
        len(found) - len(marked),
        **_of_points(marked),
        discrimination=discrimination(marks, cell),
        requirements=_requirements(tested),
        unfinished=dict(sorted(Counter(one.status for one in tested if one.status != "done").items())),
    )


def _of_points(marked: Sequence[CellMark]) -> dict[str, float | None]:
    if not marked:
        return dict.fromkeys(("mean", "deviation", "full", "none"))
    points = [round(one.earned, DIGITS) for one in marked]
    return {
        "mean": statistics.fmean(points),
        "deviation": statistics.pstdev(points),
        "full": statistics.fmean(one.earned >= one.worth - NOTHING and one.worth > 0 for one in marked),
        "none": statistics.fmean(one.earned <= NOTHING for one in marked),
    }


def _requirements(tested: Sequence[CellResult]) -> tuple[Requirement, ...]:
    """A test that did not come to its end met none; what is asked twice is met if it was both times."""
    sentences: dict[tuple[str, str], str] = {}
    met: Counter = Counter()
    for cell in tested:
        kept: dict[tuple[str, str], bool] = {}
        for part in cell.parts:
            one = (part.task, part.requirement)
            sentences.setdefault(one, part.sentence)
            kept[one] = kept.get(one, True) and part.met
        met.update(one for one, was_met in kept.items() if was_met)
    return tuple(Requirement(*one, text, met[one], len(tested)) for one, text in sentences.items())
