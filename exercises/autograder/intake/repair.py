"""Mending a submission: the assignment's cells as they were released, the student's answers as they are.

Every cell of the assignment is there once afterwards, with the released type, marks and, if locked, text. No text
of the student's gets lost: what was written into a locked cell, or into a copy, stands there as a cell of their
own, behind the cell of the assignment that it stood behind.
"""

import copy
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

from exercises.autograder.intake.cells import Cell, shown
from exercises.autograder.intake.matching import Match, Released, match

__all__ = ["repair"]

MARKS = ("grade", "locked", "points", "solution", "task")
MOST_NAMES = 8  # that a sentence lists
EARLIER = "It was begun with an earlier version of the assignment, which counts as well."

# A cell of the notebook in the making: its grade id, or None, and what the student handed in of it, or None.
Item = tuple[str | None, Cell | None]


def repair(cells: list[Cell], released: Released) -> tuple[NotebookNode, tuple[str, ...]]:
    """A notebook that can be graded, and a sentence for each thing that was mended."""
    found = match(cells, released)
    items = list(_in_order(cells, released, found))
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(released.notebook.metadata)}
    mended = nbformat.from_dict({**made, "cells": _made(items, released)})
    nbformat.validate(mended)
    return mended, tuple(_sentences(cells, released, found))


def _in_order(cells: list[Cell], released: Released, found: Match) -> Iterator[Item]:
    """The assignment's cells in its order, behind each the student's own that stood there.

    What was written into a locked cell, or into a copy, is such a cell, too.
    """
    name_of = {cell: name for name, cell in found.cells.items()}
    copy_of = {cell: name for name, copies in found.copies.items() for cell in copies}
    own: dict[str | None, list[Cell]] = {name: [] for name in (None, *released.cells)}
    place = None
    for cell in cells:
        name = name_of.get(cell)
        place = name or place
        like = name or copy_of.get(cell)
        says_nothing_new = like is not None and (released.has(like, cell) or not cell.normalized)
        if not says_nothing_new and not (name and released.is_answer(name)):
            own[place].append(cell)
    for name in (None, *released.cells):
        yield from [(name, found.cells.get(name))] if name else []
        yield from ((None, cell) for cell in own[name])


def _made(items: list[Item], released: Released) -> list[dict]:
    """The cells of the new notebook."""
    made, runs = [], {name: cell for name, cell in items if name and name.endswith("-run")}
    for name, cell in items:
        made.append(_released_cell(name, cell, released) if name else _own_cell(cell))
        run = runs.get(str(name).removesuffix("conclusion") + "run")
        if run and cell and not released.has(name, cell):
            _add_plots(made[-1], run.attachments)
    return made


def _released_cell(name: str, cell: Cell | None, released: Released) -> dict:
    made = copy.deepcopy(released.cells[name])
    if not cell and released.is_answer(name) and made.cell_type == "code":
        made.source = ""  # or it would undo what they have written elsewhere
    if cell and released.is_answer(name) and not released.has(name, cell):
        made.source = cell.source
        if cell.attachments and made.cell_type != "code":
            made.attachments = cell.attachments
    return made


def _add_plots(conclusion: dict, plots: dict) -> None:
    """What is concluded from an experiment is read beside its plots."""
    new = {name: plot for name, plot in plots.items() if name not in conclusion.get("attachments", {})}
    if new:
        conclusion["attachments"] = {**conclusion.get("attachments", {}), **new}
        conclusion["source"] += "".join(f"\n\n![{name}](attachment:{name})" for name in new)


def _own_cell(cell: Cell) -> dict:
    made = {"cell_type": cell.type, "id": f"own-{cell.number}", "metadata": {}, "source": cell.source}
    if cell.type == "code":
        return {**made, "outputs": [], "execution_count": None}
    return {**made, "attachments": cell.attachments} if cell.attachments else made


def _sentences(cells: list[Cell], released: Released, found: Match) -> Iterator[str]:
    """What was mended, for the student."""
    known = found.cells.items()
    if any(released.has(name, cell) and cell.normalized != released.now[name] for name, cell in known):
        yield EARLIER
    for cell in cells:
        if cell.grade_id is not None and cell.grade_id not in released.cells:
            marked = f"Cell {cell.number} was marked as “{shown(cell.grade_id)}”"
            yield f"{marked}, which is no cell of the assignment; the mark was taken off."
    lost = [name for name, by in found.by.items() if by in ("id", "text")]
    if lost:
        yield f"{_listed(lost)} had lost the grader's marks and got them back."
    for name, by in found.by.items():
        if by == "place":
            taken = f"Cell {found.cells[name].number} had no marks of the grader; it was taken as {name}"
            yield f"{taken}, because of where it stands."
    for name, copies in found.copies.items():
        if copies:
            which = ", the last that was filled in," if released.is_answer(name) else ""
            counts = f"cell {found.cells[name].number}{which} counts"
            yield f"{name} was there {len(copies) + 1} times; {counts}. Other texts stay as cells of your own."
    missing = [name for name in released.cells if name not in found.cells]
    if missing:
        was = "was" if len(missing) == 1 else "were"
        yield f"{_listed(missing)} {was} missing and {was} put back."
    for name, cell in known:
        yield from _about_cell(name, cell, released, found.by[name])
    places = [found.cells[name].number for name in released.cells if name in found.cells]
    if places != sorted(places):
        yield "The assignment's cells stood in another order and were put back into their own."


def _about_cell(name: str, cell: Cell, released: Released, by: str) -> Iterator[str]:
    now = released.cells[name]
    if cell.type != now.cell_type:
        yield f"{name} was a {cell.type} cell and was turned back into a {now.cell_type} cell."
    marks = now.metadata.nbgrader
    changed = [mark for mark in MARKS if (cell.marks.get(mark) or 0) != (marks.get(mark) or 0)]
    if by == "marks" and changed:
        yield f"{name} had other marks for the grader ({', '.join(changed)}) and got its own back."
    if not released.is_answer(name) and not released.has(name, cell):
        kept = " and what you wrote there stands behind it" if cell.normalized else ""
        yield f"{name} is locked but was changed; the text was put back{kept}."


def _listed(names: list[str]) -> str:
    """A few cells by name, many by their number."""
    if len(names) > MOST_NAMES:
        return f"{len(names)} cells"
    if len(names) == 1:
        return f"The cell {names[0]}"
    return f"The cells {', '.join(names[:-1])} and {names[-1]}"
