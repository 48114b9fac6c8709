"""Which cell of a submission is which cell of the assignment, though names were lost, changed or copied.

A cell is known by the grader's marks or by its id; a locked cell also by its text; an answer also by the names
that it defines and, at last, by its place: between the cells that stood around the released one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbformat import NotebookNode

from exercises.autograder.intake.cells import Cell, bare
from transformer_lessons.tools.submission import grade_id

__all__ = ["Match", "is_answer", "match", "named", "same"]


@dataclass
class Match:
    """What was recognised.

    Attributes:
        cells: the cell that stands for each released one, by grade id.
        by: how it was recognised: "marks", "id", "text", "definition" or "place".
        copies: by grade id, the other cells with the same name.
    """

    cells: dict[str, Cell] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    copies: dict[str, list[Cell]] = field(default_factory=dict)

    def take(self, name: str, fitting: list[Cell], rest: list[Cell], by: str) -> None:
        """The first of the cells that fit, if any do, is no longer among the rest."""
        if fitting:
            self.cells[name], self.by[name] = fitting[0], by
            rest.remove(fitting[0])


def named(released: NotebookNode) -> dict[str, NotebookNode]:
    """The cells of an assignment that the grader knows, by grade id, in their order."""
    return {grade_id(cell): cell for cell in released.cells if grade_id(cell)}


def is_answer(released: NotebookNode) -> bool:
    """Whether a released cell is where an answer belongs."""
    return not released.metadata.nbgrader.locked


def same(cell: Cell, released: NotebookNode) -> bool:
    """Whether a text is as released, but for what editors change of themselves."""
    return cell.bare == bare(released.source)


def match(cells: list[Cell], released: NotebookNode) -> Match:
    """Recognise the cells of a submission.

    Args:
        cells: of the submission, in its order.
        released: the assignment as it was handed out.
    """
    known, found = named(released), Match()
    _by_name(cells, known, found)
    # What was released for trying things out is no answer, wherever it stands.
    trials = {bare(cell.source) for cell in released.cells if not grade_id(cell)}
    rest = [cell for cell in cells if not _claimed(cell, known) and cell.bare not in trials]
    _by_text(rest, known, found)
    _by_definition(rest, known, found)
    _by_place(rest, known, found)
    return found


def _claimed(cell: Cell, known: dict) -> str | None:
    """The released cell that a cell's marks, or else its id, say it is."""
    return next((name for name in (cell.grade_id, *cell.ids) if name in known), None)


def _by_name(cells: list[Cell], known: dict, found: Match) -> None:
    for name, released in known.items():
        claiming = [cell for cell in cells if _claimed(cell, known) == name]
        if claiming:
            cell = _that_counts(claiming, released)
            found.cells[name] = cell
            found.by[name] = "marks" if cell.grade_id == name else "id"
            found.copies[name] = [copy for copy in claiming if copy is not cell]


def _that_counts(copies: list[Cell], released: NotebookNode) -> Cell:
    """Of copies of an answer the last that was filled in; of a locked cell the first that was not changed."""
    if is_answer(released):
        filled = [cell for cell in copies if cell.bare and not same(cell, released)]
        return filled[-1] if filled else copies[0]
    return next((cell for cell in copies if same(cell, released)), copies[0])


def _missing(known: dict, found: Match, *, answers: bool) -> Iterator[tuple[str, NotebookNode]]:
    for name, released in known.items():
        if name not in found.cells and is_answer(released) == answers:
            yield name, released


def _by_text(rest: list[Cell], known: dict, found: Match) -> None:
    """Locked cells whose text is still there."""
    for name, released in _missing(known, found, answers=False):
        text = bare(released.source)
        found.take(name, [cell for cell in rest if cell.bare == text], rest, "text")


def _by_definition(rest: list[Cell], known: dict, found: Match) -> None:
    """Answers that define what was to be defined; of several the last, which is in force at the end."""
    defines = {cell: defined(cell.source) for cell in rest}
    for name, released in _missing(known, found, answers=True):
        wanted = defined(released.source) if released.cell_type == "code" else set()
        found.take(name, [cell for cell in reversed(rest) if defines[cell] & wanted], rest, "definition")


def defined(source: str) -> set[str]:
    """The functions, classes and variables that a cell defines at its left margin.

    A pitfall: an answer need not be valid Python, so only the beginnings of its lines are looked at.
    """
    definitions = re.findall(r"^(?:async +)?(?:def|class) +(\w+)", source, re.MULTILINE)
    return {*definitions, *re.findall(r"^(\w+) *(?::[^=\n]*)?=(?!=)", source, re.MULTILINE)}


def _by_place(rest: list[Cell], known: dict, found: Match) -> None:
    """Answers that stand where the released ones stood, filled in if possible and never blank.

    One of the released cells beside must be recognised, or there is no telling where that is.
    """
    names = list(known)
    for name, released in _missing(known, found, answers=True):
        number = names.index(name)
        after, before = _neighbours(names, number, found)
        beside = {*names[:number][-1:], *names[number + 1 :][:1]}
        between = [cell for cell in rest if after < cell.number < before and beside & found.cells.keys()]
        fitting = [cell for cell in between if cell.type == released.cell_type and cell.bare]
        fitting.sort(key=lambda cell, released=released: same(cell, released))
        found.take(name, fitting, rest, "place")


def _neighbours(names: list[str], number: int, found: Match) -> tuple[float, float]:
    """Where in the file the nearest recognised cells before and after a released one stand."""
    places = [found.cells[name].number if name in found.cells else None for name in names]
    after = next((place for place in reversed(places[:number]) if place), 0)
    before = next((place for place in places[number + 1 :] if place and place > after), float("inf"))
    return after, before
