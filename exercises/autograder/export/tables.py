"""The plain formats, for spreadsheets and programs, and what all formats say of marks."""

from collections.abc import Iterable, Iterator
from datetime import UTC
from itertools import chain

from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.export.sheets import Exported, table

__all__ = ["by_student", "generic", "points", "questions", "waiting"]

ABOUT = ("student", "last name", "first name")
COLUMNS = (
    *("assignment", *ABOUT, "email", "lms id", "submitted", "timestamp"),
    *("raw points", "penalty", "score", "worth", "waits"),
)


def generic(marks: dict[str, list[Mark]], missing_as_zero: bool) -> Exported:
    """A row for each student and assignment."""
    rows = [_generic(mark, missing_as_zero) for those in marks.values() for mark in those]
    return Exported(table([COLUMNS, *rows]), notes=tuple(waiting(marks)))


def _generic(mark: Mark, missing_as_zero: bool) -> list[str | float | None]:
    totals = (mark.raw, mark.penalty, mark.score) if mark.submitted or missing_as_zero else (None,) * 3
    return [
        mark.assignment,
        *_about(mark),
        mark.email,
        mark.lms_user_id,
        _yes(mark.submitted),
        _time(mark),
        *totals,
        mark.worth,
        _yes(mark.waits),
    ]


def _about(mark: Mark) -> tuple[str, str, str]:
    return mark.student, mark.last_name, mark.first_name


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _time(mark: Mark) -> str:
    """In UTC, as the gradebook has it."""
    if mark.timestamp is None:
        return ""
    return mark.timestamp.replace(tzinfo=mark.timestamp.tzinfo or UTC).astimezone(UTC).strftime("%FT%TZ")


def questions(marks: dict[str, list[Mark]], missing_as_zero: bool) -> Exported:
    """A row for each student, with the points of every graded cell; of several assignments one behind another."""
    cells = {
        name: list(dict.fromkeys(cell for mark in those for cell in mark.cells))
        for name, those in marks.items()
    }
    header = [*ABOUT]
    for name, graded in cells.items():
        before = f"{name}: " if len(marks) > 1 else ""
        header += [before + column for column in (*graded, "penalty", "score", "worth")]
    rows = []
    for mark, of in by_student(marks):
        given = [_questions(of.get(name), cells[name], missing_as_zero) for name in marks]
        rows.append([*_about(mark), *chain(*given)])
    return Exported(table([header, *rows]), notes=tuple(waiting(marks)))


def _questions(mark: Mark | None, cells: Iterable[str], missing_as_zero: bool) -> list[float | None]:
    if mark is None:
        return [None for _ in cells] + [None] * 3
    if not mark.submitted:
        return [0.0 if missing_as_zero else None for _ in (*cells, "penalty", "score")] + [mark.worth]
    return [*(_given(mark.cells.get(cell)) for cell in cells), mark.penalty, mark.score, mark.worth]


def _given(cell: CellMark | None) -> float | None:
    """None where neither a test nor a person has given anything yet."""
    return None if cell is None or (cell.auto is None and cell.manual is None) else cell.earned


def by_student(marks: dict[str, list[Mark]]) -> Iterator[tuple[Mark, dict[str, Mark]]]:
    """Each student's marks by assignment, and one of them, for who it is."""
    found: dict[str, dict[str, Mark]] = {}
    for name, those in marks.items():
        for mark in those:
            found.setdefault(mark.student, {})[name] = mark
    for _, of in sorted(found.items()):
        yield next(iter(of.values())), of


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
