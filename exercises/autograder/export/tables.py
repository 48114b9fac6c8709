"""Tables in CSV: how they are read and written here, those for spreadsheets, and what all say of marks.

Lines end as RFC 4180 has it. A spreadsheet takes a text that begins with = + - @, a tab or a line break for a
formula, and a student may call themselves so; such a text gets an apostrophe in front, as OWASP advises
(https://owasp.org/www-community/attacks/CSV_Injection). Numbers are numbers, and what stands in a template stays
as Canvas or Moodle wrote it, since they look for it when they read it again.
"""

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from exercises.autograder.course.marks import CellMark, Mark

__all__ = [
    *("Exported", "Sheet", "generic", "is_blank", "number", "points", "questions", "safe", "sheet", "table"),
    *("template_text", "waiting", "written"),
]

# The last four are full-width letters, which East Asian spreadsheets read as the first four.
FORMULA = frozenset("=+-@＝＋－＠")
LINE_BREAKS = frozenset("\t\r\n\0")
DECIMALS = 5  # that Moodle keeps; Canvas shows two

ABOUT = ("student", "last name", "first name")
COLUMNS = (
    *("assignment", *ABOUT, "email", "lms id", "submitted", "timestamp"),
    *("raw points", "penalty", "score", "worth", "waits"),
)
Cell = str | float | None


@dataclass(frozen=True)
class Exported:
    """A table, and what a person should know of it.

    Attributes:
        text: the CSV.
        unmatched: students who have a mark that is not in it, as the template has no row that is surely theirs.
        notes: a sentence for each thing to look at.
        encoding: for writing the text. Excel reads UTF-8 only behind a byte order mark ("utf-8-sig"), which
            Moodle removes; Canvas does not, and then fails to know the column LastName.
    """

    text: str
    unmatched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    encoding: str = "utf-8-sig"

    @property
    def data(self) -> bytes:
        """The file; written as text, its line ends could change."""
        return self.text.encode(self.encoding)


@dataclass(frozen=True)
class Sheet:
    """A template; all its rows are as long as the header."""

    header: list[str]
    rows: list[list[str]]
    delimiter: str


def number(value: float) -> str:
    """As people write it: 7.5, and 8 rather than 8.0."""
    text = f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in LINE_BREAKS or text.lstrip()[:1] in FORMULA else text


def table(rows: Iterable[Iterable[Cell]]) -> str:
    """CSV of texts, which are made safe, of numbers, and of None, which is left empty."""
    return written(
        ["" if cell is None else safe(cell) if isinstance(cell, str) else number(cell) for cell in row]
        for row in rows
    )


def written(rows: Iterable[list[str]], delimiter: str = ",") -> str:
    """CSV of cells as they are."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def is_blank(row: Iterable[str]) -> bool:
    """Whether nothing is written there."""
    return not any(cell.strip() for cell in row)


def sheet(template: str) -> Sheet:
    """Read a template; Canvas, and Excel in many countries, also separate by semicolons.

    Raises:
        ValueError: if it has no table.
    """
    text = template.removeprefix("\ufeff")
    delimiter = max(",;", key=text.partition("\n")[0].count)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    except csv.Error:
        rows = []
    if not rows or len(rows[0]) < 2:
        raise ValueError(f"template: expected a table in CSV, got {text[:60]!r}")
    width = len(rows[0])
    if not all(is_blank(row[width:]) for row in rows):
        raise ValueError(f"template: expected {width} cells in each row, got {max(map(len, rows))} in one")
    header = [cell.strip() for cell in rows[0]]
    return Sheet(header, [[*row, *[""] * width][:width] for row in rows[1:]], delimiter)


def template_text(path: Path) -> str:
    """What Canvas or Moodle exported.

    Raises:
        ValueError: for a file that is not in UTF-8: a spreadsheet has written it anew, and may have changed
            more, such as long numbers.
        FileNotFoundError: if there is none.
    """
    data = path.read_bytes()
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError:
        expected = "expected a CSV file in UTF-8, as it was downloaded"
        raise ValueError(f"template: {expected}, got another encoding in {path.name}") from None


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
