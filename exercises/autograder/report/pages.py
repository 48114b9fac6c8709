"""The page about a class: one file, which loads nothing, runs nothing and can be printed.

Names of students and files, and what their code says, are hostile until shown to be text. Here they are nothing
else: the template escapes them, and the page's content-security policy lets in its own style sheet alone.
"""

import re
from pathlib import Path

from markupsafe import Markup, escape

from exercises.autograder.feedback.text import clean, cut, template
from exercises.autograder.report.counting import Numbers

__all__ = ["page"]

MOST = 600  # characters of a text about a submission
LOW = 0.2  # below this, by custom, one looks at what a question asks


def page(numbers: Numbers) -> str:
    """One HTML page, complete in itself; the same numbers give the same page."""
    tasks = {question.cell: question.task for question in numbers.questions}
    fullest = max((bin.complete + bin.waiting for bin in numbers.bins), default=0)
    return TEMPLATE.render(n=numbers, tasks=tasks, fullest=fullest, low=LOW)


def percent(value: float | None) -> str:
    """A share; only what is all or nothing rounds to that."""
    if value is None:
        return "–"
    rounded = round(100 * value)
    within = min(max(rounded, 1), 99) if 0 < value < 1 else rounded
    return f"{within}%"


def decimal(value: float | None) -> str:
    """Two digits behind the point, so that a column is in line, and a real minus sign."""
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def ticks(text: str) -> Markup:
    """What stands between backticks is code; a sentence begins with a capital letter."""
    text = clean(text)
    pieces = re.split(r"`([^`]*)`", text[:1].upper() + text[1:])
    made = (Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(pieces))
    return Markup("").join(made)


FILTERS = {"percent": percent, "decimal": decimal, "ticks": ticks, "cut": lambda text: cut(text, MOST)}
TEMPLATE = template(Path(__file__).parent / "page.html", FILTERS)
