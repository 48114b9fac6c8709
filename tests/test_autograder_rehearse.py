"""Made-up classes: what is said of each student is true, and the intake gets all of them where they belong."""

import ast
import csv
import json
import random
import re
import runpy
import shlex
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder import rehearse
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.intake import Quarantined, Received, take_in
from exercises.autograder.intake.cells import bare
from exercises.autograder.rehearse.classes import ABSENT, COPIED, ENDLESS, SHARES, TWICE, UNREADABLE, _skill
from exercises.autograder.rehearse.files import KEY
from exercises.autograder.rehearse.renaming import renamed
from exercises.autograder.rehearse.rewording import reworded
from exercises.autograder.rehearse.wounds import PROGRAMS
from transformer_lessons.tools.submission import is_ungraded

NAME = "ps01_embeddings_attention"
GUIDE = (release.HERE.parent / "book" / "instructors.md").read_text(encoding="utf-8")
MASTERS = release.masters()
RELEASED = {m.parent.name: nbformat.read(release.released(m), as_version=4) for m in MASTERS}
WRONG = runpy.run_path(str(Path(__file__).parent / "typical_answers.py"))["WRONG"]


def answers(notebook) -> dict[str, str]:
    return {
        cell.id: cell.source for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")
    }


# --- From a rehearsal to tables ------------------------------------------------------------------------------


@pytest.mark.isolated
@pytest.mark.nbgrader
def test_from_a_rehearsal_to_tables_in_the_guides_six_commands(tmp_path, capsys):
    """The commands of the guide's first block, with five students and in another folder."""
    block = re.search(r"Six commands.*?```bash\n(.*?)```", GUIDE, re.DOTALL)[1].strip().splitlines()
    assert len(block) == 6
    ours = [shlex.split(line)[3:] for line in block if line.startswith("python -m exercises.autograder ")]
    assert [words[0] for words in ours] == ["doctor", "rehearse", "report", "export"]
    course = tmp_path / "rehearsal"
    for words in ours:
        words = [str(course) if "rehearsal" in word else "5" if word == "20" else word for word in words]
        more = ["--course", str(course), "--workers", "1"] if words[0] == "rehearse" else []
        assert command.main([*words, *more]) in ((1,) if words[0] == "rehearse" else (0,))
        print(capsys.readouterr().out)
    page = (course / "report" / f"{NAME}.html").read_text(encoding="utf-8")
    assert "<h1" in page
    students = json.loads((course / "what_is_in_it.json").read_text())["students"]
    assert len(students) == 5
    with (course / "export" / "generic.csv").open(encoding="utf-8-sig") as file:
        rows = {row["student"]: row["score"] for row in csv.DictReader(file)}
    known = {one.student: one for one in marks.marks(Course(course).gradebook, NAME)}
    assert set(known) == {one["student"] for one in students}
    assert {student for student, points in rows.items() if points} == {
        student for student, one in known.items() if one.submitted
    }
    assert all(float(points) == known[student].score for student, points in rows.items() if points)
    pages = sorted(path.parts[-3] for path in course.glob("feedback/*/*/*.html"))
    assert pages == sorted(student for student, one in known.items() if one.submitted)


# --- In other words -------------------------------------------------------------------------------------------

PROGRAM = """
def f(a, b=None, *, flip=False):
    if b is None:
        b = a
    if a < 0 or b > 50:
        raise ValueError("a, b")
    total = a * b - 3
    steps = [one * 2 + other for one, other in zip(range(a), range(b)) if one != other]
    total = g(total) / 7 if flip else total
    return max(steps, default=0) + total


def g(x):
    y = x * x
    return y * 2 if y > 4 else y
"""


def outcome(text: str, *args) -> object:
    names: dict = {}
    exec(text, names)
    try:
        return names["f"](*args[:2], flip=args[2])
    except ValueError:
        return "refused"


@given(st.integers(0, 10**6), st.integers(-2, 60), st.one_of(st.none(), st.integers(0, 60)), st.booleans())
def test_what_is_computed_stays(seed, a, b, flip):
    chance = random.Random(seed)
    new = renamed(reworded(PROGRAM, chance), chance)
    assert outcome(new, a, b, flip) == outcome(PROGRAM, a, b, flip)


def each_master(*few: str):
    """Those named at each commit, all in `make test-full`."""
    marks = [
        pytest.param(one, id=one.stem, marks=[pytest.mark.full] * (one.stem not in few)) for one in MASTERS
    ]
    return pytest.mark.parametrize("master", marks)


