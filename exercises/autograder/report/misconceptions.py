"""Which known mistakes a class makes, how many make each, and where the book explains it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from exercises.autograder.result import Result
from transformer_lessons import checks
from transformer_lessons.checks.message import place

__all__ = ["BOOK", "Misconception", "misconceptions"]

BOOK = "https://transformer-lessons.github.io/transformer-lessons/"  # `make set-repository` keeps it right


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
            *_place(mistake, address),
        )
        for mistake in sorted(who, key=lambda mistake: (-len(who[mistake]), mistake))
    )


@cache
def _known(mistake: str) -> tuple[str, str] | None:
    """Name and anchor; None if the catalogue has changed since the grading."""
    task, _, name = mistake.partition("/")
    return checks.mistake(task, name) if task in checks.tasks() else None


def _name(mistake: str) -> str:
    return _known(mistake)[0] if _known(mistake) else mistake


def _place(mistake: str, address: str) -> tuple[str, str]:
    """“chapter 3.4, “Why divide by √d_k?”” and the address of that section."""
    return place(_known(mistake)[1], address) if _known(mistake) else ("", "")
