"""Marks as CSV: tables for spreadsheets, and what Canvas and Moodle exported, filled in.

`tables` has the first, and all that concerns CSV; `templates` has the second, and `matching` says which of a
template's rows is whose.
"""

from exercises.autograder.course.marks import Mark
from exercises.autograder.export import tables, templates
from exercises.autograder.export.tables import Exported, template_text

__all__ = ["FORMATS", "Exported", "csv_text", "template_text"]

PLAIN = {"generic": tables.generic, "questions": tables.questions}
FILLED = {"canvas": templates.canvas, "moodle": templates.moodle}
FORMATS = (*PLAIN, *FILLED)


def csv_text(
    format: str,
    marks: dict[str, list[Mark]],
    template: str | None = None,
    *,
    columns: dict[str, str] | None = None,
    missing_as_zero: bool = False,
) -> Exported:
    """Marks as CSV.

    Where nothing was handed in, there is no number, as 0 would be a mark; and answers that nobody has marked yet
    are missing from a score, which the notes say.

    Args:
        format: one of `FORMATS`. "generic" has a row for a student and assignment, "questions" one for a student
            with all graded cells; "canvas" and "moodle" fill in a template.
        marks: by assignment; Moodle's grading worksheet takes one assignment only.
        template: what Canvas or Moodle exported; `template_text` reads it.
        columns: what a template calls its columns, where it does not say so itself: the title of our assignment
            in Canvas, or Moodle's word, in its language, for an English header.
        missing_as_zero: give 0 where nothing was handed in.

    Raises:
        ValueError: for another format, no assignment, or a template that is not what it should be.
    """
    if format not in FORMATS:
        raise ValueError(f"format: expected one of {', '.join(FORMATS)}, got {format!r}")
    if not marks:
        raise ValueError("marks: expected at least one assignment, got none")
    if format in FILLED:
        if template is None:
            raise ValueError(f"template: expected the file that {format.title()} exports, got none")
        return FILLED[format](marks, template, columns or {}, missing_as_zero)
    if template is not None or columns:
        raise ValueError(f"template, columns: expected none for the format {format}")
    return PLAIN[format](marks, missing_as_zero)
