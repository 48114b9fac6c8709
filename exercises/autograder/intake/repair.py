"""Repairing a submission: the assignment's cells as they were released, the student's answers as they are.

A cell is known by the grader's metadata or by its id, even if names were lost, changed or copied; a locked
cell also by its text; an answer also by its place, between the cells that were around the released one.
Afterwards every cell of the assignment is there once, with the released type, metadata and, if locked, text.
No text of the student's gets lost: what was written into a locked cell, or into a copy, becomes a cell of
their own, after the cell of the assignment that it came after.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output

from exercises.autograder.intake.cells import FRESH, CannotBeGraded, Cell, normalize_source
from transformer_lessons.tools.submission import grade_id

MARKS = ("grade", "locked", "points", "solution", "task")
MOST_NAMES = 8  # the most that a sentence lists
EARLIER = "It was begun with an earlier version of the assignment, which counts as well."


# ---- Which assignment it is, and which cell is which


def cells_by_id(released: NotebookNode) -> dict[str, NotebookNode]:
    """The cells of an assignment that the grader knows, by grade id, in order."""
    return {grade_id(cell): cell for cell in released.cells if grade_id(cell)}


def is_answer(released: NotebookNode) -> bool:
    """Whether an answer belongs in a released cell."""
    return not released.metadata.nbgrader.locked


class Released:
    """An assignment: its cells as they are handed out now, by grade id, and each text that these have had.

    Versions that were handed out earlier count as well.
    """

    def __init__(self, notebook: NotebookNode, *earlier: NotebookNode):
        self.notebook, self.cells = notebook, cells_by_id(notebook)
        self.answers = {name for name, cell in self.cells.items() if is_answer(cell)}
        self.now = {name: normalize_source(cell.source) for name, cell in self.cells.items()}
        self._texts = {name: {text} for name, text in self.now.items()}
        # Cells that were released for trying things out.
        self.trials: set[str] = set()
        for version in (notebook, *earlier):
            self.trials |= {normalize_source(cell.source) for cell in version.cells if not grade_id(cell)}
            for name, cell in cells_by_id(version).items():
                self._texts.get(name, set()).add(normalize_source(cell.source))
        self._given = {""} | self.trials | set().union(*self._texts.values())

    def is_blank(self, notebook: NotebookNode) -> bool:
        """Whether nothing in a repaired notebook was written by the student."""
        return all(normalize_source(cell.source) in self._given for cell in notebook.cells)

    def matches(self, name: str, cell: Cell) -> bool:
        """Whether a cell's text is as it was released, apart from what editors change by themselves."""
        return cell.normalized in self._texts[name]

    def tokens(self) -> Iterator[str]:
        """What distinguishes it from other assignments: the names of cells, and the texts of locked ones."""
        for name, texts in self._texts.items():
            yield from {name} if name in self.answers else {name, *texts}


class Catalogue:
    """The assignments of a course: by name, as handed out now and then as earlier; no master is among them."""

    def __init__(self, versions: Mapping[str, list[NotebookNode]]):
        self.assignments = {name: Released(*those) for name, those in versions.items()}
        found: dict[str, set[str]] = {}
        for name, released in self.assignments.items():
            for key in released.tokens():
                found.setdefault(key, set()).add(name)
        # Some texts, such as the setup's, are in several assignments.
        self._owners = {key: min(those) for key, those in found.items() if len(those) == 1}

    def assignment_of(self, cells: list[Cell], claimed: Collection[str]) -> tuple[str, list[str]]:
        """The assignment to which most cells belong, each judged by its name or else its text; and others.

        Args:
            cells: the cells of the notebook.
            claimed: the assignments that its file and folder name; they decide where the cells do not.

        Raises:
            CannotBeGraded: if there is none, or several are likely.
        """
        # A set, because copies of a cell say nothing more.
        keys = {
            next((name for name in (cell.grade_id, *cell.ids) if name in self._owners), cell.normalized)
            for cell in cells
        }
        votes = Counter(self._owners[key] for key in keys if key in self._owners)
        if not votes:
            here = f"an assignment that is graded here ({', '.join(self.assignments)})"
            raise CannotBeGraded(f"The notebook contains no cell of {here}. {FRESH}")
        # Somebody may have copied a helper from another assignment, but not half of it.
        likely = [name for name, number in votes.most_common() if 2 * number > max(votes.values())]
        confirmed = [name for name in likely if name in claimed] if len(likely) > 1 else likely
        if len(confirmed) != 1:
            both = " and ".join(likely)
            raise CannotBeGraded(f"The notebook contains cells of {both}. Hand in one notebook for each.")
        return confirmed[0], [name for name in votes if name != confirmed[0] and votes[name] > 1]


def _match_cells(cells: list[Cell], released: Released) -> dict[str, Cell]:
    """Recognise the cells of a submission, given in its order; return those that count, by grade id."""
    found: dict[str, Cell] = {}
    for cell in cells:
        known = (name for name in (cell.grade_id, *cell.ids) if name in released.cells)
        cell.name = next(known, None)
        cell.matched_by = "marks" if cell.name == cell.grade_id else "id"
    for name in released.cells:
        if copies := [cell for cell in cells if cell.name == name]:
            found[name] = _choose_copy(copies, name, released)

    def take(name: str, fitting: list[Cell], matched_by: str) -> None:
        if fitting:
            cell = found[name] = fitting[0]
            cell.name, cell.matched_by = name, matched_by
            rest.remove(cell)

    # What was released for trying things out is not an answer, wherever it is.
    rest = [cell for cell in cells if not cell.name and cell.normalized not in released.trials]
    missing = [name for name in released.cells if name not in found]
    for name in missing:
        if name not in released.answers:
            take(name, [cell for cell in rest if released.matches(name, cell)], "text")
    for name in missing:
        if name in released.answers:
            in_place = _in_place(name, rest, released, found)
            take(name, sorted(in_place, key=partial(released.matches, name)), "place")
    return found