@each_master(NAME, "ps06_layers_model")
def test_right_answers_in_other_words_pass_every_check(no_shape_checks, master, request):
    cells = [
        cell
        for cell in nbformat.read(master, as_version=4).cells
        if cell.cell_type == "code" and not is_ungraded(cell.id)
    ]
    for seed in range(20 if request.config.getoption("--full") else 1):
        names, chance = {"__name__": "notebook"}, random.Random(seed)
        for cell in cells:
            about = cell.metadata.get("nbgrader", {})
            text = cell.source
            if about.get("solution"):
                text = renamed(reworded(text, chance), chance)
                assert bare(text) != bare(cell.source)
            if about and not about.get("points") and not cell.id.endswith("setup"):
                exec(compile(text, f"{cell.id}, seed {seed}", "exec"), names)


# --- Classes --------------------------------------------------------------------------------------------------


def test_the_same_arguments_give_the_same_class():
    one, again, other = (list(rehearse.students(9, NAME, seed)) for seed in (0, 0, 1))
    assert one == again
    assert [s.student for s in one] == [f"student-{n:03}" for n in range(1, 10)] == [s.student for s in other]
    assert one != other
    assert next(rehearse.students(9, "ps02_masks")).notebook != one[0].notebook


@pytest.mark.parametrize("arguments", [(0, NAME), (-1, NAME)])
def test_a_class_without_students_is_refused(arguments):
    with pytest.raises(ValueError, match=r"number: expected at least 1, got"):
        rehearse.students(*arguments)


def test_an_unknown_assignment_is_refused():
    with pytest.raises(ValueError, match=r"assignment: expected one of ps01_.*, got 'ps99'"):
        rehearse.students(3, "ps99")


@each_master(NAME)
def test_an_answer_is_what_it_is_said_to_be(master):
    name = master.parent.name
    solved, released = answers(nbformat.read(master, as_version=4)), answers(RELEASED[name])
    typical = {(check.replace("check", "answer"), bare(text)) for check, _, text, _ in WRONG}
    seen: Counter = Counter()
    for student in rehearse.students(40, name):
        if student.notebook is None or student.copied_from:
            continue
        for cell, text in answers(student.notebook).items():
            kind = student.kinds[cell]
            seen[kind] += 1
            assert (text in (released[cell], "")) == (kind == "untouched")
            assert ((cell, bare(text)) in typical) == (kind == "typical")
            assert kind != "short" or 0 < len(text) < len(solved[cell])
            if kind == "mistaken":
                assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(solved[cell]))
            assert "SOLUTION" not in text
    assert seen.keys() == {"right", "typical", "mistaken", "short", "untouched"}
    assert 0.35 * seen.total() < seen["right"] < 0.75 * seen.total()
    assert min(seen.values()) > 0.02 * seen.total()


@pytest.fixture(scope="module")
def hundred():
    return list(rehearse.students(100, NAME))


def test_there_is_one_of_each_trouble_before_there_are_two_of_any(hundred):
    few, many = (
        Counter(student.trouble for student in group) for group in (rehearse.students(11, NAME), hundred)
    )
    assert few == {"": 4} | dict.fromkeys(SHARES, 1)
    assert many == {"": 70} | {trouble: round(share * 100) for trouble, share in SHARES.items()}
    assert sum(round(share * 100) for share in SHARES.values()) == 30
    hostile = Counter(student.trouble for student in rehearse.students(12, NAME, hostile=True))
    assert hostile == {"": 4, ENDLESS: 1} | dict.fromkeys(SHARES, 1)
    assert [student.trouble for student in rehearse.students(1, NAME)] == [""]


def right_of(students: list) -> float:
    """The share of right ones among the answers of some students."""
    kinds = [kind for student in students for kind in student.kinds.values()]
    return kinds.count("right") / len(kinds)


def test_who_copies_has_the_answers_of_somebody_good(hundred):
    group = {student.student: student for student in hundred}
    by_skill = sorted(
        (student for student in hundred if not student.trouble),
        key=lambda student: _skill(f"0 {NAME} 100", int(student.student[-3:]) - 1)[0],
    )
    others, best = by_skill[:-25], by_skill[-25:]
    assert right_of(best) > 1.3 * right_of(others)
    in_words = {cell.id for cell in RELEASED[NAME].cells if cell.cell_type == "markdown"}
    copied = [student for student in group.values() if student.copied_from]
    assert [student.trouble for student in copied] == [COPIED] * 4
    for student in copied:
        other = group[student.copied_from]
        assert other.kinds == student.kinds
        assert other.trouble == ""
        assert other in best
        for cell, text in answers(student.notebook).items():
            is_same = cell in in_words or student.kinds[cell] == "untouched"
            assert (text == answers(other.notebook)[cell]) == is_same


def test_some_are_late(hundred):
    assert 10 <= sum(student.is_late for student in hundred) <= 15
    assert sum(student.is_late for student in rehearse.students(5, NAME)) <= 1


