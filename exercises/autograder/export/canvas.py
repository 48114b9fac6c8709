"""The gradebook of Canvas.

Its import knows students by the columns Student, ID, SIS User ID and SIS Login ID, wants a column Section behind
these, and takes every later one for an assignment, called "Title (id)" or just by a title; a title that it does
not know becomes a new assignment. So the sure way is to export the gradebook from Canvas and have that filled in:
https://community.instructure.com/en/kb/articles/660862-how-do-i-import-grades-in-the-gradebook
https://community.instructure.com/en/kb/articles/660866-how-do-i-export-grades-in-the-gradebook
The rest is said by the program itself:
https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb

- Whatever is in a file replaces what Canvas has, even by nothing. So only the columns of our assignments are
  written, a cell for which there is no mark stays as it is, and what somebody has graded in Canvas since the
  export is at risk: Canvas shows all changes before it makes them.
- EX stands for an excused student and N/A for an assignment that is not for them. Both stay.
- The row "Points Possible" could change what an assignment is worth; it stays as well.
"""

from collections.abc import Iterator

from exercises.autograder.course.marks import Mark
from exercises.autograder.export.filling import column_of, figure, fill
from exercises.autograder.export.matching import Person, match, name_and_number, names_of
from exercises.autograder.export.sheets import Cell, Exported, Sheet, is_blank, number, sheet, table, written
from exercises.autograder.export.tables import by_student, points, waiting

__all__ = ["filled", "plain"]

ENCODING = "utf-8"
COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
NAMES = ({"Student"}, {"LastName", "FirstName"})  # an instructor chooses one
WORTH = "Points Possible"
KEPT = ("EX", "N/A")
UNSURE = (
    "Canvas: a title that it does not know becomes a new assignment, and the column ID has the numbers that the "
    "students' files had; look at what it shows before it imports. With a template both are sure."
)


def plain(marks: dict[str, list[Mark]], missing_as_zero: bool) -> Exported:
    """The columns that Canvas demands, and one for each assignment; who has no mark at all is left out."""
    rows: list[list[Cell]] = []
    for mark, of in by_student(marks):
        given = [points(of.get(name), missing_as_zero) for name in marks]
        if any(one is not None for one in given):
            rows.append([*_identity(mark), *given])
    worth = [those[0].worth if those else None for those in marks.values()]
    head = [[*COLUMNS, *marks], [f"    {WORTH}", *[None] * (len(COLUMNS) - 1), *worth]]
    return Exported(table([*head, *rows]), (), (*waiting(marks), UNSURE), ENCODING)


def _identity(mark: Mark) -> list[Cell]:
    """Name, Canvas' number, the school's, login; Canvas looks for them in this order, for the name last."""
    name, number_ = name_and_number(mark.student)
    full = ", ".join(filter(None, (mark.last_name, mark.first_name))) or name
    identity = number_ or (mark.lms_user_id if mark.lms_user_id.isdecimal() else "")
    school = "" if mark.lms_user_id == identity else mark.lms_user_id
    return [full, identity, school, mark.email or ("" if number_ else mark.student), ""]


def filled(
    marks: dict[str, list[Mark]], template: str, columns: dict[str, str], missing_as_zero: bool
) -> Exported:
    """What Canvas exported, with the columns of our assignments only, filled in.

    Raises:
        ValueError: if it is no gradebook of Canvas, or has no column for an assignment, or several.
    """
    found = sheet(template)
    about = _about(found.header)
    where = column_of(marks, found.header, about, columns)
    people = {n: _person(found, row) for n, row in enumerate(found.rows) if not _is_no_student(row)}
    unmatched, notes = [], [*waiting(marks)]
    for name, those in marks.items():
        matches = match(those, people, by_lms_id=True)
        unmatched += matches.unmatched
        notes += matches.notes
        notes += _worth(name, found, where[name], those)
        notes += fill(name, found, where[name], people, matches, _kept(found, where[name]), missing_as_zero)
    rows = [[row[n] for n in (*range(about), *where.values())] for row in (found.header, *found.rows)]
    text = written(rows, found.delimiter)
    return Exported(text, tuple(dict.fromkeys(unmatched)), tuple(dict.fromkeys(notes)), ENCODING)


def _about(header: list[str]) -> int:
    """How many columns say who somebody is."""
    if "Section" in header and "ID" in header and any(names <= set(header) for names in NAMES):
        return header.index("Section") + 1
    expected = "a gradebook exported from Canvas, with the columns Student, ID and Section"
    raise ValueError(f"template: expected {expected}, got {', '.join(header[:8])}")


def _is_no_student(row: list[str]) -> bool:
    """Canvas' own rows, below the header: what assignments are worth, and which are posted by hand."""
    return WORTH in row[0] or is_blank(row[:2])


def _person(found: Sheet, row: list[str]) -> Person:
    cells = {name: cell.strip() for name, cell in zip(found.header, row, strict=True)}
    logins = {cells.get(name, "").casefold() for name in ("SIS User ID", "SIS Login ID", "Integration ID")}
    names = names_of(cells.get("Student") or cells.get("FirstName", ""), cells.get("LastName", ""))
    return Person(cells["ID"], frozenset(logins - {""}), names)


def _kept(found: Sheet, column: int) -> dict[int, str]:
    cells = {n: row[column].strip() for n, row in enumerate(found.rows)}
    return {n: f"is {cell} in Canvas, which stays" for n, cell in cells.items() if cell in KEPT}


def _worth(name: str, found: Sheet, column: int, marks: list[Mark]) -> Iterator[str]:
    there = next((figure(row[column]) for row in found.rows if WORTH in row[0]), None)
    ours = marks[0].worth if marks else None
    if None not in (there, ours) and there != ours:
        yield f"{name}: it is worth {number(ours)}, but {number(there)} in Canvas; points were not scaled."
