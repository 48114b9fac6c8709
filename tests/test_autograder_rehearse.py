"""Made-up classes: what is said of each student is true, and the intake gets all of them where they belong."""

import csv
import json
import random
import re
import shlex
from collections import Counter

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder import rehearse
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.intake import Quarantined, Received, ingest
from exercises.autograder.intake.cells import normalize_source
from exercises.autograder.rehearse.answers import ABSENT, COPIED, SHARES, TWICE, UNREADABLE, _typical, renamed
from exercises.autograder.rehearse.files import KEY

NAME = "ps01_embeddings_attention"
GUIDE, MORE = (
    (release.HERE.parent / "book" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("instructors", "instructors_more")
)
MASTERS = release.masters()
RELEASED = {m.parent.name: nbformat.read(release.released(m), as_version=4) for m in MASTERS}


def answers(notebook) -> dict[str, str]:
    return {
        cell.id: cell.source for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")
    }


@pytest.mark.isolated
@pytest.mark.nbgrader
def test_from_a_rehearsal_to_tables_in_the_guides_six_commands(tmp_path, capsys):
    """The commands of the guide's first block, with five students and in another folder."""
    block = re.search(r"six commands.*?```bash\n(.*?)```", GUIDE, re.DOTALL)[1]
    block = block.replace("\\\n", "").strip().splitlines()
    assert len(block) == 6
    ours = [shlex.split(line)[3:] for line in block if line.startswith("python -m exercises.autograder ")]
    assert [words[0] for words in ours] == ["doctor", "rehearse", "report", "export"]
    course = tmp_path / "rehearsal"
    for words in ours:
        words = [re.sub(".*/rehearsal", str(course), "5" if word == "20" else word) for word in words]
        more = ["--course", str(course), "--workers", "1"] if words[0] == "rehearse" else []
        assert command.main([*words, *more]) in ((1,) if words[0] == "rehearse" else (0,))
        print(capsys.readouterr().out)
    page = (course / "report" / f"{NAME}.html").read_text(encoding="utf-8")
    assert "<h1" in page
    students = json.loads((course / "what_is_in_it.json").read_text())["students"]
    assert len(students) == 5
    with (course / "export" / "canvas.csv").open(encoding="utf-8") as file:
        rows = {f"{row['Student']}_{row['ID']}": row[f"{NAME} (1)"] for row in csv.DictReader(file)}
    known = {one.student: one for one in marks.marks(Course(course).gradebook, NAME)}
    assert set(known) == {one["student"] for one in students}
    assert {student for student, points in rows.items() if points} == {
        student for student, one in known.items() if one.submitted
    }
    assert all(float(points) == known[student].score for student, points in rows.items() if points)
    pages = sorted(path.parts[-3] for path in course.glob("feedback/*/*/*.html"))
    assert pages == sorted(student for student, one in known.items() if one.submitted)


PROGRAM = """
def f(a, b=None, *, flip=False):
    if b is None:
        b = a
    if a < 0 or b > 50:
        raise ValueError("a, b")
    bias = a * b
    total = bias - 3
    steps = [one * 2 + other for one, other in zip(range(a), range(b)) if one != other]
    total = g(total) / 7 if flip else total
    return max(steps, default=0) + total


def g(x):
    y = x * x
    return y * 2 + bias if y > 4 else y
"""


def outcome(text: str, *args) -> object:
    names: dict = {"bias": 3}  # of another cell
    exec(text, names)
    try:
        return names["f"](*args[:2], flip=args[2])
    except ValueError:
        return "refused"


@given(st.integers(0, 10**6), st.integers(-2, 60), st.one_of(st.none(), st.integers(0, 60)), st.booleans())
def test_what_is_computed_stays(seed, a, b, flip):
    chance = random.Random(seed)
    new = renamed(PROGRAM, chance)
    assert not re.search(r"\b(total|steps)\b", new)
    assert outcome(new, a, b, flip) == outcome(PROGRAM, a, b, flip)


# --- Classes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hundred():
    return rehearse.students(100, NAME)


def test_there_is_one_of_each_trouble_before_there_are_two_of_any(hundred):
    few, many = (
        Counter(student.trouble for student in group) for group in (rehearse.students(11, NAME), hundred)
    )
    assert few == {"": 4} | dict.fromkeys(SHARES, 1)
    assert many == {"": 70} | {trouble: round(share * 100) for trouble, share in SHARES.items()}
    assert [student.trouble for student in rehearse.students(1, NAME)] == [""]


def test_an_answer_is_what_it_is_said_to_be(hundred):
    released, seen = answers(RELEASED[NAME]), Counter()
    for student in hundred:
        for cell, text in answers(student.notebook).items() if student.notebook else ():
            kind = student.kinds[cell]
            seen[kind] += 1
            assert (text == released[cell]) == (kind == "untouched")
            assert student.copied_from or (text in _typical().get(cell, ())) == (kind == "typical")
            assert "SOLUTION" not in text
    assert min(seen[kind] for kind in ("right", "typical", "untouched")) > 0.05 * seen.total()
    assert 0.4 * seen.total() < seen["right"] < 0.8 * seen.total()


def test_who_copies_has_the_answers_of_somebody_else(hundred):
    group = {student.student: student for student in hundred}
    copied = [student for student in hundred if student.copied_from]
    assert [student.trouble for student in copied] == [COPIED] * 4
    in_words = {cell.id for cell in RELEASED[NAME].cells if cell.cell_type == "markdown"}
    for student in copied:
        other = group[student.copied_from]
        assert (other.kinds, other.trouble) == (student.kinds, "")
        for cell, text in answers(student.notebook).items():
            is_same = cell in in_words or student.kinds[cell] == "untouched"
            assert (text == answers(other.notebook)[cell]) == is_same


# --- Files ----------------------------------------------------------------------------------------------------


def test_the_intake_gets_everything_where_it_belongs(tmp_path):
    source = rehearse.write(tmp_path / "new", 30, NAME)
    known = json.loads((source.parent / KEY).read_text(encoding="utf-8"))["students"]
    outcomes: dict[str, list] = {}
    for outcome in ingest(source, RELEASED):
        outcomes.setdefault(outcome.student, []).append(outcome)
    group = {student.student: student for student in rehearse.students(30, NAME)}
    assert outcomes.keys() == {about["student"] for about in known if about["trouble"] != ABSENT}
    for about in known:
        if about["trouble"] != ABSENT:
            assert_as_said(outcomes[about["student"]], about, group[about["name"]])
    assert any(f"_Copy of {NAME}.ipynb" in one.path for those in outcomes.values() for one in those)


def assert_as_said(found: list, about: dict, student: rehearse.Student) -> None:
    received = [one for one in found if isinstance(one, Received)]
    aside = [one for one in found if isinstance(one, Quarantined)]
    trouble = about["trouble"]
    assert len(received) == (trouble != UNREADABLE)
    assert len(aside) == (trouble in (UNREADABLE, TWICE))
    assert all("breaks off" in one.reason or "Superseded" in one.reason for one in aside)
    for one in received:
        mine, theirs = (
            {cell: normalize_source(text) for cell, text in answers(notebook).items()}
            for notebook in (student.notebook, one.notebook)
        )
        assert mine == theirs or trouble == "a cell cannot be parsed"
        said = " ".join(one.repairs)
        assert ("-test was missing and was put back" in said) == (trouble == "a test is deleted")
        assert ("format 4.0" in said, "format 4.2" in said) == (
            about["program"] == "Colab",
            about["program"] == "VS Code",
        )
        assert one.late == about["is_late"]


def test_the_same_arguments_write_the_same_bytes(tmp_path):
    one, two = (rehearse.write(tmp_path / folder, 9, NAME) for folder in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert (one.parent / KEY).read_bytes() == (two.parent / KEY).read_bytes()


# --- What to expect ------------------------------------------------------------------------------------------


@pytest.mark.isolated
@pytest.mark.nbgrader
def test_a_textbook_is_right_and_a_slip_costs_what_the_guide_says(capsys):
    assert command.main(["expected", "ps02_masks", "--workers", "1"]) == 0
    (told,) = capsys.readouterr().out.splitlines()
    assert f"- {told}\n" in MORE
    assert "25 points by tests, 8 by a person. Answers as textbooks have them get 25." in told
    assert "a window one too wide −1.25 (task 4)" in told


@pytest.mark.isolated
@pytest.mark.nbgrader
@pytest.mark.full
def test_the_guide_says_what_to_expect_of_every_assignment(capsys):
    assert command.main(["expected"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(MASTERS)
    assert all(f"- {line}\n" in MORE for line in told)


def test_expected_refuses_what_is_no_assignment(capsys):
    assert command.main(["expected", "ps99"]) == 2
    assert "expected one of ps01_embeddings_attention, " in capsys.readouterr().err