# --- Files ----------------------------------------------------------------------------------------------------


def written(folder: Path, layout: str, **more) -> tuple[Path, list[dict]]:
    source = rehearse.write(folder, 30, NAME, layout=layout, **more)
    return source, json.loads((source.parent / KEY).read_text(encoding="utf-8"))["students"]


@pytest.mark.parametrize("layout", ["canvas", "nbgrader"])
def test_the_intake_gets_everything_where_it_belongs(tmp_path, layout):
    source, known = written(tmp_path / "new" / "folder", layout, hostile=True)
    outcomes: dict[str, list] = {}
    for outcome in take_in(source, RELEASED):
        outcomes.setdefault(outcome.student, []).append(outcome)
    group = {student.student: student for student in rehearse.students(30, NAME, hostile=True)}
    assert outcomes.keys() == {about["student"] for about in known if about["trouble"] != ABSENT}
    for about in known:
        if about["trouble"] != ABSENT:
            assert_as_said(outcomes[about["student"]], about, group[about["name"]], layout)


def assert_as_said(found: list, about: dict, student: rehearse.Student, layout: str) -> None:
    received = [one for one in found if isinstance(one, Received)]
    aside = [one for one in found if isinstance(one, Quarantined)]
    trouble = about["trouble"]
    assert len(received) == (trouble != UNREADABLE)
    assert len(aside) == (trouble in (UNREADABLE, TWICE))
    assert all("breaks off" in one.reason or "Superseded" in one.reason for one in aside)
    for one in received:
        mine, theirs = answers(student.notebook), answers(one.notebook)
        changed = {cell for cell, text in mine.items() if bare(text) != bare(theirs[cell])}
        # Where a text is empty and VS Code lost the names, nothing says whose place it was.
        assert all(not mine[cell] for cell in changed) or trouble in (ENDLESS, "a cell cannot be parsed")
        said = " ".join(one.repairs)
        assert ("-test was missing and was put back" in said) == (trouble == "a test is deleted")
        assert ("format 4.0" in said, "format 4.2" in said) == (
            about["program"] == "Colab",
            about["program"] == "VS Code",
        )
        if layout == "canvas":
            assert one.late == about["is_late"]
        else:
            assert one.timestamp[:10] == ("2026-01-17" if about["is_late"] else "2026-01-15")


def test_the_same_arguments_write_the_same_bytes(tmp_path):
    for folder in ("one", "two"):
        written(tmp_path / folder, "canvas")
    one, two = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two


def test_canvas_names_some_files_as_colab_does(tmp_path):
    source, known = written(tmp_path, "canvas")
    paths = [outcome.path for outcome in take_in(source, RELEASED)]
    copies = [path for path in paths if f"_Copy of {NAME}.ipynb" in path]
    assert 0 < len(copies) <= sum(about["program"] == "Colab" for about in known)
    assert sum("_LATE_" in path for path in paths) == sum(about["is_late"] for about in known)


def test_nothing_is_written_over(tmp_path):
    written(tmp_path, "canvas")
    with pytest.raises(FileExistsError, match="is there already"):
        written(tmp_path, "canvas")


def test_an_unknown_layout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="layout: expected one of canvas, nbgrader, got 'moodle'"):
        rehearse.write(tmp_path, 3, NAME, layout="moodle")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_program_saves_is_a_notebook(program, tmp_path):
    content = PROGRAMS[program](json.loads(nbformat.writes(rehearse.passing(NAME))))
    (tmp_path / f"somebody__{NAME}.ipynb").write_text(json.dumps(content))
    [found] = take_in(tmp_path, RELEASED)
    assert isinstance(found, Received)
    assert answers(found.notebook) == answers(rehearse.passing(NAME))


# --- What to expect ------------------------------------------------------------------------------------------


@pytest.mark.isolated
@pytest.mark.nbgrader
def test_a_textbook_is_right_and_a_slip_costs_what_the_guide_says(capsys):
    assert command.main(["expected", "ps02_masks", "--workers", "1"]) == 0
    (told,) = capsys.readouterr().out.splitlines()
    assert f"- {told}\n" in GUIDE
    assert "25 points by tests, 8 by a person. Answers as textbooks have them get 25." in told
    assert "a window one too wide −1.25 (task 4)" in told


@pytest.mark.isolated
@pytest.mark.nbgrader
@pytest.mark.full
def test_the_guide_says_what_to_expect_of_every_assignment(capsys):
    assert command.main(["expected"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(MASTERS)
    assert all(f"- {line}\n" in GUIDE for line in told)


def test_expected_refuses_what_is_no_assignment(capsys):
    assert command.main(["expected", "ps99"]) == 2
    assert "expected one of ps01_embeddings_attention, " in capsys.readouterr().err
