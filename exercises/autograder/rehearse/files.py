"""A class's files as an instructor gets them: Canvas's archive."""

import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises.autograder.rehearse.answers import TWICE, UNREADABLE, Student, students
from exercises.autograder.rehearse.corruptions import PROGRAMS, TROUBLES
from transformer_lessons.data.files import replacing, write_json

__all__ = ["KEY", "write"]

KEY = "what_is_in_it.json"  # beside what is handed in, for whoever wants to compare
FIRST_USER, FIRST_FILE = 1_000, 50_000  # Canvas's numbers


def write(folder: Path, number: int, assignment: str) -> Path:
    """Write a class's files; the archive to hand to the grader. `KEY` beside it says who did what.

    The same arguments write the same bytes.

    Args:
        folder: made if it is not there.
        number: of students.
        assignment: its name.

    Raises:
        ValueError: for a number below 1, or an assignment that is not there.
    """
    group, source = students(number, assignment), folder / f"{assignment}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    files = [(student, name, text) for student in group for name, text in _files(student, assignment)]
    with replacing(source) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for n, (student, name, text) in enumerate(files, start=FIRST_FILE):
            late = "_LATE" if student.is_late else ""
            member = f"{student.student}{late}_{_user(student)}_{n}_{name}.ipynb"
            archive.writestr(zipfile.ZipInfo(member), text.encode(), zipfile.ZIP_DEFLATED)
    write_json(folder / KEY, {"assignment": assignment, "students": [_about(student) for student in group]})
    return source


def _files(student: Student, assignment: str) -> Iterator[tuple[str, str]]:
    """What a student hands in, by name, as their program saves it."""
    if student.notebook is None:
        return
    chance = random.Random(student.student)
    if student.draft is not None:
        yield assignment, _text(student, student.draft, chance)
    text = _text(student, student.notebook, chance)
    cut = text[: len(text) * 3 // 5] if student.trouble == UNREADABLE else text
    is_copy = student.program == "Colab" and student.trouble != TWICE and chance.random() < 0.5
    again = "-1" if student.trouble == TWICE else ""
    yield f"{'Copy of ' if is_copy else ''}{assignment}{again}", cut


def _text(student: Student, notebook: NotebookNode, chance: random.Random) -> str:
    content = json.loads(nbformat.writes(notebook))
    if student.trouble in TROUBLES:
        TROUBLES[student.trouble](content, chance)
    return json.dumps(PROGRAMS[student.program](content), indent=1, ensure_ascii=False) + "\n"


def _user(student: Student) -> int:
    return FIRST_USER + int(student.student.rpartition("-")[2])


def _about(student: Student) -> dict:
    """What there is to know of a student; the id is the one that the intake gives."""
    fields = ("program", "trouble", "is_late", "copied_from", "kinds")
    known = {"student": f"{student.student}_{_user(student)}", "name": student.student}
    return known | {name: getattr(student, name) for name in fields}
