"""Rosters from Canvas and Moodle: a student has one id, whatever number their files carry."""

import shutil
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder.course.folders import Course
from exercises.autograder.course.roster import Enrolled, enrol, known_ids, read_roster
from exercises.autograder.intake.names import on_roster, sender_of

FIXTURES = Path(__file__).parent / "export_fixtures"
MASKS, ATTENTION = "ps02_masks", "ps01_embeddings_attention"
ADA, ZOE = "ada@uni.example", "zoe@uni.example"


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def students(course: Path) -> dict[str, tuple]:
    """The students in the gradebook, by id."""
    with Gradebook(Course(course).gradebook) as book:
        return {one.id: (one.first_name, one.last_name, one.email, one.lms_user_id) for one in book.students}


# ---- Reading


def test_exported_rosters_are_read_without_rows_that_are_no_student():
    assert read_roster(FIXTURES / "moodle.csv")[:2] == [
        Enrolled("501", ADA, "Ada", "Example", ADA),
        Enrolled("502", ZOE, "Zoë", "Beispiel", ZOE),
    ]
    people = read_roster(FIXTURES / "canvas.csv")
    assert people[0] == Enrolled("101", ADA, "Ada", "Example", "", "101")
    assert not {"Points Possible", "Student"} & {one.last_name for one in people}
    assert all(one.number and one.student for one in people)
    assert read_roster(FIXTURES / "canvas_names.csv") == [
        Enrolled("101", ADA, "Ada", "Example", "", "101"),
        Enrolled("102", "zoe", "Zoë", "Beispiel", "", "102"),
    ]


def test_nbgraders_list_is_read_and_a_login_replaces_a_missing_address(tmp_path):
    text = "id,first_name,last_name,email,lms_user_id\nada,Ada Mary,Example,a@b.example,17\n17,,,,al17\n"
    people = read_roster(write(tmp_path / "students.csv", text))
    seventeen = Enrolled("", "17", lms_user_id="al17")  # which is not the number 17
    assert people == [Enrolled("17", "ada", "Ada Mary", "Example", "a@b.example", "17"), seventeen]
    text = "Identifier;Full name;Email address;Username\nTeilnehmer/in 7;Ada Mary Example;;aex\n"
    assert read_roster(write(tmp_path / "sheet.csv", text)) == [Enrolled("7", "aex", "Ada Mary", "Example")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Name,Mark\nAda,1\n", "Moodle's grading worksheet, Canvas's gradebook, or .*got Name, Mark"),
        ("Identifier,Grade\nParticipant 1,\n", "Email address or Username or ID number in row 2"),
        ("x\n1\n", "a table in CSV, got"),
        ("id,email\nada,\nAda,\n", "everybody once, got ada in rows 2 and 3"),
        ("id,lms_user_id\nada,7\nzoe,7\n", "everybody once, got 7 in rows 2 and 3"),
    ],
)
def test_what_is_no_roster_is_refused(tmp_path, text, said):
    with pytest.raises(ValueError, match=f"roster: expected .*{said}"):
        read_roster(write(tmp_path / "roster.csv", text))


# ---- Who sent a file


@pytest.mark.parametrize(
    ("path", "student", "said"),
    [
        (f"Eve_9_assignsubmission_file_/{MASKS}.ipynb", "Eve_9", "The number 9 is"),
        (f"eve__{MASKS}.ipynb", "eve", "“eve” is"),
        (f"Ada@Uni.example/{MASKS}.ipynb", ADA, ""),
        (f"anon_501_77_{MASKS}.ipynb", "anon_501", ""),
        (f"ada@uni.example/exercise 2/{MASKS}.ipynb", ADA, ""),
        (f"{MASKS}.ipynb", None, ""),
    ],
)
def test_student_missing_from_the_roster_stays_with_a_note(path, student, said):
    sender = sender_of(tuple(path.split("/")), [MASKS])
    found, note = on_roster(sender, {"501": ADA})
    assert (found.student, note) == (student, said and f"{said} not on the course's roster.")
    assert on_roster(sender, {}) == (sender, "")


# ---- A course


@pytest.mark.nbgrader
def test_one_student_has_one_id_in_all_assignments(tmp_path):
    """Moodle's numbers differ from one assignment to the next."""
    course = Course(tmp_path / "course")
    for name, numbers in {MASKS: {"Ada": 501, "Zoe": 502}, ATTENTION: {"Ada": 611, "Zoe": 612}}.items():
        rows = ["Identifier,Full name,Email address"]
        for who, number in (numbers | {"Eve": 613}).items():
            rows.append(f"Participant {number},{who} Example,{who.lower()}@uni.example")
        for who, number in numbers.items():
            sent = tmp_path / name / f"{who} Example_{number}_assignsubmission_file_"
            shutil.copytree(release.HERE / "release" / name, sent)
        sheet = write(tmp_path / "class.csv", "\r\n".join(rows))
        words = ["collect", tmp_path / name, "--roster", sheet, "--course", course.folder]
        assert command.main([str(word) for word in words]) == 0
    assert course.submissions() == [(who, name) for who in (ADA, ZOE) for name in (ATTENTION, MASKS)]
    eve = "eve@uni.example"
    assert students(course.folder) == {
        ADA: ("Ada", "Example", ADA, None),
        ZOE: ("Zoe", "Example", ZOE, None),
        eve: ("Eve", "Example", eve, None),
    }
    assert known_ids(course) == {"501": ADA, "502": ZOE, "611": ADA, "612": ZOE, "613": eve}


@pytest.mark.nbgrader
def test_enrolling_refuses_a_second_id_and_changes_nothing(tmp_path):
    course = Course(tmp_path)
    enrol(course, [Enrolled("501", ADA, email=ADA)])
    before = students(course.folder)
    with pytest.raises(ValueError, match=f"{ADA}, now zoe"):
        enrol(course, [Enrolled("501", "zoe")])
    assert (students(course.folder), known_ids(course)) == (before, {"501": ADA})
    enrol(course, [Enrolled("501", ADA, first_name="Ada"), Enrolled("", "paper@uni.example")])
    assert set(students(course.folder)) == {ADA, "paper@uni.example"}
    assert students(course.folder)[ADA][0] == "Ada"
    assert known_ids(course) == {"501": ADA, "@paper@uni.example": "paper@uni.example"}


@pytest.mark.nbgrader
def test_who_handed_in_before_being_enrolled_keeps_that_id(tmp_path):
    course = Course(tmp_path)
    taken_in = course.received("Zoë_502", MASKS)
    taken_in.parent.mkdir(parents=True)
    taken_in.write_text("{}")
    shutil.copytree(taken_in.parent, course.received("smith_501", MASKS).parent)  # a name given by hand
    for _ in range(2):  # doing it again changes nothing
        enrol(course, [Enrolled("501", ADA, "Ada"), Enrolled("502", ZOE, first_name="Zoë", email=ZOE)])
        assert known_ids(course) == {"501": ADA, "502": "Zoë_502"}
        assert set(students(course.folder)) == {ADA, "Zoë_502"}
    assert students(course.folder)["Zoë_502"][0] == "Zoë"
