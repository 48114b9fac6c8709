"""Rehearsals with invented classes: students are as their key says, and mistakes cost what the guide says."""

import csv
import json
import re
import shlex
from collections import Counter

import pytest

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder import rehearse, similarity
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.rehearse import ABSENT, DELETED, KEY, UNREADABLE, typical_mistakes
from tests.expected import TEXTBOOK, expected, paragraph
from tests.submissions import NAME, RELEASED, answers_in, read

GUIDE, MORE = (
    (release.HERE.parent / "book" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("instructors", "instructors_more")
)


def line_of(student: str, said: str) -> str:
    """The printed line about a student; Canvas appends a number to the name, with "_LATE" in between."""
    name, user = student.rsplit("_", 1)
    return next((line for line in said.splitlines() if name in line and user in line), "")


@pytest.mark.isolated
@pytest.mark.nbgrader
def test_the_guides_six_commands_lead_from_a_rehearsal_to_exported_tables(tmp_path, capsys):
    """The commands of the guide's first block, with ten students and in another folder."""
    block = re.search(r"six commands.*?```bash\n(.*?)```", GUIDE, re.DOTALL)[1]
    block = block.replace("\\\n", "").strip().splitlines()
    assert len(block) == 6
    ours = [shlex.split(line)[3:] for line in block if line.startswith("python -m exercises.autograder ")]
    assert [words[0] for words in ours] == ["doctor", "rehearse", "report", "export"]
    course, called, told, all_said = tmp_path / "a rehearsal", [], [], ""
    for words in ours:
        words = [re.sub(".*/rehearsal", str(course), "10" if word == "20" else word) for word in words]
        called.append(words)
        more = ["--course", str(course), "--workers", "1"] if words[0] == "rehearse" else []
        assert command.main([*words, *more]) in ((1,) if words[0] == "rehearse" else (0,))
        said = capsys.readouterr().out
        all_said += said
        told += [shlex.split(line)[3:] for line in said.splitlines() if line.startswith("  python ")]
    assert called[2:] == told  # the rehearsal names them as the next steps
    assert "<h1" in (course / "report" / f"{NAME}.html").read_text(encoding="utf-8")
    students = json.loads((course / KEY).read_text())["students"]
    assert len(students) == 10
    assert {about["trouble"] for about in students} == {"", *rehearse.TROUBLES.values()}
    told_of = {about["trouble"]: line_of(about["student"], all_said) for about in students}
    assert told_of[DELETED].endswith("repair")
    assert "The file breaks off after" in told_of[UNREADABLE]
    assert told_of[ABSENT] == ""
    are_late = [about["is_late"] for about in students]
    assert ["look at: late" in line_of(about["student"], all_said) for about in students] == are_late
    assert any(are_late)
    with (course / "export" / "filled_gradebook.csv").open(encoding="utf-8") as file:
        rows = {f"{row['Student']}_{row['ID']}": row[f"{NAME} (1)"] for row in csv.DictReader(file)}
    known = {one.student: one for one in marks.marks(Course(course).gradebook, NAME)}
    assert set(known) == {one["student"] for one in students}
    scores = {student: one.score for student, one in known.items() if one.submitted}
    assert {student: float(points) for student, points in rows.items() if points} == scores
    assert {path.parts[-3] for path in course.glob("feedback/*/*/*.html")} == set(scores)


# --- Classes --------------------------------------------------------------------------------------------------


def test_answers_are_of_the_kind_in_the_key_and_copies_are_found():
    handed_out = read(RELEASED)
    released, seen, texts, copied = answers_in(handed_out), Counter(), {}, set()
    mistakes = {(cell, text) for cell, _, text in typical_mistakes()}
    for student, handed_in in rehearse.students(40, NAME):
        name, source = student["name"], student["copied_from"]
        texts[name] = answers_in(handed_in) if handed_in else {}
        copied |= {tuple(sorted((name, source)))} if source else set()
        for cell, text in texts[name].items():
            kind = student["kinds"][cell]
            seen[kind] += 1
            assert (text == released[cell]) == (kind == "untouched")
            assert source or ((cell, text) in mistakes) == (kind == "typical")
            assert "SOLUTION" not in text
    assert min(seen[kind] for kind in ("right", "typical", "untouched")) > 0.05 * seen.total()
    assert 0.4 * seen.total() < seen["right"] < 0.8 * seen.total()
    found = similarity.pairs(texts, [cell.source for cell in handed_out.cells], ["ps01-7-scale-answer"])
    assert {(pair.first, pair.second) for pair in found} == copied
    assert copied


# --- What to expect ------------------------------------------------------------------------------------------


# Parts that a later task of the set uses, with one slip in each; and one set with all its slips.
QUICK = {
    "ps03_positions": "an exponent for each column",
    "ps04_multi_head": "rows of a matrix that is kept transposed",
    "ps06_layers_model": "cross-attention drawn as self-attention",
    "ps02_masks": "",
}


@pytest.mark.nbgrader
@pytest.mark.parametrize(
    ("assignment", "slip"),
    [*QUICK.items(), *(pytest.param(m.parent.name, "", marks=pytest.mark.full) for m in release.masters())],
)
def test_a_slip_costs_what_the_guide_says_and_nothing_in_a_later_task(assignment, slip, tmp_path):
    slips = [one for one in typical_mistakes() if slip in one[1]]
    results = expected(assignment, tmp_path, slips)
    assert slip or f"- {paragraph(assignment, results)}\n" in MORE
    textbook = results.pop(TEXTBOOK)
    assert textbook.earned == textbook.worth
    assert results
    made = {what: answer.removesuffix("answer") for answer, what, _ in slips}
    for what, result in results.items():
        lost = {cell.cell for cell in result.cells if cell.earned < cell.worth}
        tests = {cell.cell for cell in result.cells if cell.cell.startswith(made[what])}
        assert lost <= tests, what
        assert lost or not tests, what  # an encore is not graded
