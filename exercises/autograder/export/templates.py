"""Marks filled into what Canvas or Moodle exported, so that it can be imported there again.

**Canvas**: its import takes every column after Section for an assignment, called "Title (id)" or by a title.
https://community.instructure.com/en/kb/articles/660862-how-do-i-import-grades-in-the-gradebook and
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb say: the contents of a file
replace what Canvas has, even with nothing. So only the columns of our assignments are written; a cell without
a mark stays as it is, and so do EX (for an excused student), N/A, and what an assignment is worth.

**Moodle**: in the assignment's settings allow "Offline grading worksheet" as a type of feedback, and download it
from the list of submissions. https://github.com/moodle/moodle/tree/MOODLE_405_STABLE/mod/assign/feedback/offline
says: the required columns are named in the uploader's language. The identifier's number is a student's in
this one assignment, and is also in the files' names. Moodle silently skips a row that is above the maximum,
locked, or was marked in Moodle after the download.

A row is a student's if the platform's number, a login or an address says so; a name alone is not enough. If
several say so, they must agree: a mark in the wrong row is worse than a missing one, which is reported.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exercises.autograder.course import roster
from exercises.autograder.course.marks import Mark

NO_MARK = ("", "-")  # what platforms write for no mark
MOST_TITLES = 20  # the most titles that a message lists
KEPT = ("EX", "N/A")  # what Canvas has for students who are excused, or whose work does not count
IDENTIFIER, GRADE, CHANGED = NEEDED = ("Identifier", "Grade", "Last modified (grade)")
NAME, MAXIMUM, CHANGEABLE = "Full name", "Maximum grade", "Grade can be changed"
KNOWN = (*NEEDED, NAME, MAXIMUM, CHANGEABLE, *roster.MOODLE, "Student ID")
People = dict[int, roster.Enrolled]  # students by row number
DECIMALS = 5  # decimals that Moodle keeps; Canvas shows two


@dataclass(frozen=True)
class Exported:
    """A table, and what a person should know about it."""

    # The CSV. Excel reads UTF-8 only after a byte order mark ("utf-8-sig"), which Moodle removes; Canvas does
    # not, and then does not recognise the column LastName.
    data: bytes
    # Students with a mark that is not in it, as no row of the template is surely theirs
    unmatched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # a sentence for each thing to look at


def number(value: float) -> str:
    """A number as people write it: 7.5, and 8 rather than 8.0."""
    text = f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def to_csv(rows: Iterable[list[str]], delimiter: str = ",") -> str:
    """CSV with the cells as they are; lines end as RFC 4180 requires."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def canvas(
    marks: dict[str, list[Mark]], template: str, columns: Mapping[str, str], missing_as_zero: bool
) -> Exported:
    """Canvas's export with only the columns of our assignments, filled in.

    Raises:
        ValueError: if it is not a gradebook of Canvas, or does not have exactly one column for an assignment.
    """
    found = roster.sheet(template)
    has_name = {"Student"} <= set(found.header) or {"LastName", "FirstName"} <= set(found.header)
    if not has_name or not {"ID", "Section"} <= set(found.header):
        expected = "Canvas's gradebook, with the columns Student, ID and Section"
        other = f"or Moodle's grading worksheet, with {IDENTIFIER} (--column names it in another language)"
        raise ValueError(f"template: expected {expected}, {other}; got {', '.join(found.header[:8])}")
    first = found.header.index("Section") + 1
    where = _titles(marks, found.header, first, columns)
    people = roster.students(found, roster.CANVAS)
    unmatched, notes = [], []
    for name, those in marks.items():
        column = where[name]
        worth = next((row[column] for row in found.rows if roster.WORTH in row[0]), "")
        cells = {n: found.rows[n][column].strip() for n in people}
        kept = {n: f"is {cell} in Canvas and stays so" for n, cell in cells.items() if cell in KEPT}
        without_row, said = _enter(found, name, column, those, people, kept, missing_as_zero)
        unmatched += without_row
        notes += _other_worth(name, those, worth, "Canvas") + said
    rows = [[row[n] for n in (*range(first), *where.values())] for row in (found.header, *found.rows)]
    data = to_csv(rows, found.delimiter).encode()
    return Exported(data, tuple(dict.fromkeys(unmatched)), tuple(dict.fromkeys(notes)))


def _titles(
    assignments: Iterable[str], header: list[str], first: int, columns: Mapping[str, str]
) -> dict[str, int]:
    """The column of each assignment; `columns` has its title there, unless that has the same letters."""
    assignments, found = list(assignments), {}
    if unknown := [name for name in columns if name not in assignments]:
        raise ValueError(f"--column: expected one of {', '.join(assignments)}, got {unknown[0]}")
    titles = {n: re.sub(r" \(\d+\)$", "", header[n]) for n in range(first, len(header))}
    for name in assignments:
        wanted = columns.get(name, name)
        those = [n for n, title in titles.items() if wanted in (title, header[n])]
        those = those or [n for n, title in titles.items() if roster.letters(title) == roster.letters(wanted)]
        if len(those) != 1 or those[0] in found.values():
            got = ", ".join(header[n] for n in list(those or titles)[:MOST_TITLES]) or "none"
            raise ValueError(f"template: expected one column for {wanted}, got {got}; --column can name it")
        found[name] = those[0]
    return found


