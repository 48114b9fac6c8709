"""Marks as tables, read as Canvas, Moodle and spreadsheets read them."""

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.course.roster import read_roster, template_text
from exercises.autograder.export import Exported, csv_text

FIXTURES = Path(__file__).parent / "export_fixtures"
ASSIGNMENT = "ps02_masks"
CANVAS, CANVAS_NAMES, MOODLE = (
    template_text(FIXTURES / f"{name}.csv") for name in ("canvas", "canvas_names", "moodle")
)
BOM, ATTENTION = "\ufeff", "Exercise 3: Attention (4711)"


def mark(student: str, score: float | None = 7.5, **about) -> Mark:
    """A mark with one tested cell; a score of None means that nothing was handed in."""
    cells = {} if score is None else {"q1": CellMark(score, worth=10.0)}
    return Mark(student, submitted=score is not None, **{"worth": 10.0, "cells": cells} | about)


def rows_of(exported: Exported, delimiter: str = ",") -> list[list[str]]:
    text = exported.data.decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def marks_of(marks: Iterable[Mark], **options) -> tuple[dict[str, str], tuple[str, ...]]:
    """The marks that Canvas would import for its exercise 3, by id, and the notes for a person."""
    exported = filled(CANVAS, *marks, columns={ASSIGNMENT: ATTENTION}, **options)
    return {who: of[ATTENTION] for who, of in read_as_canvas(exported).items()}, exported.notes


def read_as_canvas(exported: Exported, delimiter: str = ",") -> dict[str, dict[str, str]]:
    """What Canvas would import, following its `gradebook_importer.rb`: by id, the marks by title."""
    text = exported.data.decode("utf-8")  # Canvas does not remove a byte order mark
    header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    who, about = header.index("ID"), header.index("Section") + 1
    assert header[0] in ("Student", "LastName")
    return {row[who]: dict(zip(header[about:], row[about:], strict=True)) for row in rows if row[who]}


def graded(*marks: Mark) -> dict[str, list[Mark]]:
    return {ASSIGNMENT: list(marks)}


def filled(template: str, *marks: Mark, **options) -> Exported:
    return csv_text(graded(*marks), template, **options)


# The plain table


FORMULAS = ('=HYPERLINK("http://evil.example","Ada")', "@SUM", " +1", "-1", "\t1", "\r\n=1", "＝1")


@pytest.mark.parametrize("text", [*FORMULAS, 'Ada, "Countess"\r\n'])
def test_students_cannot_put_a_formula_into_a_table(text):
    about = dict.fromkeys(("first_name", "last_name", "email", "lms_user_id"), text)
    header, row = rows_of(csv_text(graded(mark(text, cells={text: CellMark(-1.5, worth=1.0)}, **about))))
    written = f"'{text}" if text in FORMULAS else text
    assert (header[5], row[:6]) == (written, [*[written] * 5, "-1.5"]), "numbers must stay numbers"


def test_a_table_has_a_row_for_each_student_and_a_column_for_each_graded_cell():
    cells = {
        "q1": CellMark(2.0, worth=4.0),
        "q2": CellMark(0.0, 1.5, 0.5, worth=4.0),
        "why": CellMark(waits=True, worth=2.0),
        "again": CellMark(manual=1.0, waits=True, worth=2.0),
    }
    about = {"first_name": "Ada", "last_name": "Example", "email": "ada@uni.example", "lms_user_id": "101"}
    marks = graded(mark("zoë", None), mark("ada", cells=cells, penalty=0.5, **about))
    exported = csv_text(marks)
    [note] = exported.notes
    assert note.startswith(f"{ASSIGNMENT}: in 1 of 1 submissions a person has yet to mark why, again;")
    assert exported.data.startswith(BOM.encode()), "Excel needs a byte order mark"
    header, ada, nobody = rows_of(exported)
    known = ["student", "last name", "first name", "email", "lms id"]
    assert header == [*known, "q1", "q2", "why", "again", "penalty", "score", "worth"]
    assert ada == ["ada", "Example", "Ada", *list(about.values())[2:], "2", "2", "", "1", "0.5", "4.5", "10"]
    assert nobody == ["zoë", *[""] * 10, "10"]
    _, _, nobody = rows_of(csv_text(marks, missing_as_zero=True))
    assert nobody[5:] == [*["0"] * 6, "10"]


