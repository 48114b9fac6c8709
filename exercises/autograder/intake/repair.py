"""Mending a submission: the assignment's cells as they were released, the student's answers as they are.

Every cell of the assignment is there once afterwards, with the released type, marks and, if locked, text. No text
of the student's gets lost: what was written into a locked cell, or into a copy, stands there as a cell of their
own. The student's order stays, but a test never stands before what it tests.
"""

import copy
import itertools
import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

from exercises.autograder.intake.cells import Cell, cells_of
from exercises.autograder.intake.contents import CannotBeGraded
from exercises.autograder.intake.matching import Match, is_answer, match, named, same
from exercises.autograder.intake.words import about_contents, about_names

__all__ = ["CannotBeGraded", "repair"]

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
    items = list(_in_their_order(cells, known, found))
    _put_back(items, known)
    moved = _move_tests(items, known)
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(released.metadata)}
    mended = nbformat.from_dict({**made, "cells": _made(items, known)})
    nbformat.validate(mended)
    return mended, (*notes, *about_names(cells, known, found), *about_contents(known, found, moved))


def _in_their_order(cells: list[Cell], known: dict, found: Match) -> Iterator[Item]:
    """The student's cells; behind a locked cell that was changed, its text as a cell of their own."""
    name_of = {cell: name for name, cell in found.cells.items()}
    copy_of = {cell: name for name, copies in found.copies.items() for cell in copies}
    for cell in cells:
        name = name_of.get(cell)
        like = name or copy_of.get(cell)
        says_nothing_new = like is not None and (same(cell, known[like]) or not cell.bare)
        if name:
            yield name, cell
        if not says_nothing_new and not (name and is_answer(known[name])):
            yield None, cell


def _put_back(items: list[Item], known: dict) -> None:
    """Each missing cell behind the one before it, and behind the cells of the student's own there.

    But an answer's place is before these: what it raises or defines as released must not undo what they define.
    """
    before = None
    for name, released in known.items():
        if all(name != there for there, _ in items):
            items.insert(_behind(items, before, past_own=not is_answer(released)), (name, None))
        before = name


def _behind(items: list[Item], name: str | None, *, past_own: bool) -> int:
    """The place behind a cell; of None, at the start."""
    place = 0 if name is None else 1 + [there for there, _ in items].index(name)
    while past_own and place < len(items) and items[place][0] is None:
        place += 1
    return place


def _is_test(released: NotebookNode) -> bool:
    return released.metadata.nbgrader.grade and not is_answer(released)


def _move_tests(items: list[Item], known: dict) -> list[str]:
    """Put tests that stand before an answer they are about behind it; their names."""
    moved = []
    # From the last: two tests of one answer, put behind it one after the other, would change places.
    for test, answers in reversed(_tested(known).items()):
        places = {name: place for place, (name, _) in enumerate(items) if name}
        last = max(answers, key=places.__getitem__, default=test)
        if places[test] < places[last]:
            item = items.pop(places[test])
            items.insert(_behind(items, last, past_own=True), item)
            moved.append(test)
    return moved[::-1]


def _tested(known: dict) -> dict[str, list[str]]:
    """Of each test, the answers that it is about: those since the tests before it."""
    tested: dict[str, list[str]] = {}
    answers: list[str] = []
    is_new = True
    for name, released in known.items():
        if is_answer(released):
            answers = [name] if is_new else [*answers, name]
            is_new = False
        elif _is_test(released):
            tested[name], is_new = answers, True
    return tested


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
    made = {"cell_type": cell.type, "metadata": cell.metadata, "source": cell.source}
    made["id"] = next(name for name in ids if name not in taken)
    taken.add(made["id"])
    if cell.type == "code":
        return {**made, "outputs": [], "execution_count": None}
    return {**made, "attachments": cell.attachments} if cell.attachments else made
