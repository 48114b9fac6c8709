"""CSV as it is read and written here.

Lines end as RFC 4180 has it. A spreadsheet takes a text that begins with = + - @, a tab or a line break for a
formula, and a student may call themselves so; such a text gets an apostrophe in front, as OWASP advises
(https://owasp.org/www-community/attacks/CSV_Injection). Numbers are numbers, and what stands in a template stays
as Canvas or Moodle wrote it, since they look for it when they read it again.
"""

import codecs
import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Sheet", "is_blank", "number", "safe", "sheet", "table", "template_text", "written"]

# The last four are full-width letters, which East Asian spreadsheets read as the first four.
FORMULA = frozenset("=+-@＝＋－＠")
LINE_BREAKS = frozenset("\t\r\n\0")
DECIMALS = 5  # that Moodle keeps; Canvas shows two


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


def table(rows: list[dict[str, str | float | None]]) -> str:
    """CSV of texts, which are made safe, of numbers, and of None, which is left empty; by column."""
    header = [*dict.fromkeys(column for row in rows for column in row)]
    cells = [[row.get(column) for column in header] for row in rows]
    return written(
        ["" if cell is None else safe(cell) if isinstance(cell, str) else number(cell) for cell in row]
        for row in (header, *cells)
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
