"""What is said of each graded cell: points, requirements, messages, a person's comment."""

import itertools
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape
from nbformat import NotebookNode

from exercises.autograder.feedback.text import NOTHING, Room, clean, code, cut, text_of
from exercises.autograder.result import CellResult, Part, Result

__all__ = ["Panel", "given", "grade_id", "panels", "source_of", "whose"]

MESSAGES = 150_000  # bytes of all messages: they may quote what the student's code said
MESSAGE = 4_000  # characters of one
MOST = 20  # messages of a cell
AROUND = 400  # bytes of the markup around a message
STATUS = {
    "timeout": "This test was stopped, because your code took longer than it may. It gives no points.",
    "missing": "This test could not come to its end, because your code did not answer. It gives no points.",
    "error": "This test ended with an error before its points were counted. It gives no points.",
}


@dataclass(frozen=True)
class Panel:
    """What is said of one graded cell.

    Attributes:
        number: its place among them, for its anchor.
        name: its grade id.
        task: the heading of its task.
        worth: the most it can give.
        earned: points; None while a person has not marked it.
        written: whether a person marks it.
        line: why there are no points, in words; or "".
        announced: the comment with which the test begins, as text.
        visible: what else a student may see of it.
        parts: the requirements, by task.
        messages: of each its first line, and the others.
        comment: a person's.
    """

    number: int
    name: str
    task: str
    worth: float
    earned: float | None
    written: bool = False
    line: str = ""
    announced: str = ""
    visible: Markup = NOTHING
    parts: tuple[tuple[str, tuple[Part, ...]], ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    comment: str = ""

    @property
    def state(self) -> str:
        """In a word, which is also its colour's."""
        if self.earned is None:
            return "waits"
        return "full" if self.earned >= self.worth else "part" if self.earned > 0 else "none"


# ---- Whose a cell is


def _marks(cell: NotebookNode) -> Mapping[str, Any]:
    """What nbgrader says of a cell; a student's may say anything."""
    metadata = cell.get("metadata")
    found = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def grade_id(cell: NotebookNode) -> str | None:
    """The name of a cell of the assignment; None for most cells of the student's own."""
    name = _marks(cell).get("grade_id")
    return name if isinstance(name, str) else None


def source_of(cell: NotebookNode) -> str:
    """The text of a cell."""
    return text_of(cell.get("source"))


def _is_test(cell: NotebookNode) -> bool:
    return bool(_marks(cell).get("grade")) and not _marks(cell).get("solution")


def given(released: NotebookNode) -> dict[str, NotebookNode]:
    """The cells of an assignment by grade id, as they were given out."""
    return {name: cell for cell in released.cells if (name := grade_id(cell))}


def whose(cell: NotebookNode, given: Mapping[str, NotebookNode]) -> str:
    """As "test", "locked" or "theirs" it was given out; an "unknown" one only calls itself a test."""
    ours = given.get(grade_id(cell))
    if ours is None:
        return "unknown" if _is_test(cell) else "theirs"
    return "test" if _is_test(ours) else "theirs" if _marks(ours).get("solution") else "locked"


# ---- Panels


def panels(
    notebook: NotebookNode,
    released: NotebookNode,
    result: Result,
    comments: Mapping[str, str],
    scores: Mapping[str, float | None],
) -> dict[str, Panel]:
    """By grade id, in the order of the assignment; then any result of which it knows nothing."""
    room, tasks, found = Room(MESSAGES), _tasks(released), {}
    results = {cell.cell: cell for cell in result.cells}
    answers = {grade_id(cell): source_of(cell).strip() for cell in notebook.cells}
    graded = {name: cell for name, cell in given(released).items() if _marks(cell).get("grade")}
    for number, name in enumerate(graded | results, 1):
        cell = graded.get(name, NotebookNode(source="", metadata={}))
        worth = float(_marks(cell).get("points", 0))
        about = {
            "number": number,
            "name": name,
            "task": tasks.get(name, ""),
            "comment": comments.get(name) or "",
        }
        if _marks(cell).get("solution"):
            answered = answers.get(name, "") not in ("", source_of(cell).strip())
            found[name] = Panel(**about, worth=worth, written=True, **_marked(scores.get(name), answered))
        else:
            tested = results.get(name) or CellResult(name, 0.0, worth, "missing")
            panel = Panel(**about, **_tested(tested, room), **_shown(source_of(cell)))
            found[name] = _changed(panel, scores.get(name))
    return found


def _changed(panel: Panel, score: float | None) -> Panel:
    """A test's panel, with the points of a person who has given others."""
    if score is None or score == panel.earned:
        return panel
    return replace(panel, earned=score, line="A person has looked at this and given these points.")


def _tasks(released: NotebookNode) -> dict[str | None, str]:
    """For each cell of the assignment, the last heading of the second level before it."""
    heading, found = "", {}
    for cell in released.cells:
        if cell.cell_type == "markdown":
            headings = re.findall("^## (.+)$", source_of(cell), re.MULTILINE)
            heading = headings[-1].replace("`", "").replace("*", "") if headings else heading
        found[grade_id(cell)] = heading
    return found


def _marked(score: float | None, answered: bool) -> dict[str, Any]:
    if not answered:
        return {"earned": score or 0.0, "line": "There is no answer to read."}
    return {"earned": score, "line": "This answer waits for a person, who will read it." * (score is None)}


def _tested(cell: CellResult, room: Room) -> dict[str, Any]:
    ended = STATUS.get(cell.status, f"This test did not come to its end: {cell.status}.")
    texts = [cut(clean(text), MESSAGE) for text in cell.messages[:MOST]]
    tasks = dict.fromkeys(part.task for part in cell.parts)
    return {
        "earned": cell.earned,
        "worth": cell.worth,
        "line": "" if cell.status == "done" else ended,
        "parts": tuple((task, tuple(part for part in cell.parts if part.task == task)) for task in tasks),
        "messages": tuple(_parts(text) for text in texts if room.take(len(escape(text).encode()) + AROUND)),
    }


def _shown(source: str) -> dict[str, Any]:
    """Of the released text of a test: the comment at its head, and the rest."""
    lines = clean(source).split("\n")
    head = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    announced = " ".join(line.lstrip("# ") for line in head)
    return {"announced": announced, "visible": code("\n".join(lines[len(head) :]))}


def _parts(text: str) -> tuple[str, str]:
    """The first line of a message, which has the mistake's name, and the rest."""
    head, _, rest = text.partition("\n")
    return head, textwrap.dedent(rest.strip("\n"))
