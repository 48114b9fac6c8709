"""Marks filled into what Canvas or Moodle exported, so that it can be imported there again.

**Canvas**: its import takes every column behind Section for an assignment, called "Title (id)" or by a title.
https://community.instructure.com/en/kb/articles/660862-how-do-i-import-grades-in-the-gradebook and
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb say: what is in a file replaces
what Canvas has, even by nothing. So only the columns of our assignments are written, a cell for which there is
no mark stays as it is, and so do EX, for an excused student, N/A, and what an assignment is worth.

**Moodle**: in the assignment's settings allow "Offline grading worksheet" as a type of feedback, and download it
from the list of submissions. https://github.com/moodle/moodle/tree/MOODLE_405_STABLE/mod/assign/feedback/offline
says: the columns that it needs are called in the language of whoever uploads it. The identifier's number is of a
student in this one assignment, and also in the names of the files. Without a word a row is passed over that is
above the maximum, locked, or was marked in Moodle after the download.
"""

import re
from collections.abc import Iterable, Iterator

from exercises.autograder.course.marks import Mark
from exercises.autograder.export.matching import Matches, Person, letters, match, name_and_number, names_of
from exercises.autograder.export.tables import (
    Exported,
    Sheet,
    is_blank,
    number,
    points,
    sheet,
    waiting,
    written,
)

__all__ = ["canvas", "moodle"]

NOTHING = ("", "-")  # what platforms write for no mark
MOST_TITLES = 20  # that a message lists
WORTH = "Points Possible"
KEPT = ("EX", "N/A")
CANVAS_LOGINS = ("SIS User ID", "SIS Login ID", "Integration ID")
IDENTIFIER, GRADE, CHANGED = NEEDED = ("Identifier", "Grade", "Last modified (grade)")
NAME, MOST, OPEN = "Full name", "Maximum grade", "Grade can be changed"
MOODLE_LOGINS = ("Email address", "Username", "ID number", "Student ID")
KNOWN = (*NEEDED, NAME, MOST, OPEN, *MOODLE_LOGINS)


def canvas(
    marks: dict[str, list[Mark]], template: str, columns: dict[str, str], missing_as_zero: bool
) -> Exported:
    """What Canvas exported, with the columns of our assignments only, filled in.

    Raises:
        ValueError: if it is no gradebook of Canvas, or has no column for an assignment, or several.
    """
    found = sheet(template)
    has_name = {"Student"} <= set(found.header) or {"LastName", "FirstName"} <= set(found.header)
    if not has_name or not {"ID", "Section"} <= set(found.header):
        expected = "a gradebook exported from Canvas, with the columns Student, ID and Section"
        raise ValueError(f"template: expected {expected}, got {', '.join(found.header[:8])}")
    about = found.header.index("Section") + 1
    where = _titles(marks, found.header, about, columns)
    people = {
        n: _in_canvas(dict(zip(found.header, map(str.strip, row), strict=True)))
        for n, row in enumerate(found.rows)
        if WORTH not in row[0] and not is_blank(row[:2])  # Canvas's own rows
    }
    unmatched, notes = [], [*waiting(marks)]
    for name, those in marks.items():
        column, matches = where[name], match(those, people, by_lms_id=True)
        unmatched += matches.unmatched
        worth = next((row[column] for row in found.rows if WORTH in row[0]), "")
        kept = {n: row[column].strip() for n, row in enumerate(found.rows) if row[column].strip() in KEPT}
        kept = {n: f"is {cell} in Canvas, which stays" for n, cell in kept.items()}
        notes += [*matches.notes, *_other_worth(name, those, worth, "Canvas")]
        notes += _fill(name, found, column, people, matches, kept, missing_as_zero)
    rows = [[row[n] for n in (*range(about), *where.values())] for row in (found.header, *found.rows)]
    text = written(rows, found.delimiter)
    return Exported(text, tuple(dict.fromkeys(unmatched)), tuple(dict.fromkeys(notes)), "utf-8")


def _in_canvas(cells: dict[str, str]) -> Person:
    names = names_of(cells.get("Student") or cells.get("FirstName", ""), cells.get("LastName", ""))
    logins = {cells.get(name, "").casefold() for name in CANVAS_LOGINS}
    return Person(cells["ID"], frozenset(logins - {""}), names)


def _titles(
    assignments: Iterable[str], header: list[str], first: int, columns: dict[str, str]
) -> dict[str, int]:
    """The column of each assignment; `columns` says what it is called there, if not in the same letters."""
    assignments, found = list(assignments), {}
    if unknown := [name for name in columns if name not in assignments]:
        raise ValueError(f"columns: expected some of {', '.join(assignments)}, got {unknown[0]}")
    titles = {n: re.sub(r" \(\d+\)$", "", header[n]) for n in range(first, len(header))}
    for name in assignments:
        wanted = columns.get(name, name)
        those = [n for n, title in titles.items() if wanted in (title, header[n])]
        those = those or [n for n, title in titles.items() if letters(title) == letters(wanted)]
        if len(those) != 1 or those[0] in found.values():
            got = ", ".join(header[n] for n in list(those or titles)[:MOST_TITLES]) or "none"
            raise ValueError(f"template: expected one column for {wanted}, got {got}; `columns` can name it")
        found[name] = those[0]
    return found