def test_several_assignments_stand_side_by_side():
    marks = {"one": [mark("ada", 3.0)], "two": [mark("ada", 4.0), mark("zoë", 5.0)]}
    header, *rows = rows_of(csv_text(marks))
    ada, zoe = (dict(zip(header, row, strict=True)) for row in rows)
    assert [ada[name] for name in ("one: q1", "one: score", "two: q1", "two: score")] == ["3", "3", "4", "4"]
    assert [zoe[name] for name in ("one: q1", "one: score", "one: worth", "two: score")] == ["", "", "", "5"]


# Canvas


def test_canvas_gets_back_what_it_needs_and_no_other_column_but_our_assignments():
    on_roster = mark("ada", None, email="ada@uni.example")  # who handed in under another id
    ours = [on_roster, mark("exampleada_101")]
    exported = csv_text({ASSIGNMENT: ours, "exercise 3 attention": [mark("exampleada_101", 6.0)]}, CANVAS)
    assert (exported.unmatched, exported.data[:1]) == ((), b"S"), "Canvas expects no byte order mark"
    before, after = list(csv.reader(io.StringIO(CANVAS))), rows_of(exported)
    masks, attention = before[0].index("ps02 masks (4710)"), before[0].index(ATTENTION)
    for old, new in zip(before, after, strict=True):
        assert new[:5] == old[:5]
        assert new[5:] == (["7.5", "6"] if old[1] == "101" else [old[masks], old[attention]])


def test_canvas_export_lists_unmatched_students():
    """Nobody's row, a name or a number alone, two rows for one student, and two students for one row."""
    nobody, namesake = mark("nobody"), mark("smith_101", first_name="Ada", last_name="Example")
    two, one, other = mark("exampleada_101", email="zoe"), mark("voorbeeldjan_106"), mark("jan")
    exported = filled(CANVAS, nobody, namesake, two, one, other)
    assert exported.unmatched == ("nobody", "smith_101", "exampleada_101", "voorbeeldjan_106", "jan")
    assert "exampleada_101: rows 4 and 5 match, by number" in exported.notes[-2]
    assert "voorbeeldjan_106 and jan match the same row, 9;" in exported.notes[-1]
    assert rows_of(exported) == rows_of(filled(CANVAS, nobody))


def test_canvas_keeps_excused_students_and_notes_replaced_marks():
    """Rows are found by the number at an id's end, by Canvas's own id, or by a login."""
    zoe, jan = mark("somebody", 3.5, lms_user_id="102"), mark("JAN", 3.5)
    marks, notes = marks_of([zoe, mark("Max Muster_103", 3.5), mark("Lia Esempio_105", 3.5), jan])
    assert marks == {"101": "", "102": "3.5", "103": "EX", "104": "", "105": "N/A", "106": "3.5", "999": ""}
    assert notes == (
        f"{ASSIGNMENT}: worth 10 here, but 12 in Canvas; points were not scaled.",
        f"{ASSIGNMENT}: Max Muster_103 is EX in Canvas and stays so.",
        f"{ASSIGNMENT}: Lia Esempio_105 is N/A in Canvas and stays so.",
    )
    _, notes = marks_of([mark("beispielzoe_102", 4.0)])
    assert f"{ASSIGNMENT}: other marks have replaced 1 of those in the template." in notes


def test_canvas_gets_zeros_only_in_empty_cells_if_every_student_matches():
    kept, jan = {"102": "3.50", "103": "EX", "105": "N/A", "106": "0"}, mark("voorbeeldjan_106", None)
    sure, _ = marks_of([mark("exampleada_101"), jan], missing_as_zero=True)
    assert sure == kept | {"101": "7.5", "104": "0", "999": "0"}
    aside, _ = marks_of([replace(jan, set_aside=True)], missing_as_zero=True)
    assert aside["106"] == ""
    unsure, notes = marks_of([mark("nobody"), jan], missing_as_zero=True)
    assert unsure == kept | dict.fromkeys(("101", "104", "999"), "")
    assert f"{ASSIGNMENT}: 3 rows without a mark got no 0" in " ".join(notes)


def test_canvas_may_separate_by_semicolons_and_split_names():
    marks = graded(mark("exampleada_101"), mark("beispielzoe_102"))
    exported = csv_text(marks, CANVAS_NAMES)
    found = read_as_canvas(exported, ";")
    assert found == {"101": {"ps02 masks (4710)": "7.5"}, "102": {"ps02 masks (4710)": "7.5"}}
    assert exported.notes == ()
    assert rows_of(exported, ";")[1] == ["    Points Possible", "", "", "", "", "10,00"]


