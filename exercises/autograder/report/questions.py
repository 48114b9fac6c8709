"""How a class did on each graded cell, how many met each requirement, and which known mistakes were made."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.result import CellResult, Result
from transformer_lessons import checks
from transformer_lessons.checks.message import place

FEWEST = 5  # submissions; with fewer, a correlation says nothing
DIGITS = 9  # decimals after which points differ only by rounding


def share(cells: Iterable[CellMark], penalty: float = 0.0) -> float | None:
    """The share of points earned: ``max(0, Σ earned − penalty) / Σ worth`` of the cells that wait for nobody.

    None if there are no such cells, or if they are worth nothing.
    """
    marked = [cell for cell in cells if not cell.waits]
    worth = math.fsum(cell.worth for cell in marked)
    if worth <= 0:
        return None
    return round(max(0.0, math.fsum(cell.earned for cell in marked) - penalty) / worth, DIGITS)


def questions(marks: Sequence[Mark], results: Sequence[Result], about: Mapping[str, Any]) -> list[dict]:
    """How a class did on each graded cell, in the order of the assignment; unknown cells come last.

    Returns:
        for each cell, its grade id as "cell", what it is "worth", and
        task: the title of its task, or "" if that is not known.
        marked: submissions with points for it; mean, deviation, full, none are theirs, None without any.
        waiting: submissions whose answer waits for a person, which is no 0 and counts nowhere else.
        mean, deviation: of the points; the deviation is that of the class itself (divided by n).
        full, none: shares with all points and with no points.
        discrimination: see `_discrimination`.
        requirements: what its checks require: task, sentence, how many submissions met it, of how many.
    """
    places = {name: number for number, name in enumerate(about.get("cells", ()))}
    names = dict.fromkeys(name for mark in marks for name in mark.cells)
    ordered = sorted(names, key=lambda name: places.get(name, len(places)))
    tasks = {row["task"].split(" ")[0]: row["task"] for row in about.get("tasks", ())}
    return [_question(cell, tasks, marks, results) for cell in ordered]


def _question(cell: str, tasks: Mapping[str, str], marks: Sequence[Mark], results: Sequence[Result]) -> dict:
    # ps01-4-repaired-test belongs to the task whose title begins with 4.
    number = re.match(r"[^-]+-(\d+)-", cell)
    mine = [mark.cells[cell] for mark in marks if cell in mark.cells]
    tested = [test for result in results for test in result.cells if test.cell == cell]
    marked = [got for got in mine if not got.waits]
    points = [round(got.earned, DIGITS) for got in marked]
    full = [got.earned >= got.worth - 10.0**-DIGITS and got.worth > 0 for got in marked]
    return {
        "cell": cell,
        "task": tasks.get(number[1], "") if number else "",
        "worth": mine[0].worth,
        "marked": len(marked),
        "waiting": len(mine) - len(marked),
        "mean": statistics.fmean(points) if points else None,
        "deviation": statistics.pstdev(points) if points else None,
        "full": statistics.fmean(full) if points else None,
        "none": statistics.fmean(earned <= 0 for earned in points) if points else None,
        "discrimination": _discrimination(marks, cell),
        "requirements": _requirements(tested),
    }


def _discrimination(marks: Sequence[Mark], cell: str) -> float | None:
    """Whether those who do well in a question do well elsewhere: the corrected item–total correlation.

    ``r = Σ (x − x̄)(t − t̄) / √(Σ (x − x̄)² · Σ (t − t̄)²)``

    with x a submission's points for the question and t its share of those for all others (Henrysson 1963).
    Leaving the question out of t is the correction: otherwise even a question that tells nothing correlates.
    Of the others only the marked ones count, so that submissions compare while some of them wait.

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


def _requirements(tested: Sequence[CellResult]) -> list[dict]:
    """How many met each requirement: a test cut short met none, and what is asked twice must be met twice."""
    sentences = {(part.task, part.requirement): part.sentence for cell in tested for part in cell.parts}
    met: Counter = Counter()
    for cell in tested:
        missed = {(part.task, part.requirement) for part in cell.parts if not part.met}
        met.update({(part.task, part.requirement) for part in cell.parts} - missed)
    return [
        {"task": task, "sentence": sentence, "met": met[task, requirement], "of": len(tested)}
        for (task, requirement), sentence in sentences.items()
    ]


def misconceptions(results: Sequence[Result], order: Sequence[str]) -> list[dict]:
    """The known mistakes that a class makes, the most frequent first.

    Returns:
        id: "task/mistake".
        name: what it is, in the words that the student reads; the id if the catalogue does not know it.
        students, share: how many make it, wherever and however often, and their share of all who were tested.
        cells: the grade ids of the questions in which it is made, in the order of the assignment.
        place, link: where in the book to read about it, for people, and the address; "" if it is not known.
    """
    who: dict[str, set[str]] = {}
    where: dict[str, set[str]] = {}
    for result in results:
        for cell in result.cells:
            for mistake in cell.mistakes:
                who.setdefault(mistake, set()).add(result.student)
                where.setdefault(mistake, set()).add(cell.cell)
    made = []
    for mistake in sorted(who, key=lambda mistake: (-len(who[mistake]), mistake)):
        task, _, name = mistake.partition("/")
        # None if the catalogue has changed since the grading.
        mistakes = checks.task(task).mistakes if task in checks.tasks() else ()
        known = next((one for one in mistakes if one.name == name), None)
        said, where_to_read, link = (known.you, *place(known.anchor)) if known else (mistake, "", "")
        made.append(
            {
                "id": mistake,
                "name": said,
                "students": len(who[mistake]),
                "share": len(who[mistake]) / len(results),
                "cells": [cell for cell in order if cell in where[mistake]],
                "place": where_to_read,
                "link": link,
            }
        )
    return made
