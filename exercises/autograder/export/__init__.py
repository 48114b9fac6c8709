"""Marks as CSV, for spreadsheets and for the gradebooks of Canvas and Moodle.

Read `csv_text` in `formats` first. `tables` makes the plain formats, `canvas` and `moodle` fill in what those
programs export, `matching` says which of their rows is whose, and `sheets` reads and writes CSV.
"""

from exercises.autograder.export.formats import FORMATS, csv_text
from exercises.autograder.export.sheets import Exported, template_text

__all__ = ["FORMATS", "Exported", "csv_text", "template_text"]
