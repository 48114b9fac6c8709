"""The page a student gets back: points, what the checks said, and the student's answers with their outputs.

Whatever a student wrote or their code printed (names, Markdown, outputs of any type) is hostile until shown
to be text, and here it is text: the template escapes all but pictures that were decoded and re-encoded.
Should there be a hole, the page's content-security policy runs no script, loads nothing and sends nothing.

Nothing of a hidden test is on the page: a test's text is the released notebook's, a test's output, such as a
traceback with its lines, is dropped, and a page with a line of a hidden test is not made. Flags are for a
person and not shown.
"""

import builtins
import html
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.feedback.text import cut, template
from exercises.autograder.intake.repair import cells_by_id
from exercises.autograder.result import CellResult, Part, Result
from transformer_lessons.data.files import write_text
from transformer_lessons.tools.submission import grade_id

REPAIRS, REPAIR = 20, 500  # the most repairs, and the most characters of one
MESSAGES = 20  # the most messages of a cell
STATUS = {
    "timeout": "This test was stopped because your code took too long. It gives no points.",
    "missing": "This test could not finish because your code did not answer. It gives no points.",
    "error": "This test ended with an error before its points were counted. It gives no points.",
}
INLINED = re.compile("data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+")  # a picture, in the text of an answer
SECRET = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)(?:### END HIDDEN TESTS|\Z)", re.DOTALL)
ORDINARY = {*keyword.kwlist, *dir(builtins)}


def write_page(course: Course, result: Result, released: NotebookNode, mark: Mark) -> None:
    """Write the page that a student gets, with what a person has marked so far; it replaces the previous one.

    Raises:
        ValueError: if the page would have something that it must not; the previous page is removed then.
    """
    path = course.page(result.student, result.assignment)
    try:
        text = page(_notebook(course, result), released, result, mark)
    except ValueError:
        path.unlink(missing_ok=True)
        raise
    write_text(path, text)


def _notebook(course: Course, result: Result) -> NotebookNode:
    """The graded notebook, with answers in words as the student wrote them."""
    done, received = (
        nbformat.v4.reads(at(result.student, result.assignment).read_text(encoding="utf-8"))
        for at in (course.autograded, course.received)
    )
    written = {cell.id: cell for cell in received.cells}
    done.cells = [written.get(c.id, c) if c.cell_type == "markdown" else c for c in done.cells]
    return done


def page(notebook: NotebookNode, released: NotebookNode, result: Result, mark: Mark) -> str:
    """The page as self-contained HTML; long texts are cut, and outputs were bounded when they were graded.

    Args:
        notebook: the graded one: the student's cells with their outputs, and the master's tests.
        released: the assignment as it was handed out.
        result, mark: what the grading gave, and the gradebook, with a person's points and comments.

    Raises:
        ValueError: if a line of a hidden test would be on it.
    """
    tasks = _tasks(released)
    title = re.match("# (.+)", released.cells[0].source)
    panels = _panels(released, result, mark, tasks)
    text = TEMPLATE.render(
        title=title[1] if title else result.assignment,
        student=result.student,
        mark=mark,
        panels=list(panels.values()),
        repairs=[cut(repair, REPAIR) for repair in result.repairs[:REPAIRS]],
        blocks=list(_blocks(notebook.cells, cells_by_id(released), panels, mark.comments, tasks)),
    )
    shown = " ".join(html.unescape(text).split())
    for line in secrets(notebook, released):
        if line in shown:
            raise ValueError(f"page: expected no line of a hidden test, got {line}")
    return text


def secrets(notebook: NotebookNode, released: NotebookNode) -> list[str]:
    """The lines of hidden tests that reveal something: neither short nor what a student was given or wrote.

    A line of Python's own words alone, such as ``except Exception:``, reveals nothing; tracebacks have many.
    """
    ours, known, tests = cells_by_id(released), [cell.source for cell in released.cells], []
    for cell in notebook.cells:
        (known if _is_theirs(cell, ours) else tests).append(cell.source)
    blocks = [block for text in tests for block in SECRET.findall(text)]
    lines = {" ".join(line.split()) for block in blocks for line in block.splitlines()}
    familiar = " ".join(" ".join(known).split())
    long = {line for line in lines if len(line) > 12 and line not in familiar}
    return sorted(line for line in long if set(re.findall(r"\w+", line)) - ORDINARY)


def _is_theirs(cell: NotebookNode, given: Mapping[str, NotebookNode]) -> bool:
    """Whether a cell is the student's: to be answered, or neither the assignment's nor marked as a test."""
    marks = given.get(grade_id(cell), cell).metadata.get("nbgrader", {})
    return bool(marks.get("solution")) or not (grade_id(cell) in given or marks.get("grade"))


def _blocks(
    cells: list[NotebookNode],
    given: Mapping[str, NotebookNode],
    panels: Mapping[str, "Panel"],
    comments: Mapping[str, str],
    tasks: Mapping[str, str],
) -> Iterator[tuple[str, NotebookNode | None, "Panel | None", str]]:
    """The heading of a task where it begins; a cell of the student's; its panel; a person's comment on it."""
    left, before = dict(panels), ""
    for cell in cells:
        name = grade_id(cell) or ""
        theirs = cell if _is_theirs(cell, given) else None
        panel = left.pop(name, None)
        if theirs or panel:
            task = tasks.get(name, before)
            yield (task if task != before else ""), theirs, panel, comments.get(name, "")
            before = task


# ---- What the page says about a graded cell


@dataclass(frozen=True)
class Panel:
    """What the page says about one graded cell."""

    name: str  # its grade id
    task: str  # the heading of its task
    worth: float  # the most it can give
    earned: float | None  # points; None while a person has not marked it
    line: str  # a sentence about its state, such as why there are no points; or ""
    written: bool = False  # whether a person marks it
    visible: str = ""  # what a student may see of the test
    parts: tuple[Part, ...] = ()  # the requirements
    messages: tuple[str, ...] = ()  # what the checks said

    @property
    def state(self) -> str:
        """The state in one word, which is also the name of its colour."""
        if self.earned is None:
            return "waits"
        return "full" if self.earned >= self.worth else "part" if self.earned > 0 else "none"


def _panels(released: NotebookNode, result: Result, mark: Mark, tasks: Mapping[str, str]) -> dict[str, Panel]:
    """The panels by grade id, in the order of the assignment."""
    tests = {cell.cell: cell for cell in result.cells}
    panels: dict[str, Panel] = {}
    for name, given in cells_by_id(released).items():
        if cell := mark.cells.get(name):
            about = _tested(tests[name], cell, given.source) if name in tests else _by_hand(cell)
            panels[name] = Panel(name, tasks.get(name, ""), cell.worth, **about)
    return panels


def _tasks(released: NotebookNode) -> dict[str, str]:
    """For each cell of the assignment, the last second-level heading before it."""
    heading, tasks = "", {}
    for cell in released.cells:
        if cell.cell_type == "markdown":
            headings = re.findall("^## (.+)$", cell.source, re.MULTILINE)
            heading = headings[-1].replace("`", "").replace("*", "") if headings else heading
        if name := grade_id(cell):
            tasks[name] = heading
    return tasks


def _by_hand(cell: CellMark) -> dict[str, Any]:
    """The panel of an answer in words. One left as it was handed out has 0 points, which nobody gave."""
    line = "" if cell.manual is not None or cell.extra else "There is no answer to read."
    if cell.waits:
        line = "A person still has to read this answer."
    return {"earned": None if cell.waits else cell.earned, "written": True, "line": line}


def _tested(test: CellResult, cell: CellMark, visible: str) -> dict[str, Any]:
    """The panel of a test; its points are a person's, if nothing has changed since they were given."""
    earned, line = test.earned if cell.waits else cell.earned, ""
    if earned != test.earned:
        line = "A person has looked at this and given these points."
    elif test.status != "done":
        line = STATUS.get(test.status, f"This test did not finish: {test.status}.")
    messages = tuple(cut(text) for text in test.messages[:MESSAGES])
    return {"earned": earned, "line": line, "visible": visible, "parts": test.parts, "messages": messages}


FILTERS = {"source": lambda cell: cut(INLINED.sub("(a picture)", cell.source))}
TEMPLATE = template(Path(__file__).parent / "page.html", FILTERS)
