"""The page a student gets back: points, what the checks said, and the notebook, with all that came in made inert.

Whatever a student wrote or their code put out (names, Markdown, outputs of any type) is hostile until shown to be
text. It is escaped text on the page, with three exceptions, each built from what is allowed: Markdown without
HTML, highlighted code, and pictures that were decoded and encoded anew. Should one of them have a hole, the
page's content-security policy runs no script, loads nothing and sends nothing; and `feedback.inspection` stops a
page that holds any element or attribute of which it does not know.

Nothing of a hidden test is on the page: the text of tests and locked cells is that of the released notebook, and
what a test cell put out, such as a traceback with its lines, is dropped. Flags are for a person and not shown.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from nbformat import NotebookNode

from exercises.autograder.feedback.cells import Writer
from exercises.autograder.feedback.inspection import inspect, secrets
from exercises.autograder.feedback.panels import panels, source_of
from exercises.autograder.feedback.template import template
from exercises.autograder.feedback.text import cut, short
from exercises.autograder.result import Result

__all__ = ["page"]

REPAIRS = 20
REPAIR = 500  # characters of one


def page(
    notebook: NotebookNode,
    released: NotebookNode,
    result: Result,
    *,
    comments: Mapping[str, str] = {},
    scores: Mapping[str, float | None] = {},
) -> str:
    """One HTML page, complete in itself, of at most a million bytes.

    Args:
        notebook: the graded one: the student's cells with their outputs, and the master's tests.
        released: the assignment as it was given out.
        result: of the grading.
        comments: a person's, by grade id.
        scores: a person's points by grade id: for written answers, absent or None while not marked; and for
            tests, where a person has given others.

    Raises:
        ValueError: if a line of a hidden test would be on the page, or anything else that must not be.
    """
    graded = panels(notebook, released, result, comments, scores)
    writer = Writer(released, graded)
    blocks = writer.blocks(notebook)
    text = TEMPLATE.render(
        title=_title(released) or result.assignment,
        student=short(result.student),
        panels=list(graded.values()),
        repairs=[cut(text, REPAIR) for text in result.repairs[:REPAIRS]],
        blocks=blocks,
        left_out=writer.left_out,
        formulas=writer.formulas,
        style=STYLE,
    )
    inspect(text, secrets(notebook, released))
    return text


def _title(released: NotebookNode) -> str:
    found = [re.search("^# (.+)$", source_of(cell), re.MULTILINE) for cell in released.cells[:1]]
    return found[0][1] if found and found[0] else ""


def _points(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


TEMPLATE, STYLE = template(Path(__file__).parent / "page.html", {"points": _points})