# Moodle


def test_moodle_gets_a_mark_by_the_number_of_the_participant_or_an_address():
    exported = filled(MOODLE, mark("Gruppe 1-Ada Example_501", 7.5), mark("x", 8.0, email="MM4@uni.example"))
    assert exported.unmatched == ()
    assert exported.data.startswith(BOM.encode()), "Excel needs a byte order mark; Moodle removes it"
    before, after = list(csv.reader(io.StringIO(MOODLE, newline=""))), rows_of(exported)
    assert [row[4] for row in after] == ["Grade", "7.5", "3.50", "", "8", ""]
    assert [row[:4] + row[5:] for row in after] == [row[:4] + row[5:] for row in before]


def test_moodle_export_notes_marks_that_moodle_would_skip():
    above, locked = mark("Ada Example_501", 11.0), mark("Lia Esempio_505", 8.0)
    exported = filled(MOODLE, above, locked, mark("Max Muster_504"))
    assert [row[4] for row in rows_of(exported)] == ["Grade", "11", "3.50", "", "7.5", ""]
    assert exported.notes == (
        f"{ASSIGNMENT}: Moodle will skip marks above its maximum, those of Ada Example_501.",
        f"{ASSIGNMENT}: Lia Esempio_505 keeps the mark in Moodle, which cannot be changed there.",
    )
    assert filled(MOODLE, mark("Ada Example_501", 10.0)).notes == ()
    [note] = filled(MOODLE, mark("Ada Example_501", worth=12.5)).notes
    assert "worth 12.5 here, but 10 in Moodle" in note


def test_moodle_in_another_language():
    changed = "Zuletzt geändert (Bewertung)"
    words = {"Identifier": "ID", "Grade": "Bewertung", "Last modified (grade)": changed}
    text = MOODLE.replace("Participant ", "Teilnehmer/in").replace("Identifier", "ID", 1)
    text = text.replace(",Grade,", ",Bewertung,").replace("Last modified (grade)", changed)
    exported = csv_text(graded(mark("Ada Example_501")), text, columns=words)
    assert rows_of(exported)[1][4] == "7.5"
    with pytest.raises(ValueError, match=r"or Moodle's grading worksheet, with Identifier .*; got ID"):
        csv_text(graded(mark("Ada Example_501")), text)
    with pytest.raises(ValueError, match="Moodle's grading worksheet, with Note among its columns, got ID"):
        csv_text(graded(mark("Ada Example_501")), text, columns=words | {"Grade": "Note"})


# What is refused


ADA = graded(mark("ada"))


@pytest.mark.parametrize(
    ("arguments", "columns", "message"),
    [
        ((ADA,), {"Grade": "x"}, "--column: expected a --template whose columns it names, got none"),
        (({},), {}, "marks: expected at least one assignment, got none"),
        ((ADA, CANVAS + "a," * 12 + "b"), {}, "expected 11 cells in each row, got 13 in one"),
        (({"ps09": []}, CANVAS), {}, r"for ps09, got Notes, Exercise 3: Attention \(4711\), "),
        ((ADA, CANVAS), {"ps9": "x"}, "--column: expected one of ps02_masks, got ps9"),
        ((ADA | {"ps02-masks": []}, CANVAS), {}, "one column for ps02-masks, got ps02 masks"),
        ((ADA, CANVAS.replace("Notes", "PS02 Masks")), {}, "for ps02_masks, got PS02 M.*, ps02"),
        ((ADA, MOODLE.replace(",Grade,", ",Mark,")), {}, "with Grade among its columns, got Identifier"),
        (({"one": [], "two": []}, MOODLE), {}, "one assignment for Moodle's worksheet, got one, two"),
    ],
)
def test_invalid_templates_are_refused(arguments, columns, message):
    with pytest.raises(ValueError, match=message):
        csv_text(*arguments, columns=columns)


def test_a_template_is_read_in_utf_8(tmp_path):
    path = tmp_path / "grades.csv"
    path.write_bytes(CANVAS.encode("cp1252"))
    with pytest.raises(ValueError, match=r"template: expected a CSV file in UTF-8.*; grades\.csv is in"):
        template_text(path)
    path.write_bytes(CANVAS.encode("utf-8-sig"))
    assert template_text(path) == CANVAS
    path.write_bytes(b"PK\x03\x04\xff")
    with pytest.raises(ValueError, match=r"roster: expected a CSV file"):
        read_roster(path)
