"""Filling in a template: which column, and what becomes of what stands there already."""

import re
from collections.abc import Iterable, Iterator

from exercises.autograder.export.matching import Matches, Person, letters
from exercises.autograder.export.sheets import Sheet, number
from exercises.autograder.export.tables import points

__all__ = ["column_of", "figure", "fill"]

NOTHING = ("", "-")  # what platforms write for no mark
MOST_TITLES = 20  # that a message lists


def column_of(
    assignments: Iterable[str], header: list[str], first: int, columns: dict[str, str]
) -> dict[str, int]:
    """The column of each assignment in a gradebook of Canvas, which has "Title (id)" or a title there.

    Args:
        assignments: our names.
        header: of the template.
        first: the first column that can be one.
        columns: what an assignment is called there, if not as here but for spaces and the like.

    Raises:
        ValueError: if there is none, or several, or one for two assignments.
    """
    assignments = list(assignments)
    if unknown := [name for name in columns if name not in assignments]:
        raise ValueError(f"columns: expected some of {', '.join(assignments)}, got {unknown[0]}")
    found: dict[str, int] = {}
    for name in assignments:
        wanted = columns.get(name, name)
        those = _called(wanted, header, first)
        if len(those) != 1 or those[0] in found.values():
            got = ", ".join(header[n] for n in (those or range(first, len(header)))[:MOST_TITLES]) or "none"
            raise ValueError(f"template: expected one column for {wanted}, got {got}; `columns` can name it")
        found[name] = those[0]
    return found


def _called(wanted: str, header: list[str], first: int) -> list[int]:
    """The columns with a title: as it is written, or else in the same letters and digits."""
    titles = {n: re.sub(r" \(\d+\)$", "", header[n]) for n in range(first, len(header))}
    exact = [n for n, title in titles.items() if wanted in (title, header[n])]
    return exact or [n for n, title in titles.items() if letters(title) == letters(wanted)]


def fill(
    what: str,
    found: Sheet,
    column: int,
    people: dict[int, Person],
    matches: Matches,
    kept: dict[int, str],
    missing_as_zero: bool,
) -> Iterator[str]:
    """Write marks into the rows of a template, and say what a person should know of that.

    A row without a mark stays as it is: an empty cell could take away a mark that somebody has given by hand.

    Args:
        what: the assignment.
        found: the template, which is changed.
        column: where the marks go.
        people: by row.
        matches: the marks by row.
        kept: rows that do not change, and why.
        missing_as_zero: give 0 to who has handed in nothing, where there is no mark yet. If a student's row was
            not found, it may be any that is left, and these get none.
    """
    replaced, left = 0, 0
    for n in people:
        cell, mark = found.rows[n][column].strip(), matches.marks.get(n)
        has_none = missing_as_zero and cell in NOTHING
        score = points(mark, has_none and (mark is not None or not matches.unmatched))
        left += has_none and score is None
        if score is not None and n in kept:
            yield f"{what}: {mark.student if mark else f'row {n + 2}'} {kept[n]}."
        elif score is not None:
            replaced += cell not in NOTHING and figure(cell) != figure(number(score))
            found.rows[n][column] = number(score)
    if replaced:
        yield f"{what}: {replaced} of the marks that were there have become other ones."
    if left:
        yield f"{what}: {left} students without a mark got no 0, as not all marks found their row."


def figure(cell: str) -> float | None:
    """The number in a cell, None if there is none; some languages have a comma in it."""
    try:
        return float(cell.strip().replace(",", "."))
    except ValueError:
        return None
