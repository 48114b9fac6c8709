"""The commands as an instructor types them: a whole course, invalid arguments, and the guide."""

import csv
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.plugins import CsvExportPlugin
from traitlets.config import Config

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder import doctor
from exercises.autograder.course import folders
from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import Writer, marks
from exercises.autograder.intake import in_utc
from tests.submissions import NAME, SOLVED, WRITTEN, give, hand_in, with_answers

pytestmark = [pytest.mark.nbgrader, pytest.mark.usefixtures("graded_once")]
ROOT = Path(__file__).parents[1]
GUIDE = "".join(
    (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8").replace("\\\n", "")
    for name in ("instructors", "instructors_more")
)


def output_of(capsys, *words: str) -> str:
    """Run a command that succeeds; return what it prints."""
    assert command.main([*words]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Two graded students, one with a manual mark; two files put aside, one not graded, nothing from dora."""
    folder, source = tmp_path_factory.mktemp("commands") / "course", tmp_path_factory.mktemp("in")
    if doctor.problem():
        pytest.skip(doctor.problem())
    hand_in(source, ann=with_answers(SOLVED), bob=with_answers())
    for student, name in {"carl": NAME, "fay": "homework"}.items():
        (source / student).mkdir()
        (source / student / f"{name}.ipynb").write_text("nothing")
    where = ["--course", str(folder)]
    assert command.main(["release", NAME, *where, "--due", "2026-12-01 12:00 +0100"]) == 0
    assert command.main(["collect", str(source), *where]) == 1
    assert command.main(["grade", *where, "--workers", "1"]) == 0
    more = hand_in(tmp_path_factory.mktemp("more"), emil=with_answers(SOLVED))
    assert command.main(["collect", str(more), *where]) == 0
    give(folder, WRITTEN, "ann", 1.5)
    with Gradebook(Course(folder).gradebook) as book:
        for student in ("carl", "emil", "fay"):
            book.update_or_create_student(student)
        book.update_or_create_student("dora", first_name="Dora", last_name="Example", email="d@example.org")
        for cell, text in {WRITTEN: "Say it shorter.", "ps01-2-answer": "As a class, too?"}.items():
            book.find_comment(cell, NAME, NAME, "ann").manual_comment = text
        book.db.commit()
    return folder


def test_late_policy_of_the_guide_works_and_takes_off_from_manual_points_too(course):
    source = re.search(r"```python\n(from nbgrader\.plugins.*?)```", GUIDE, re.DOTALL)[1].partition("\nc.")[0]
    made: dict = {}
    exec(source, made)
    penalty, day = made["ATenthADay"]().late_submission_penalty, 86_400
    assert [penalty("ann", 20.0, late) for late in (1, day, day + 1, 100 * day)] == [2, 2, 4, 20]
    assert [penalty("bob", 20.0, late) for late in (1, 3 * day, 3 * day + 1)] == [0, 0, 2]

    url, policy = Course(course).gradebook, Config()
    policy.AssignLatePenalties.plugin_class = made["ATenthADay"]
    for config, part in ((policy, 0.1), (Config(), 0.0)):
        with Gradebook(url) as book:
            assert str(book.find_assignment(NAME).duedate) == "2026-12-01 11:00:00", "must be in UTC"
            book.update_or_create_submission(NAME, "ann", timestamp=datetime(2026, 12, 1, 11, 0, 1))
        with closing(Writer(url, config)) as writer:
            writer.renew_penalties()
        [mark] = [mark for mark in marks(url, NAME) if mark.student == "ann"]
        assert mark.late
        assert mark.raw > mark.cells[WRITTEN].manual == 1.5
        assert mark.penalty == pytest.approx(part * mark.raw)
    with Gradebook(url) as book:
        book.update_or_create_submission(NAME, "ann", timestamp=None)


def test_times_in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "America/Lima")  # where somebody grades does not matter
    for text, expected in {
        "2026-12-01 12:00:00.5 CET": "2026-12-01 11:00:00.500000",
        "2026-06-01 12:00:00 CET": "2026-06-01 10:00:00",  # summer time
        "2026-12-01 12:00": "2026-12-01 12:00:00",
        "1 Dec 2026 12:30 PM": "2026-12-01 12:30:00",
    }.items():
        assert str(in_utc(text)) == expected
    refused = {"2026-13-45 12:00": "month", "0001-01-01 00:00:00 +1400": "out of range"}
    unclear = ("2026-11", "2026-11-01", *(f"2026-06-01 12:00 {zone}" for zone in ("MEZ", "UTC+1", "GMT -1")))
    for text, why in (refused | dict.fromkeys(unclear, "zone such as")).items():
        with pytest.raises(ValueError, match=why):
            in_utc(text)


def test_status_counts_what_remains_to_be_done(course, capsys):
    assert output_of(capsys, "status", "--course", str(course)).splitlines() == [
        f"{NAME}: 2 of 3 graded",
        "     1 new: run python -m exercises.autograder grade",
        "     1 with written answers to mark, in nbgrader formgrader",
        "     1 put aside or failed: see not_graded.json",
        "     1 students without a submission: dora",
    ]


def test_who_reads_no_further_gets_no_traceback(course, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        assert command.main(["status", "--course", str(course)]) == 0


def test_feedback_has_what_a_person_said(course, capsys):
    assert output_of(capsys, "feedback", "--course", str(course)).endswith("feedback: 2.\n")
    page = Course(course).page("ann", NAME).read_text(encoding="utf-8")
    assert "Say it shorter." in page
    assert "As a class, too?" in page  # below an answer, which formgrader lets a person comment on too
    assert "1.5" in page


def test_tables_agree_with_nbgraders_own_and_give_a_zero_for_nothing_if_wanted(course, capsys, tmp_path):
    """But not to carl and fay, whose files were put aside, or to emil, who is not graded yet."""
    path = tmp_path / "marks.csv"
    for words, nothing in {(): 4 * [""], ("--missing-as-zero",): ["", "0", "", ""]}.items():
        found = output_of(capsys, "export", "--course", str(course), "--to", str(path), *words)
        assert found.splitlines()[-1] == str(path)
        with path.open(encoding="utf-8-sig") as file:
            ours = {row["student"]: row["score"] for row in csv.DictReader(file)}
        assert [ours[name] for name in ("carl", "dora", "emil", "fay")] == nothing
    with Gradebook(Course(course).gradebook) as book:
        CsvExportPlugin(to=str(tmp_path / "theirs.csv")).export(book)
    with (tmp_path / "theirs.csv").open() as file:
        theirs = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert {student: float(score or 0) for student, score in ours.items()} == theirs
    assert theirs["ann"] > 20


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["grade", "nowhere"], "source: expected a notebook, a folder or a zip archive, got nowhere"),
        (["grade", "--roster", "none.csv"], "roster: expected a CSV file, got none.csv, which does not"),
        (["grade", "--workers", "0"], "--workers: expected at least 1, got 0"),
        (["release", "ps99"], "ASSIGNMENT: expected one of ps01_"),
        (["release", "--due", "soon"], "--due: expected a time such as '2026-12-01 23:59 +0100', got 'soon'"),
        (["status"], "--course: expected a course's folder, got "),
        (["rehearse", "3", "--assignment", "ps99"], "ASSIGNMENT: expected one of "),
    ],
)
def test_invalid_arguments_are_refused(words, text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "problem", lambda: None)
    assert command.main([*words, "--course", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err.startswith(text)
    assert not (tmp_path / "new").exists()


def test_invalid_arguments_about_a_course_are_refused(course, capsys):
    where = ["--course", str(course)]
    for words, text in {
        ("report", "ps99"): f"ASSIGNMENT: expected one of {NAME}, got ps99",
        ("export", "--template", "none.csv"): "--template: expected a CSV file, got none.csv",
        ("export", "--column", "Total"): "--column: expected OURS=THEIRS, got Total",
        ("similarity", NAME, "ann"): "STUDENT: expected two ids",
        ("similarity", NAME, "ann", "nobody"): f"nobody: expected a submission of {NAME}, got none",
    }.items():
        assert command.main([*words, *where]) == 2
        assert capsys.readouterr().err.strip().startswith(text)
    assert command.main(["similarity", NAME, "ann", "bob", *where]) == 0
    assert "ann" in capsys.readouterr().out


def test_folders_in_which_nbgrader_would_look_elsewhere_are_refused(tmp_path, capsys, monkeypatch):
    assert command.main(["release", NAME, "--course", str(tmp_path / "was?")]) == 2
    assert f"expected a folder without ? in its path, got {tmp_path}/was?" in capsys.readouterr().err
    assert not (tmp_path / "was").exists()
    monkeypatch.setattr(release, "HERE", tmp_path / "clone[1]")
    with pytest.raises(ValueError, match=r"without \[ or \* or \? in its path, got .*clone\[1\]"):
        release.course(tmp_path)


def test_a_locked_or_damaged_gradebook_is_reported_in_a_sentence(course, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(folders, "PATIENCE", 0.2)
    (tmp_path / "gradebook.db").write_text("This is no database.")
    due = ("release", NAME, "--due", "2027-01-01 12:00 +0100")
    used, damaged = "is in use: close the program", "cannot be used: (sqlite3.DatabaseError) file is not"
    for folder, how, words, text in (
        (course, "EXCLUSIVE", ("report",), used),
        (course, "IMMEDIATE", due, used),  # nbgrader hides what went wrong in a ValueError
        (tmp_path, "", ("status",), damaged),
    ):
        with closing(sqlite3.connect(folder / "gradebook.db")) as other:
            other.execute(f"BEGIN {how}")
            assert command.main([*words, "--course", str(folder)]) == 3
        said = capsys.readouterr().err
        assert said.startswith(f"The gradebook {text}")
        assert said.count("\n") == 1


def test_rehearse_clears_no_folder_that_has_other_files(tmp_path, capsys):
    own = tmp_path / "thesis.tex"
    own.write_text("years of work")
    assert command.main(["rehearse", "3", "--course", str(tmp_path)]) == 2
    assert f"got {tmp_path}, which has other files" in capsys.readouterr().err
    assert own.read_text() == "years of work"


def test_commands_and_options_in_the_guide_exist_and_only_rehearse_has_a_folder_of_its_own():
    parse = command._parser().parse_args
    lines = re.findall(r"^python -m exercises\.autograder (.+)$", GUIDE, re.MULTILINE)
    assert len(lines) >= 12
    for line in lines:
        parse(shlex.split(line))  # which would exit with an error message
    assert parse(["grade"]).course == command.COURSE
    assert parse(["rehearse", "5"]).course == command.COURSE / "rehearsal"
    told = set(re.findall(r"`(--[a-z-]+)", GUIDE))
    helps = command._parser()._subparsers._group_actions[0].choices.values()
    known = {option for one in helps for action in one._actions for option in action.option_strings}
    assert told <= known
    assert {"--missing-as-zero", "--workers"} <= told


@pytest.mark.full
@pytest.mark.isolated
def test_an_assignment_goes_out_and_comes_back(tmp_path):
    """A round trip through nbgrader's exchange, with the commands that the instructors' guide names."""
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange").chmod(0o777)
    settings = GUIDE.partition("nbgrader_config.py`, for students")[2].split("```python\n")[1].split("```")[0]
    assert "/srv/nbgrader/exchange" in settings
    config = tmp_path / "etc" / "nbgrader_config.py"
    config.parent.mkdir()
    config.write_text(settings.replace("/srv/nbgrader/exchange", str(tmp_path / "exchange")))
    variables = {
        "TRANSFORMER_LESSONS_COURSE": str(tmp_path / "course"),
        "JUPYTER_CONFIG_PATH": str(config.parent),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "none"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }

    def call(command: str, folder: Path, *more: str) -> str:
        """Run a command of the guide, with the guide's configuration and no other."""
        assert f"`{command}`" in GUIDE or f"\n{command}\n" in GUIDE, f"the guide does not name: {command}"
        line = " ".join([command.replace("/home/teacher", str(tmp_path)), *more])
        about = {"cwd": folder, "env": os.environ | variables, "text": True, "timeout": 600}
        done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **about)
        assert done.returncode == 0, done.stdout
        return done.stdout

    student = tmp_path / "student"
    student.mkdir()
    call(f'python -m exercises.autograder release {NAME} --due "2026-12-01 23:59 +0100"', ROOT)
    release = f"nbgrader release_assignment {NAME} --CourseDirectory.release_directory=release"
    assert f"Released as: transformers {NAME}" in call(release, ROOT / "exercises")
    call("nbgrader fetch_assignment", student, NAME)
    handed_out = ROOT / "exercises" / "release" / NAME / f"{NAME}.ipynb"
    assert (student / NAME / f"{NAME}.ipynb").read_bytes() == handed_out.read_bytes()
    call("nbgrader submit", student, NAME)
    assert "Processing 1 submissions" in call(f"nbgrader collect {NAME}", ROOT / "exercises")
    graded = call("python -m exercises.autograder grade /home/teacher/course/submitted", ROOT)
    assert f"{NAME}  0 of " in graded
    assert "not graded" not in graded
