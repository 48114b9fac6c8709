"""The pages of a course's students, with what a person has marked so far."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import Mark
from exercises.autograder.feedback.pages import page
from exercises.autograder.result import Result
from transformer_lessons.data.files import replacing

__all__ = ["write_page"]


def write_page(course: Course, result: Result, released: NotebookNode, mark: Mark | None) -> Path:
    """Write the page that a student gets; it replaces the one before.

    Args:
        result: of a submission that is in the gradebook.
        released: the assignment as it was handed out.
        mark: what the gradebook says of it.

    Raises:
        ValueError: if something would be on the page that must not be; the page before is removed then.
    """
    path = course.page(result.student, result.assignment)
    path.parent.mkdir(parents=True, exist_ok=True)
    comments = mark.comments if mark else {}
    try:
        text = page(_notebook(course, result), released, result, comments=comments, scores=_by_a_person(mark))
    except ValueError:
        path.unlink(missing_ok=True)
        raise
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _by_a_person(mark: Mark | None) -> dict[str, float]:
    """The points of written answers that were marked, and of tests whose points a person has changed."""
    cells = mark.cells if mark else {}
    return {
        name: cell.earned
        for name, cell in cells.items()
        if not cell.waits and (cell.written or cell.manual is not None or cell.extra)
    }


def _notebook(course: Course, result: Result) -> NotebookNode:
    """The graded notebook, with answers in words as they were written."""
    done, received = (
        nbformat.v4.reads(at(result.student, result.assignment).read_text(encoding="utf-8"))
        for at in (course.autograded, course.received)
    )
    written = {cell.id: cell for cell in received.cells}
    done.cells = [written.get(c.id, c) if c.cell_type == "markdown" else c for c in done.cells]
    return done
