"""Mending a submission: the assignment's cells as they were released, the student's answers as they are.

Every cell of the assignment is there once afterwards, with the released type, marks and, if locked, text. No text
of the student's gets lost: what was written into a locked cell, or into a copy, stands there as a cell of their
own, behind the cell of the assignment that it stood behind.
"""

import copy
import itertools
import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

from exercises.autograder.intake.cells import CannotBeGraded, Cell, cells_of, normalize_source, shown
from exercises.autograder.intake.matching import Match, is_answer, match, named, same
from transformer_lessons.tools.submission import grade_id

__all__ = ["CannotBeGraded", "brought_up_to_date", "repair"]

MARKS = ("grade", "locked", "points", "solution", "task")
MOST_NAMES = 8  # that a sentence lists
REASONS = {"definition": "because of what it defines", "place": "because of where it stands"}

# A cell of the notebook in the making: its grade id, or None, and what the student handed in of it, or None.
Item = tuple[str | None, Cell | None]


def repair(notebook: dict, released: NotebookNode) -> tuple[NotebookNode, tuple[str, ...]]:
    """A notebook that can be graded, and a sentence for each thing that was mended.

    Args:
        notebook: what the submitted file holds, as JSON.
        released: the assignment as it was handed out.

    Raises:
        CannotBeGraded: if the file is no notebook.
    """
    cells, notes = cells_of(notebook)
    known, found = named(released), match(cells, released)
    items = list(_in_order(cells, known, found))
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(released.metadata)}
    mended = nbformat.from_dict({**made, "cells": _made(items, known)})
    nbformat.validate(mended)
    return mended, (*notes, *_sentences(cells, known, found))


def brought_up_to_date(mended: NotebookNode, old: NotebookNode, new: NotebookNode) -> NotebookNode:
    """A submission of an earlier version as one of the present: answers stay, all else is as it is now.

    Both have the same cells: nbgrader takes care of that once there are marks.
    """
    before, now = named(old), named(new)
    for place, cell in enumerate(mended.cells):
        name = grade_id(cell)
        if name in now:
            made = copy.deepcopy(now[name])
            given = normalize_source(before[name].source) if name in before else None
            if is_answer(made) and given not in (None, normalize_source(cell.source)):
                made.source = cell.source
                made |= {"attachments": cell.attachments} if "attachments" in cell else {}
            mended.cells[place] = made
    return mended


def _in_order(cells: list[Cell], known: dict, found: Match) -> Iterator[Item]:
    """The assignment's cells in its order, behind each the student's own that stood there.

    What was written into a locked cell, or into a copy, is such a cell, too.
    """
    name_of = {cell: name for name, cell in found.cells.items()}
    copy_of = {cell: name for name, copies in found.copies.items() for cell in copies}
    own: dict[str | None, list[Cell]] = {name: [] for name in (None, *known)}
    place = _not_undone(None, known, found)
    for cell in cells:
        name = name_of.get(cell)
        place = _not_undone(name, known, found) if name else place
        like = name or copy_of.get(cell)
        says_nothing_new = like is not None and (same(cell, known[like]) or not cell.normalized)
        if not says_nothing_new and not (name and is_answer(known[name])):
            own[place].append(cell)
    for name in (None, *known):
        yield from [(name, found.cells.get(name))] if name else []
        yield from ((None, cell) for cell in own[name])


def _not_undone(name: str | None, known: dict, found: Match) -> str | None:
    """Behind which cell the student's own go that stood behind this one.

    Behind an answer that is missing there: what it defines as released must not undo what they define.
    """
    following = dict(zip([None, *known], known, strict=False))
    while (after := following.get(name)) and after not in found.cells and is_answer(known[after]):
        name = after
    return name


def _made(items: list[Item], known: dict) -> list[dict]:
    """The cells of the new notebook."""
    taken, runs = set(known), {name: cell for name, cell in items if name and name.endswith("-run")}
    made = []
    for name, cell in items:
        made.append(_released_cell(known[name], cell) if name else _own_cell(cell, taken))
        run = runs.get(str(name).removesuffix("conclusion") + "run")
        if run and cell and made[-1]["source"] != known[name].source:
            _add_plots(made[-1], run.attachments)
    return made


def _released_cell(released: NotebookNode, cell: Cell | None) -> dict:
    made = copy.deepcopy(released)
    if cell and is_answer(released):
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


def _own_cell(cell: Cell, taken: set[str]) -> dict:
    valid = (name for name in cell.ids if re.fullmatch("[a-zA-Z0-9_-]{1,64}", name))
    ids = itertools.chain(valid, (f"own-{number}" for number in itertools.count(cell.number)))
    made = {"cell_type": cell.type, "metadata": {}, "source": cell.source}
    made["id"] = next(name for name in ids if name not in taken)
    taken.add(made["id"])
    if cell.type == "code":
        return {**made, "outputs": [], "execution_count": None}
    return {**made, "attachments": cell.attachments} if cell.attachments else made


def _sentences(cells: list[Cell], known: dict, found: Match) -> Iterator[str]:
    """What was mended, for the student."""
    for cell in cells:
        if cell.grade_id is not None and cell.grade_id not in known:
            marked = f"Cell {cell.number} was marked as “{shown(cell.grade_id)}”"
            yield f"{marked}, which is no cell of the assignment; the mark was taken off."
    lost = [name for name, by in found.by.items() if by in ("id", "text")]
    if lost:
        yield f"{_listed(lost)} had lost the grader's marks and got them back."
    for name, by in found.by.items():
        if by in REASONS:
            number = found.cells[name].number
            yield f"Cell {number} had no marks of the grader; it was taken as {name}, {REASONS[by]}."
    for name, copies in found.copies.items():
        if copies:
            which = ", the last that was filled in," if is_answer(known[name]) else ""
            counts = (
                f"{name} was there {len(copies) + 1} times; cell {found.cells[name].number}{which} counts."
            )
            yield f"{counts} Other texts stay as cells of your own."
    missing = [name for name in known if name not in found.cells]
    if missing:
        was = "was" if len(missing) == 1 else "were"
        yield f"{_listed(missing)} {was} missing and {was} put back."
    for name, cell in found.cells.items():
        yield from _about_cell(name, cell, known[name], found.by[name])
    places = [found.cells[name].number for name in known if name in found.cells]
    if places != sorted(places):
        yield "The assignment's cells stood in another order and were put back into their own."


def _about_cell(name: str, cell: Cell, released: NotebookNode, by: str) -> Iterator[str]:
    if cell.type != released.cell_type:
        yield f"{name} was a {cell.type} cell and was turned back into a {released.cell_type} cell."
    marks = released.metadata.nbgrader
    changed = [mark for mark in MARKS if (cell.marks.get(mark) or 0) != (marks.get(mark) or 0)]
    if by == "marks" and changed:
        yield f"{name} had other marks for the grader ({', '.join(changed)}) and got its own back."
    if not is_answer(released) and not same(cell, released):
        kept = " and what you wrote there stands behind it" if cell.normalized else ""
        yield f"{name} is locked but was changed; the text was put back{kept}."


def _listed(names: list[str]) -> str:
    """A few cells by name, many by their number."""
    if len(names) > MOST_NAMES:
        return f"{len(names)} cells"
    if len(names) == 1:
        return f"The cell {names[0]}"
    return f"The cells {', '.join(names[:-1])} and {names[-1]}"
