"""Marks as CSV: a table for spreadsheets, or what Canvas or Moodle exported, filled in by `templates`.

A spreadsheet takes a text that begins with = + - @, a tab or a line break for a formula, and a student may
choose such a name; such a text gets an apostrophe in front, as OWASP advises
(https://owasp.org/www-community/attacks/CSV_Injection). Numbers stay numbers, and the contents of a template
stay as Canvas or Moodle wrote them, since they look for these when they read it again.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.course.roster import sheet
from exercises.autograder.export.templates import IDENTIFIER, Exported, canvas, moodle, number, to_csv

Row = dict[str, str | float | None]
# The last four are full-width letters, which East Asian spreadsheets read as the first four.
FORMULA = re.compile(r"[\t\r\n\0]|\s*[=+\-@＝＋－＠]")


def csv_text(
    marks: dict[str, list[Mark]],
    template: str | None = None,
    *,
    columns: Mapping[str, str] = {},
    missing_as_zero: bool = False,
) -> Exported:
    """Marks as CSV: a row for each student with a column for each graded cell, or a template, filled in.

    Where nothing was handed in, there is no number, as 0 would be a mark. Answers that nobody has marked yet
    are missing from a score, and the notes say so.

    Args:
        marks: by assignment; Moodle's grading worksheet takes one assignment only.
        template: what Canvas or Moodle exported; `roster.template_text` reads it.
        columns: the template's names of columns where they differ: for our assignment its title in Canvas, or
            for an English header Moodle's word in its language.
        missing_as_zero: give 0 where nothing was handed in, not even a file that was put aside.

    Raises:
        ValueError: if there is no assignment, or the template is not what it should be.
    """
    if not marks:
        raise ValueError("marks: expected at least one assignment, got none")
    if template is None:
        if columns:
            raise ValueError("--column: expected a --template whose columns it names, got none")
        made = Exported(table(_rows(marks, 0.0 if missing_as_zero else None)).encode("utf-8-sig"))
    else:
        is_moodles = columns.get(IDENTIFIER, IDENTIFIER) in sheet(template).header
        made = (moodle if is_moodles else canvas)(marks, template, columns, missing_as_zero)
    return replace(made, notes=(*_waiting(marks), *made.notes))


def _waiting(marks: dict[str, list[Mark]]) -> Iterator[str]:
    """A sentence for each assignment in which a person still has to mark something."""
    for name, those in marks.items():
        waits = [mark for mark in those if mark.waits]
        cells = dict.fromkeys(cell for mark in waits for cell, of in mark.cells.items() if of.waits)
        if waits:
            of_all = f"{len(waits)} of {sum(mark.submitted for mark in those)} submissions"
            yield f"{name}: in {of_all} a person has yet to mark {', '.join(cells)}; these scores are not final."


def _rows(marks: dict[str, list[Mark]], nothing: float | None) -> list[Row]:
    """A row for each student, with the points of every graded cell; several assignments side by side."""
    rows: dict[str, Row] = {}
    for name, those in marks.items():
        before = f"{name}: " if len(marks) > 1 else ""
        cells = dict.fromkeys(cell for mark in those for cell in mark.cells)
        for mark in those:
            given = {cell: _points(mark.cells.get(cell)) for cell in cells}
            given |= {"penalty": mark.penalty, "score": mark.score}
            given = given if mark.submitted else dict.fromkeys(given, None if mark.set_aside else nothing)
            about = {"student": mark.student, "last name": mark.last_name, "first name": mark.first_name}
            row = rows.setdefault(mark.student, {**about, "email": mark.email, "lms id": mark.lms_user_id})
            row |= {before + column: value for column, value in {**given, "worth": mark.worth}.items()}
    return [row for _, row in sorted(rows.items())]


def _points(cell: CellMark | None) -> float | None:
    """The points for a cell; None where neither a test nor a person has given any yet."""
    return None if cell is None or (cell.auto is None and cell.manual is None) else cell.earned


# ---- As CSV


def escape(text: str) -> str:
    """The text, changed if a spreadsheet would take it for a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def table(rows: list[Row]) -> str:
    """A CSV table of the rows, by column: texts are made safe, and None is left empty."""
    header = [*dict.fromkeys(column for row in rows for column in row)]
    cells = [[row.get(column) for column in header] for row in rows]
    return to_csv(
        ["" if cell is None else escape(cell) if isinstance(cell, str) else number(cell) for cell in row]
        for row in (header, *cells)
    )
