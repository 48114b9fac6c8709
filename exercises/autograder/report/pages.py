"""The page about a class: one file, which loads nothing, runs nothing and can be printed.

Names of students and files, and what their code says, are hostile until shown to be text. Here they are nothing
else: the template escapes them, drawings are made of numbers, and the page's content-security policy lets in its
own style sheet alone.
"""

import re
from pathlib import Path

from markupsafe import Markup, escape

from exercises.autograder.feedback.template import template
from exercises.autograder.feedback.text import clean, cut, short
from exercises.autograder.report import charts
from exercises.autograder.report.counting import Numbers

__all__ = ["page"]

MOST = 600  # characters of a text about a submission
LOW = 0.2  # below this, by custom, one looks at what a question asks


def page(numbers: Numbers) -> str:
    """One HTML page, complete in itself; the same numbers give the same page."""
    text = summary(numbers)
    drawn = charts.distribution(numbers.bins, numbers.mean, numbers.median, text)
    cells = {one.cell: one.task for one in numbers.questions}
    return TEMPLATE.render(n=numbers, chart=drawn, summary=text, tasks=cells, style=STYLE)


def summary(numbers: Numbers) -> str:
    """The distribution in a sentence."""
    scores = numbers.scores
    if not scores:
        return "There is no score yet."
    if scores[0] == scores[-1]:
        return f"{len(scores)} {'score' if len(scores) == 1 else 'equal scores'} of {percent(scores[0])}."
    most = max(numbers.bins, key=lambda one: one.complete + one.waiting)
    fullest = f"from {percent(most.start)} to {percent(most.end)}, has {most.complete + most.waiting}"
    return (
        f"{len(scores)} scores from {percent(scores[0])} to {percent(scores[-1])}; "
        f"the fullest column, {fullest}."
    )


def percent(value: float | None) -> str:
    """A share; only what is all or nothing rounds to that."""
    if value is None:
        return "–"
    rounded = round(100 * value)
    within = min(max(rounded, 1), 99) if 0 < value < 1 else rounded
    return f"{within}%"


def points(value: float | None) -> str:
    """At most two digits behind the point."""
    return "–" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def decimal(value: float | None) -> str:
    """Two digits behind the point, so that a column is in line, and a real minus sign."""
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def ticks(text: str) -> Markup:
    """What stands between backticks is code; a sentence begins with a capital letter."""
    text = clean(text)
    pieces = re.split(r"`([^`]*)`", text[:1].upper() + text[1:])
    made = (Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(pieces))
    return Markup("").join(made)


FILTERS = {"percent": percent, "points": points, "decimal": decimal, "ticks": ticks}
FILTERS |= {"short": short, "cut": lambda text: cut(text, MOST)}
NAMES = {"parts": charts.parts, "line": charts.line, "LOW": LOW}
TEMPLATE, STYLE = template(Path(__file__).parent / "page.html", FILTERS, NAMES)