def moodle(
    marks: dict[str, list[Mark]], template: str, columns: Mapping[str, str], missing_as_zero: bool
) -> Exported:
    """A grading worksheet, filled in; everything else in it stays as it is.

    Raises:
        ValueError: if it is not one, or there are marks of several assignments.
    """
    if len(marks) != 1:
        raise ValueError(f"marks: expected one assignment for Moodle's worksheet, got {', '.join(marks)}")
    [(name, those)] = marks.items()
    found = roster.sheet(template)
    where = _headers(found.header, columns)
    people = roster.students(found, roster.MOODLE, where)
    most = found.rows[0][where[MAXIMUM]] if found.rows and MAXIMUM in where else ""
    kept = {
        n: "keeps the mark in Moodle, which cannot be changed there"
        for n in people
        if CHANGEABLE in where and found.rows[n][where[CHANGEABLE]].strip().casefold() == "no"
    }
    notes = _other_worth(name, those, most, "Moodle")
    above = [mark.student for mark in those if mark.submitted and mark.score > _to_number(most, mark.score)]
    if above:
        notes.append(f"{name}: Moodle will skip marks above its maximum, those of {', '.join(above)}.")
    unmatched, said = _enter(found, name, where[GRADE], those, people, kept, missing_as_zero)
    data = to_csv([found.header, *found.rows], found.delimiter).encode("utf-8-sig")
    return Exported(data, tuple(unmatched), (*notes, *said))


def _headers(header: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    """The index of each known column; versions of Moodle differ in capitals."""
    if unknown := [name for name in columns if name not in KNOWN]:
        raise ValueError(f"--column: expected one of {', '.join(KNOWN)}, got {unknown[0]}")
    indices = {name.casefold(): n for n, name in enumerate(header)}
    words = {name: columns.get(name, name).casefold() for name in KNOWN}
    where = {name: indices[word] for name, word in words.items() if word in indices}
    if missing := [columns.get(name, name) for name in NEEDED if name not in where]:
        expected = f"Moodle's grading worksheet, with {' and '.join(missing)} among its columns"
        other = "--column can name them in another language"
        raise ValueError(f"template: expected {expected}, got {', '.join(header[:8])}; {other}")
    return where


def _other_worth(name: str, marks: list[Mark], cell: str, where: str) -> list[str]:
    ours = marks[0].worth
    theirs = _to_number(cell, ours)
    if theirs == ours:
        return []
    return [f"{name}: worth {number(ours)} here, but {number(theirs)} in {where}; points were not scaled."]


def _enter(
    found: roster.Sheet,
    name: str,
    column: int,
    marks: list[Mark],
    people: People,
    kept: dict[int, str],
    missing_as_zero: bool,
) -> tuple[list[str], list[str]]:
    """Write an assignment's marks into a template; return students without a row, and notes for a person.

    A row without a mark stays as it is: an empty cell could take away a mark that somebody gave by hand. Nor
    does it get 0 while any student's row was not found, since it may be that row, or while a file of theirs
    waits for a person. `kept` says for further rows why their marks stay.
    """
    places, unmatched, notes = _match(marks, people)
    replaced, left = 0, 0
    for n in people:
        cell, mark = found.rows[n][column].strip(), places.get(n)
        score = mark.score if mark and mark.submitted else None
        if score is None and missing_as_zero and cell in NO_MARK:
            is_sure = not mark.set_aside if mark else not unmatched
            score, left = (0.0, left) if is_sure else (None, left + 1)
        if score is not None and n in kept:
            notes.append(f"{name}: {mark.student if mark else f'row {n + 2}'} {kept[n]}.")
        elif score is not None:
            replaced += cell not in NO_MARK and _to_number(cell) != _to_number(number(score))
            found.rows[n][column] = number(score)
    if replaced:
        notes.append(f"{name}: other marks have replaced {replaced} of those in the template.")
    if left:
        notes.append(f"{name}: {left} rows without a mark got no 0: see not_graded.json and this list.")
    return unmatched, notes


def _to_number(cell: str, otherwise: float | None = None) -> float | None:
    """The number in a cell, if there is one; some languages use a decimal comma."""
    try:
        return float(cell.strip().replace(",", "."))
    except ValueError:
        return otherwise


# ---- Whose row it is


def _match(marks: list[Mark], people: People) -> tuple[dict[int, Mark], list[str], list[str]]:
    """An assignment's marks by row number, the students without a row, and notes on what to look at."""
    rows: dict[int, list[Mark]] = {}
    unmatched, notes = [], []
    for mark in marks:
        those = _rows(mark, people)
        if len(those) == 1:
            rows.setdefault(those[0], []).append(mark)
        elif mark.submitted:
            unmatched.append(mark.student)
            if those:
                listed = " and ".join(str(row + 2) for row in those)  # as a spreadsheet counts, with a header
                notes.append(f"{mark.student}: rows {listed} match, by number or login; no mark was entered.")
    places = {}
    for row, those in rows.items():
        submitted = [mark for mark in those if mark.submitted]
        if len(submitted) > 1:
            ids = [mark.student for mark in submitted]
            unmatched += ids
            notes.append(f"{' and '.join(ids)} match the same row, {row + 2}; no mark was entered.")
        else:
            places[row] = (submitted or those)[0]
    return places, unmatched, notes


def _rows(mark: Mark, people: People) -> list[int]:
    """The rows of a student, by number or login."""
    logins = {text.casefold() for text in (mark.student, mark.email, mark.lms_user_id) if text}
    return [n for n, one in people.items() if roster.is_named_after(mark.student, one) or one.logins & logins]
