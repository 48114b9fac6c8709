"""The grading worksheet of Moodle's assignments, and the import of its gradebook.

The worksheet is the sure way: in the assignment's settings allow "Offline grading worksheet" as a type of
feedback, download it from the list of submissions, and upload it again when it is filled in:
https://docs.moodle.org/en/Assignment_settings
Its program, https://github.com/moodle/moodle/tree/MOODLE_405_STABLE/mod/assign/feedback/offline,
says:

- It needs the columns Identifier ("Participant 123456"), Grade and Last modified (grade), and looks for these
  words in the language of whoever uploads it. So in another language `columns` has to name them, or Moodle is
  used in English for the download and the upload.
- The number is of a student in this one assignment, and also in the names of the files that it hands out.
- A row with no mark is passed over. So is, without a word, one above the maximum, one that is locked, and one
  that was marked in Moodle after the download, unless the upload is told otherwise.

Without a worksheet there is the gradebook's import, https://docs.moodle.org/en/Grade_import. It knows people by
one column of the instructor's choice (address, user name or ID number), takes nothing at all if one of them is
unknown, and marks entered so can no longer be changed in the assignment. An empty cell is read as no mark, so
whoever has none at all is left out. Both remove a byte order mark.
"""

from collections.abc import Iterator

from exercises.autograder.course.marks import Mark
from exercises.autograder.export.filling import figure, fill
from exercises.autograder.export.matching import Person, match, name_and_number, names_of
from exercises.autograder.export.sheets import Exported, Sheet, number, sheet, table, written
from exercises.autograder.export.tables import by_student, points, waiting

__all__ = ["filled", "plain"]

IDENTIFIER, GRADE, CHANGED = NEEDED = ("Identifier", "Grade", "Last modified (grade)")
NAME, MOST, OPEN = "Full name", "Maximum grade", "Grade can be changed"
LOGINS = ("Email address", "Username", "ID number", "Student ID")
KNOWN = (*NEEDED, NAME, MOST, OPEN, *LOGINS)


def plain(marks: dict[str, list[Mark]], missing_as_zero: bool) -> Exported:
    """A table for the import of the gradebook, with whoever has a mark and what identifies most of them."""
    given = [
        (mark, [points(of.get(name), missing_as_zero) for name in marks]) for mark, of in by_student(marks)
    ]
    marked = [(mark, scores) for mark, scores in given if any(one is not None for one in scores)]
    column = _column([mark for mark, _ in marked])
    who = IDENTITIES[column]
    rows = [[who(mark), mark.first_name, mark.last_name, *scores] for mark, scores in marked if who(mark)]
    text = table([[column, "First name", "Last name", *marks], *rows])
    how = f"Moodle: map from “{column}” to the same, each assignment to its own, and ignore the names."
    unmatched = tuple(mark.student for mark, _ in marked if not who(mark))
    return Exported(text, unmatched, (*waiting(marks), how))


def _column(marks: list[Mark]) -> str:
    """What most have; that an id is also a user name is a guess, for when there is nothing else."""
    *sure, guess = IDENTITIES
    has = {column: sum(bool(IDENTITIES[column](mark)) for mark in marks) for column in sure}
    return max(has, key=has.get) if any(has.values()) else guess


def _user_name(mark: Mark) -> str:
    """The id, unless it is made of the name of a file."""
    return "" if name_and_number(mark.student)[1] else mark.student


# Moodle's columns that say who somebody is, and what we have for them.
IDENTITIES = {
    "Email address": lambda mark: mark.email,
    "ID number": lambda mark: mark.lms_user_id,
    "Username": _user_name,
}


def filled(
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
    where = _columns(found.header, columns)
    people = {n: _person(row, where) for n, row in enumerate(found.rows)}
    matches = match(those, people, by_lms_id=False)
    notes = [*waiting(marks), *_another(name, those, people), *matches.notes]
    notes += _above(name, found, where, matches.marks)
    notes += fill(name, found, where[GRADE], people, matches, _locked(found, where), missing_as_zero)
    text = written([found.header, *found.rows], found.delimiter)
    return Exported(text, tuple(matches.unmatched), tuple(notes))


def _columns(header: list[str], columns: dict[str, str]) -> dict[str, int]:
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


def _person(row: list[str], where: dict[str, int]) -> Person:
    """The number is what the identifier ends with, in all languages."""
    cells = {name: row[n].strip() for name, n in where.items()}
    identifier = cells[IDENTIFIER]
    number_ = identifier[len(identifier.rstrip("0123456789")) :]
    logins = {cells.get(name, "").casefold() for name in LOGINS}
    return Person(number_, frozenset(logins - {""}), names_of(cells.get(NAME, "")))


def _another(name: str, marks: list[Mark], people: dict[int, Person]) -> Iterator[str]:
    """A worksheet does not say of which assignment it is, but the numbers in it are of that one only."""
    numbers = {name_and_number(mark.student)[1] for mark in marks} - {""}
    if numbers and not numbers & {one.number for one in people.values()}:
        yield f"{name}: the worksheet has none of the files' numbers; is it that of this assignment?"


def _locked(found: Sheet, where: dict[str, int]) -> dict[int, str]:
    if OPEN not in where:
        return {}
    no = {n for n, row in enumerate(found.rows) if row[where[OPEN]].strip().casefold() == "no"}
    return dict.fromkeys(no, "cannot be changed in Moodle and stays")


def _above(name: str, found: Sheet, where: dict[str, int], marks: dict[int, Mark]) -> Iterator[str]:
    """Of points that Moodle counts otherwise, or would pass over."""
    most = {n: figure(found.rows[n][where[MOST]]) for n in marks} if MOST in where else {}
    other = {there for n, there in most.items() if there not in (None, marks[n].worth)}
    for there in sorted(other):
        ours = number(next(iter(marks.values())).worth)
        yield f"{name}: it is worth {ours}, but {number(there)} in Moodle; points were not scaled."
    above = [marks[n].student for n, there in most.items() if there is not None and marks[n].score > there]
    if above:
        yield f"{name}: above Moodle's maximum, and so passed over by it: {', '.join(above)}."
