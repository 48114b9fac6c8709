"""A class's numbers for an assignment, and the page about them: one file, which loads and runs nothing.

The numbers are counted from marks, results and the list of what was not graded, and from nothing else. Names
of students and files, and what their code says, are hostile until shown to be text. On the page they are text
alone: the template escapes them, and the page's content-security policy admits only its own style sheet.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from exercises.autograder.course.marks import Mark
from exercises.autograder.feedback.text import clean, cut, template
from exercises.autograder.report.questions import misconceptions, questions, share
from exercises.autograder.result import Result
from transformer_lessons.tools import submission

BINS = 10
MOST = 600  # characters of a text about a submission
LOW = 0.2  # a discrimination below this, by custom, is a reason to look at the question


def numbers(
    assignment: str,
    marks: Iterable[Mark],
    results: Iterable[Result],
    quarantined: Iterable[Mapping[str, Any]] = (),
    failed: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Compute all numbers of the report.

    A score is a share: of the points that are marked so far, less the penalty for being late.

    Args:
        assignment: its name.
        marks: the marks for it of all students whom the gradebook knows.
        results: the results of its tests.
        quarantined: files that were put aside: path, reason, and student and assignment as far as known.
        failed: likewise, files that could not be graded because of the grader.

    Returns:
        assignment, title: its name, and what people call it.
        names: students' names by id, as far as the gradebook knows them.
        worth: the most points that can be earned.
        students, submitted: how many the gradebook knows, and how many of these have a submission.
        waiting: how many submissions have a part that waits for a person.
        tested: how many submissions have a result of the tests; shares of mistakes are of these.
        scores: in ascending order; without submissions of which nothing is marked yet.
        bins: their distribution: scores from "start" on, below "end" (the last holds what is above, too), of
            submissions fully marked ("complete"), or partly "waiting".
        mean, median, deviation: of the scores; None if there are none. The deviation is the class's own
            (divided by n).
        questions, misconceptions: what the functions of these names return.
        by_hand, flagged, quarantined, failed, missing, late, repaired, unprotected: for a person: marks,
            results, flags with their student, and what is known of files; each has a "student".
    """
    everyone = sorted(marks, key=lambda mark: mark.student)
    results = sorted(results, key=lambda result: result.student)
    submitted = [mark for mark in everyone if mark.submitted]
    late = {result.student for result in results if result.late}
    about = submission.assignments().get(assignment, {})
    asked = questions(submitted, results, about)
    return {
        "assignment": assignment,
        "title": about.get("title") or assignment,
        "names": {mark.student: f"{mark.first_name} {mark.last_name}".strip() for mark in everyone},
        "worth": max((mark.worth for mark in everyone), default=0.0),
        "students": len(everyone),
        "submitted": len(submitted),
        "waiting": sum(mark.waits for mark in submitted),
        "tested": len(results),
        **_scores(submitted),
        "questions": asked,
        "misconceptions": misconceptions(results, [question["cell"] for question in asked]),
        "by_hand": [mark for mark in everyone if mark.waits],
        "flagged": [{"student": result.student, "flag": flag} for result in results for flag in result.flags],
        # Files of an unknown assignment are listed with each.
        "quarantined": [file for file in quarantined if file["assignment"] in (None, assignment)],
        "failed": [file for file in failed if file["assignment"] in (None, assignment)],
        "missing": [mark for mark in everyone if not mark.submitted],
        "late": [mark for mark in everyone if mark.late or mark.student in late],
        "repaired": [result for result in results if result.repairs],
        "unprotected": [result for result in results if result.isolation != "full"],
    }


def _scores(submitted: list[Mark]) -> dict[str, Any]:
    """All scores, their distribution, and its mean, median and deviation."""
    scores = [(share(mark.cells.values(), mark.penalty), mark.waits) for mark in submitted]
    known = sorted(score for score, _ in scores if score is not None)
    count = Counter((min(int(s * BINS), BINS - 1), waits) for s, waits in scores if s is not None)
    return {
        "scores": known,
        "bins": [
            {"start": n / BINS, "end": (n + 1) / BINS, "complete": count[n, False], "waiting": count[n, True]}
            for n in range(BINS)
        ],
        "mean": statistics.fmean(known) if known else None,
        "median": statistics.median(known) if known else None,
        "deviation": statistics.pstdev(known) if known else None,
    }


# ---- The page


def page(numbers: dict[str, Any]) -> str:
    """The report as one self-contained HTML page; the same numbers give the same page."""
    tasks = {question["cell"]: question["task"] for question in numbers["questions"]}
    fullest = max(bin["complete"] + bin["waiting"] for bin in numbers["bins"])
    return TEMPLATE.render(n=numbers, tasks=tasks, fullest=fullest, low=LOW)


def percent(value: float | None) -> str:
    """A share as a percentage; only all or nothing shows as 100% or 0%."""
    if value is None:
        return "–"
    rounded = round(100 * value)
    within = min(max(rounded, 1), 99) if 0 < value < 1 else rounded
    return f"{within}%"


def decimal(value: float | None) -> str:
    """A number with two decimals, so that a column is in line, and with a real minus sign."""
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def ticks(text: str) -> Markup:
    """A sentence as markup: what is between backticks becomes code, and the first letter a capital."""
    text = clean(text)
    pieces = re.split(r"`([^`]*)`", text[:1].upper() + text[1:])
    made = (Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(pieces))
    return Markup("").join(made)


FILTERS = {"percent": percent, "decimal": decimal, "ticks": ticks, "cut": lambda text: cut(text, MOST)}
TEMPLATE = template(Path(__file__).parent / "page.html", FILTERS)