def _choose_copy(copies: list[Cell], name: str, released: Released) -> Cell:
    """The copy that counts: of an answer the last filled in, of a locked cell the first unchanged."""
    if name in released.answers:
        filled = [cell for cell in copies if cell.normalized and not released.matches(name, cell)]
        return filled[-1] if filled else copies[0]
    return next((cell for cell in copies if released.matches(name, cell)), copies[0])


def _in_place(name: str, rest: list[Cell], released: Released, found: dict[str, Cell]) -> list[Cell]:
    """The cells of the same type, not blank, between those that were before and after a released one.

    One of its two neighbours must be recognised, or its place cannot be known.
    """
    names = list(released.cells)
    number = names.index(name)
    if not {*names[:number][-1:], *names[number + 1 :][:1]} & found.keys():
        return []
    places = [found[other].number if other in found else 0 for other in names]
    after = next((place for place in reversed(places[:number]) if place), 0)
    before = next((place for place in places[number + 1 :] if place > after), float("inf"))
    same = [cell for cell in rest if cell.type == released.cells[name].cell_type and cell.normalized]
    return [cell for cell in same if after < cell.number < before]


# ---- The repaired notebook


def repair_notebook(cells: list[Cell], released: Released) -> tuple[NotebookNode, tuple[str, ...]]:
    """A notebook that can be graded, and a sentence for each thing that was repaired."""
    found = _match_cells(cells, released)
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(released.notebook.metadata)}
    notebook = nbformat.from_dict({**made, "cells": list(_repaired_cells(cells, released, found))})
    nbformat.validate(notebook)
    return notebook, tuple(_sentences(cells, released, found))


def _repaired_cells(cells: list[Cell], released: Released, found: dict[str, Cell]) -> Iterator[dict]:
    """The assignment's cells in its order, each followed by the student's own that were there.

    What was written into a locked cell, or into a copy, is such a cell, too.
    """
    own: dict[str | None, list[Cell]] = {name: [] for name in (None, *released.cells)}
    place = None
    for cell in cells:
        counts = found.get(cell.name) is cell
        place = cell.name if counts else place
        says_nothing_new = cell.name and (released.matches(cell.name, cell) or not cell.normalized)
        if not says_nothing_new and not (counts and cell.name in released.answers):
            own[place].append(cell)
    for name, theirs in own.items():
        yield from [_released_cell(name, found.get(name), released)] if name else []
        yield from map(_student_cell, theirs)


def _released_cell(name: str, cell: Cell | None, released: Released) -> dict:
    made = copy.deepcopy(released.cells[name])
    if not cell and name in released.answers and made.cell_type == "code":
        made.source = ""  # otherwise it would undo what they have written elsewhere
    if cell and name in released.answers and not released.matches(name, cell):
        made.source = cell.source
    if cell and made.cell_type == "code" and name.endswith("-run"):
        # An experiment is not run again; a person reads what is concluded from its plots.
        made.outputs = [new_output("display_data", data=plot) for plot in cell.plots]
    return made


def _student_cell(cell: Cell) -> dict:
    made = {"cell_type": cell.type, "id": f"own-{cell.number}", "metadata": {}, "source": cell.source}
    return made | ({"outputs": [], "execution_count": None} if cell.type == "code" else {})


def _sentences(cells: list[Cell], released: Released, found: dict[str, Cell]) -> Iterator[str]:
    """Sentences for the student about what was repaired."""
    unlike = {name: cell for name, cell in found.items() if cell.normalized != released.now[name]}
    if any(released.matches(name, cell) for name, cell in unlike.items()):
        yield EARLIER
    if lost := [name for name, cell in found.items() if cell.matched_by in ("id", "text")]:
        yield f"The grader's metadata were lost and were restored: {_listed(lost)}."
    for name, cell in found.items():
        if cell.matched_by == "place":
            taken = f"Cell {cell.number} had none of the grader's metadata; it was taken as {name}"
            yield f"{taken} because of its position."
        if (copies := sum(other.name == name for other in cells)) > 1:
            is_filled = name in released.answers and not released.matches(name, cell)
            which = ", the last one filled in," if is_filled else ""
            counts = f"cell {cell.number}{which} counts"
            yield f"{name} was there {copies} times; {counts}. Other texts were kept as cells of your own."
    if missing := [name for name in released.cells if name not in found]:
        yield f"Missing cells were restored: {_listed(missing)}."
    for cell in found.values():
        yield from _about_cell(cell, released)


def _about_cell(cell: Cell, released: Released) -> Iterator[str]:
    name, now = cell.name, released.cells[cell.name]
    if cell.type != now.cell_type:
        yield f"{name} was a {cell.type} cell and was turned back into a {now.cell_type} cell."
    marks = now.metadata.nbgrader
    changed = [mark for mark in MARKS if (cell.marks.get(mark) or 0) != (marks.get(mark) or 0)]
    if cell.matched_by == "marks" and changed:
        yield f"{name}: the grader's metadata ({', '.join(changed)}) were changed and were restored."
    if name not in released.answers and not released.matches(name, cell):
        kept = " and what you wrote there is in a cell below it" if cell.normalized else ""
        yield f"{name} is locked but was changed; its text was restored{kept}."


def _listed(names: list[str]) -> str:
    """A few cells by name, many as a count."""
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} cells"
