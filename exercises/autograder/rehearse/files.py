"""A class's files as an instructor gets them: Canvas's archive, or nbgrader's folder."""

import json
import random
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import nbformat
from nbformat import NotebookNode

from exercises.autograder.rehearse.classes import TWICE, UNREADABLE, Student, students
from exercises.autograder.rehearse.wounds import PROGRAMS, TROUBLES, cut_off
from transformer_lessons.data.files import replacing, write_json

__all__ = ["KEY", "write"]

Layout = Literal["canvas", "nbgrader"]
KEY = "what_is_in_it.json"  # beside what is handed in, for whoever wants to compare
TIMES = {False: "2026-01-15 12:00:00 UTC", True: "2026-01-17 09:30:00 UTC"}  # in time, and late
FIRST_USER, FIRST_FILE = 1_000, 50_000  # Canvas's numbers


@dataclass(frozen=True)
class _File:
    """A notebook as it was saved.

    Attributes:
        student: whose.
        name: how it is called.
        number: of a student's files, the later the greater.
        text: what it holds.
    """

    student: Student
    name: str
    number: int
    text: str


def write(
    folder: Path,
    number: int,
    assignment: str,
    *,
    seed: int = 0,
    layout: Layout = "canvas",
    hostile: bool = False,
) -> Path:
    """Write a class's files; what to hand to the grader. `KEY` beside it says who did what.

    The same arguments write the same bytes.

    Args:
        folder: made if it is not there.
        number: of students.
        assignment: its name.
        seed: another one gives another class.
        layout: "canvas" for its archive, "nbgrader" for a folder STUDENT/ASSIGNMENT with times.
        hostile: whether some code runs forever.

    Raises:
        ValueError: for a number below 1, an assignment that is not there, or an unknown layout.
        FileExistsError: if what is to be written is there already.
    """
    layouts = {"canvas": (f"{assignment}.zip", _canvas), "nbgrader": ("submitted", _nbgrader)}
    if layout not in layouts:
        raise ValueError(f"layout: expected one of {', '.join(layouts)}, got {layout!r}")
    group = list(students(number, assignment, seed, hostile=hostile))
    name, put = layouts[layout]
    source = Path(folder) / name
    if source.exists():
        raise FileExistsError(f"{source} is there already")
    source.parent.mkdir(parents=True, exist_ok=True)
    put(source, [file for student in group for file in _files(student, assignment)], assignment)
    about = [_about(student, layout) for student in group]
    write_json(source.parent / KEY, {"assignment": assignment, "seed": seed, "students": about})
    return source


def _files(student: Student, assignment: str) -> Iterator[_File]:
    """What a student hands in, as their program saves it."""
    if student.notebook is None:
        return
    chance = random.Random(student.student)
    if student.draft is not None:
        yield _File(student, assignment, 0, _text(student, student.draft, chance))
    text = _text(student, student.notebook, chance)
    is_copy = student.program == "Colab" and student.trouble != TWICE and chance.random() < 0.5
    name = f"Copy of {assignment}" if is_copy else assignment
    cut = cut_off(text) if student.trouble == UNREADABLE else text
    yield _File(student, name, int(student.trouble == TWICE), cut)


def _text(student: Student, notebook: NotebookNode, chance: random.Random) -> str:
    content = json.loads(nbformat.writes(notebook))
    if student.trouble in TROUBLES:
        TROUBLES[student.trouble](content, chance)
    return json.dumps(PROGRAMS[student.program](content), indent=1, ensure_ascii=False) + "\n"


def _canvas(path: Path, files: list[_File], _: str) -> None:
    """One archive with all files in it, whose members all have the same date."""
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for number, file in enumerate(files):
            who = f"{file.student.student}{'_LATE' if file.student.is_late else ''}_{_user(file.student)}"
            again = f"-{file.number}" if file.number else ""
            name = f"{who}_{FIRST_FILE + number}_{file.name}{again}.ipynb"
            archive.writestr(zipfile.ZipInfo(name), file.text.encode(), zipfile.ZIP_DEFLATED)


def _nbgrader(path: Path, files: list[_File], assignment: str) -> None:
    """A folder for each student."""
    for file in files:
        folder = path / file.student.student / assignment
        folder.mkdir(parents=True, exist_ok=True)
        again = f" ({file.number})" if file.number else ""
        (folder / f"{file.name}{again}.ipynb").write_text(file.text, encoding="utf-8")
        (folder / "timestamp.txt").write_text(TIMES[file.student.is_late], encoding="utf-8")


def _user(student: Student) -> int:
    return FIRST_USER + int(student.student.rpartition("-")[2])


def _about(student: Student, layout: Layout) -> dict:
    """What there is to know of a student; the id is the one that the intake gives."""
    known = f"{student.student}_{_user(student)}" if layout == "canvas" else student.student
    fields = ("program", "trouble", "is_late", "copied_from", "kinds")
    return {"student": known, "name": student.student} | {name: getattr(student, name) for name in fields}
