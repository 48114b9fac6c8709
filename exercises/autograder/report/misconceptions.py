"""Which known mistakes a class makes, how many make each, and where the book explains it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import book
from exercises.autograder.result import Result
from transformer_lessons import checks
from transformer_lessons.checks.message import place
from transformer_lessons.data.files import read_json

__all__ = ["BOOK", "Misconception", "misconceptions"]

BOOK = "https://transformer-lessons.github.io/transformer-lessons/"  # `make set-repository` keeps it right
CHAPTERS = Path(book.__file__).parent / "chapters"
OTHER_ORDER = "argument_order"  # is in no catalogue: the checks find it for any task


@dataclass(frozen=True)
class Misconception:
    """A known mistake, and how many submissions make it.

    Attributes:
        id: "task/mistake".
        name: what it is, in the words that the student reads; the id if the catalogue does not know it.
        students: how many make it, wherever and however often.
        share: of all that were tested.
        cells: the grade ids of the questions in which it is made, in their order.
        place: where in the book to read, for people; "" if it is not known.
        link: the address of that place, or "".
    """

    id: str
    name: str
    students: int
    share: float
    cells: tuple[str, ...]
    place: str = ""
    link: str = ""


def misconceptions(
    results: Sequence[Result], order: Iterable[str], address: str
) -> tuple[Misconception, ...]:
    """The most frequent first.

    Args:
        results: of all that were tested.
        order: the grade ids, as the assignment has them.
        address: of the book.
    """
    places = {cell: place for place, cell in enumerate(order)}
    who, where = {}, {}
    for result in results:
        for cell in result.cells:
            for mistake in cell.mistakes:
                who.setdefault(mistake, set()).add(result.student)
                where.setdefault(mistake, set()).add(cell.cell)
    return tuple(
        Misconception(
            mistake,
            _name(mistake),
            len(who[mistake]),
            len(who[mistake]) / len(results),
            tuple(sorted(where[mistake], key=lambda cell: (places.get(cell, len(places)), cell))),
            *_place(_anchor(mistake), address),
        )
        for mistake in sorted(who, key=lambda mistake: (-len(who[mistake]), mistake))
    )


@cache
def _known(mistake: str) -> tuple[str, str] | None:
    """Name and anchor; None if the catalogue has changed since the grading."""
    task, _, name = mistake.partition("/")
    if task not in checks.tasks():
        return None
    if name == OTHER_ORDER:
        return "you take the arguments in another order", checks.task(task).requirements[0].anchor
    return checks.mistake(task, name)


def _name(mistake: str) -> str:
    return _known(mistake)[0] if _known(mistake) else mistake


def _anchor(mistake: str) -> str:
    return _known(mistake)[1] if _known(mistake) else ""


@cache
def _place(anchor: str, address: str) -> tuple[str, str]:
    """For ``#ch05-scale``, “5.4 · Scaled dot-product attention” and the address of that section."""
    if anchor and not anchor.startswith("#"):
        return place(anchor, address)
    chapter = next(CHAPTERS.glob(f"{anchor[3:5]}_*.ipynb"), None) if anchor else None
    if chapter is None:
        return "", ""
    cells = [cell for cell in read_json(chapter)["cells"] if cell["cell_type"] == "markdown"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells)
    title = re.search(r"^# \d+\. (.+)$", text, re.MULTILINE)
    number = _section(anchor, text) or str(int(anchor[3:5]))
    return f"{number} · {title[1]}" if title else number, f"{address}chapters/{chapter.stem}.html{anchor}"


def _section(anchor: str, text: str) -> str:
    """The number of the section that follows an anchor at once, else of the one in which it stands."""
    before, found, after = text.partition(f'<a id="{anchor[1:]}"></a>')
    own = re.match(r"\s+## (\d+\.\d+) ", after)
    above = re.findall(r"^## (\d+\.\d+) ", before if found else "", re.MULTILINE)
    return own[1] if own else above[-1] if above else ""
