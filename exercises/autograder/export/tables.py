"""Tables for spreadsheets and programs, and what all tables say of marks."""

from collections.abc import Iterator
from datetime import UTC

from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.export.sheets import Cell, Exported, table

__all__ = ["generic", "points", "questions", "waiting"]

ABOUT = ("student", "last name", "first name")
COLUMNS = (
    *("assignment", *ABOUT, "email", "lms id", "submitted", "timestamp"),
    *("raw points", "penalty", "score", "worth", "waits"),
)


def generic(marks: dict[str, list[Mark]], missing_as_zero: bool) -> Exported:
    """A row for each student and assignment."""
    rows = [_generic(mark, missing_as_zero) for those in marks.values() for mark in those]
    return Exported(table([COLUMNS, *rows]), notes=tuple(waiting(marks)))


def _generic(mark: Mark, missing_as_zero: bool) -> list[Cell]:
    totals = (mark.raw, mark.penalty, mark.score) if mark.submitted or missing_as_zero else (None,) * 3
    submitted, waits = ("yes" if value else "no" for value in (mark.submitted, mark.waits))
    time = f"{mark.timestamp.replace(tzinfo=UTC):%FT%TZ}" if mark.timestamp else ""
    about = (mark.assignment, *_about(mark), mark.email, mark.lms_user_id)
    return [*about, submitted, time, *totals, mark.worth, waits]


def _about(mark: Mark) -> tuple[str, str, str]:
    return mark.student, mark.last_name, mark.first_name


def questions(marks: dict[str, list[Mark]], missing_as_zero: bool) -> Exported:
    """A row for each student, with the points of every graded cell; of several assignments one behind another."""
    header, rows = [*ABOUT], {}
    for name, those in marks.items():
        cells = dict.fromkeys(cell for mark in those for cell in mark.cells)
        before = f"{name}: " if len(marks) > 1 else ""
        begin = len(header)
        header += [before + column for column in (*cells, "penalty", "score", "worth")]
        for mark in those:
            row = rows.setdefault(mark.student, [*_about(mark)])
            row += [None] * (begin - len(row))
            nothing = 0.0 if missing_as_zero else None
            given = [_given(mark.cells.get(cell)) if mark.submitted else nothing for cell in cells]
            totals = (mark.penalty, mark.score) if mark.submitted else (nothing, nothing)
            row += [*given, *totals, mark.worth]
    filled = [row + [None] * (len(header) - len(row)) for _, row in sorted(rows.items())]
    return Exported(table([header, *filled]), notes=tuple(waiting(marks)))


def _given(cell: CellMark | None) -> float | None:
    """None where neither a test nor a person has given anything yet."""
    return None if cell is None or (cell.auto is None and cell.manual is None) else cell.earned


def points(mark: Mark | None, missing_as_zero: bool) -> float | None:
    """The score that a platform gets; None for none."""
    if mark is not None and mark.submitted:
        return mark.score
    return 0.0 if missing_as_zero else None


def waiting(marks: dict[str, list[Mark]]) -> Iterator[str]:
    """A sentence for each assignment in which a person has to mark something yet."""
    for name, those in marks.items():
        waits = [mark for mark in those if mark.waits]
        cells = dict.fromkeys(cell for mark in waits for cell, of in mark.cells.items() if of.waits)
        if waits:
            of_all = f"{len(waits)} of {sum(mark.submitted for mark in those)} submissions"
            yield f"{name}: in {of_all} a person has yet to mark {', '.join(cells)}; these scores are not final."