def moodle(
    marks: dict[str, list[Mark]], template: str, columns: dict[str, str], missing_as_zero: bool
) -> Exported:
    """A grading worksheet, filled in; all else in it stays as it is.

    Raises:
        ValueError: if it is none, or there are marks of several assignments.
    """
    if len(marks) != 1:
        raise ValueError(f"marks: expected one assignment for a worksheet, got {', '.join(marks)}")
    [(name, those)] = marks.items()
    found = sheet(template)
    where = _headers(found.header, columns)
    cells = [{column: row[n].strip() for column, n in where.items()} for row in found.rows]
    people = {n: _in_moodle(row) for n, row in enumerate(cells)}
    matches = match(those, people, by_lms_id=False)
    most = {n: row.get(MOST, "") for n, row in enumerate(cells)}
    closed = [n for n, row in enumerate(cells) if row.get(OPEN, "").casefold() == "no"]
    notes = [*waiting(marks), *_of_another(name, those, people), *matches.notes]
    notes += _other_worth(name, those, most.get(0, ""), "Moodle")
    above = [mark.student for n, mark in matches.marks.items() if mark.score > _figure(most[n], mark.score)]
    if above:
        notes.append(f"{name}: above Moodle's maximum, and so passed over by it: {', '.join(above)}.")
    kept = dict.fromkeys(closed, "cannot be changed in Moodle and stays")
    notes += _fill(name, found, where[GRADE], people, matches, kept, missing_as_zero)
    text = written([found.header, *found.rows], found.delimiter)
    return Exported(text, tuple(matches.unmatched), tuple(notes))


def _headers(header: list[str], columns: dict[str, str]) -> dict[str, int]:
    """Where what is; versions of Moodle differ in capitals."""
    if unknown := [name for name in columns if name not in KNOWN]:
        raise ValueError(f"columns: expected some of {', '.join(KNOWN)}, got {unknown[0]}")
    there = {name.casefold(): n for n, name in enumerate(header)}
    words = {name: columns.get(name, name).casefold() for name in KNOWN}
    where = {name: there[word] for name, word in words.items() if word in there}
    if missing := [columns.get(name, name) for name in NEEDED if name not in where]:
        expected = f"a grading worksheet of Moodle, with the columns {', '.join(missing)}"
        other = "`columns` can name them in another language"
        raise ValueError(f"template: expected {expected}, got {', '.join(header[:8])}; {other}")
    return where


def _in_moodle(cells: dict[str, str]) -> Person:
    """The number is what the identifier ends with, in all languages."""
    logins = {cells.get(name, "").casefold() for name in MOODLE_LOGINS}
    number_ = re.search(r"\d*$", cells[IDENTIFIER])[0]
    return Person(number_, frozenset(logins - {""}), names_of(cells.get(NAME, "")))


def _of_another(name: str, marks: list[Mark], people: dict[int, Person]) -> Iterator[str]:
    """A worksheet does not say of which assignment it is, but the numbers in it are of that one only."""
    numbers = {name_and_number(mark.student)[1] for mark in marks} - {""}
    if numbers and not numbers & {person.number for person in people.values()}:
        yield f"{name}: the worksheet has none of the files' numbers; is it that of this assignment?"


def _other_worth(name: str, marks: list[Mark], cell: str, where: str) -> Iterator[str]:
    ours = marks[0].worth if marks else 0.0
    if marks and (there := _figure(cell, ours)) != ours:
        yield f"{name}: it is worth {number(ours)}, but {number(there)} in {where}; points were not scaled."


def _fill(
    what: str,
    found: Sheet,
    column: int,
    people: dict[int, Person],
    matches: Matches,
    kept: dict[int, str],
    missing_as_zero: bool,
) -> Iterator[str]:
    """Write marks into the rows of a template, and say what a person should know of that.

    A row without a mark stays as it is: an empty cell could take away a mark that somebody has given by hand. Nor
    is it given 0 while a student's row was not found, which may be any that is left.
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
            replaced += cell not in NOTHING and _figure(cell) != _figure(number(score))
            found.rows[n][column] = number(score)
    if replaced:
        yield f"{what}: {replaced} of the marks that were there have become other ones."
    if left:
        yield f"{what}: {left} students without a mark got no 0, as not all marks found their row."


def _figure(cell: str, otherwise: float | None = None) -> float | None:
    """The number in a cell, if there is one; some languages have a comma in it."""
    try:
        return float(cell.strip().replace(",", "."))
    except ValueError:
        return otherwise
