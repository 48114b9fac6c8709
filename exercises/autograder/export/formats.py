"""The formats by name."""

from exercises.autograder.course.marks import Mark
from exercises.autograder.export import canvas, moodle, tables
from exercises.autograder.export.sheets import Exported

__all__ = ["FORMATS", "csv_text"]

PLAIN = {
    "generic": tables.generic,
    "questions": tables.questions,
    "canvas": canvas.plain,
    "moodle": moodle.plain,
}
FILLED = {"canvas": canvas.filled, "moodle": moodle.filled}
FORMATS = tuple(PLAIN)


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
            with all graded cells; "canvas" and "moodle" are what those import.
        marks: by assignment; Moodle's grading worksheet takes one assignment only.
        template: what Canvas or Moodle exported, to be filled in; see `canvas` and `moodle`. `template_text`
            reads it.
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
    if template is None:
        if columns:
            raise ValueError(f"columns: expected none without a template, got {columns}")
        return PLAIN[format](marks, missing_as_zero)
    if format not in FILLED:
        raise ValueError(f"template: expected none for the format {format}, got {template[:40]!r}")
    return FILLED[format](marks, template, columns or {}, missing_as_zero)
