"""Who is who: from the platform's list of the class, so that one student has one id all term.

Canvas and Moodle put a number into the names of the files that they hand out. Moodle's is of a student in one
assignment and another one in the next; its grading worksheet says which address the number stands for. So with a
roster the id is what somebody logs in with, and without one it is the name with the number.

What is read, by its columns:

    Identifier, Full name, Email address, Username, ID number       Moodle's grading worksheet
    Student, ID, SIS User ID, SIS Login ID                          the gradebook that Canvas exports
    id, first_name, last_name, email, lms_user_id                   what `nbgrader db student import` reads

`roster.json` in the course's folder keeps the numbers. Moodle gives none of them out twice, so they add up.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook

from exercises.autograder.course.folders import Course
from exercises.autograder.export.matching import name_and_number
from exercises.autograder.export.sheets import sheet, template_text
from exercises.autograder.intake.names import safe_id
from transformer_lessons.data.files import read_json, write_json

__all__ = ["Enrolled", "enrol", "known", "read"]

# By the column that only they have: which hold the number, the id (the first that is filled in) and the rest.
MOODLE, CANVAS, OURS = "Identifier", "SIS Login ID", "id"
LAYOUTS = {
    MOODLE: {
        "number": (MOODLE,),
        "student": ("Email address", "Username", "ID number"),
        "name": ("Full name",),
        "email": ("Email address",),
        "lms_user_id": ("ID number",),
    },
    CANVAS: {
        "number": ("ID",),
        "student": (CANVAS, "SIS User ID"),
        "name": ("Student",),
        "email": (),
        "lms_user_id": ("ID",),
    },
    OURS: {
        "number": ("lms_user_id",),
        "student": (OURS,),
        "name": (),
        "email": ("email",),
        "lms_user_id": ("lms_user_id",),
    },
}


@dataclass(frozen=True)
class Enrolled:
    """Somebody of the class.

    Attributes:
        number: that the platform puts into the names of files; "" if it has none.
        student: the id.
        first_name, last_name, email, lms_user_id: as nbgrader keeps them, or "".
    """

    number: str
    student: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""


def read(path: Path) -> list[Enrolled]:
    """The class, as a platform exports it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is of no known layout, or somebody in it has no id, or another one's.
    """
    found = sheet(template_text(path))
    layout = next((LAYOUTS[one] for one in LAYOUTS if one in found.header), None)
    if layout is None:
        raise ValueError(
            f"roster: expected Moodle's grading worksheet, Canvas's gradebook, or the columns id, first_name, "
            f"last_name, email, lms_user_id; got {', '.join(found.header[:8])}"
        )
    if not set(layout["student"]) & set(found.header):
        raise ValueError(
            f"roster: expected a column that says who somebody is in every assignment "
            f"({', '.join(layout['student'])}), got {', '.join(found.header[:8])}"
        )
    rows = {n: dict(zip(found.header, row, strict=True)) for n, row in enumerate(found.rows, 2)}
    return _each_once({n: _enrolled(n, row, layout) for n, row in rows.items() if _is_somebody(row)})


def _is_somebody(row: dict[str, str]) -> bool:
    """Canvas has rows for what an assignment is worth, and for a student who only tests the course."""
    name = row.get("Student", "?").strip()
    return any(row.values()) and name not in ("", "Points Possible", "Student, Test")


def _enrolled(n: int, row: dict[str, str], layout: dict[str, tuple[str, ...]]) -> Enrolled:
    of = {name: _first(row, columns) for name, columns in layout.items()}
    number = re.search(r"\d*$", of["number"])[0]  # "Participant 123456", in whatever language
    if not (student := safe_id(of["student"])):
        raise ValueError(f"roster: expected {' or '.join(layout['student'])} in row {n}, got nothing")
    names = (row.get("first_name", ""), row.get("last_name", "")) if not of["name"] else _names(of["name"])
    return Enrolled(number, student, *names, of["email"], of["lms_user_id"])


def _first(row: dict[str, str], columns: tuple[str, ...]) -> str:
    return next((row[name].strip() for name in columns if row.get(name, "").strip()), "")


def _names(full: str) -> tuple[str, str]:
    """First and last name of “Last, First” and of “First Middle Last”."""
    last, comma, first = (part.strip() for part in full.partition(","))
    if not comma:
        first, _, last = full.rpartition(" ")
    return first, last


def _each_once(people: dict[int, Enrolled]) -> list[Enrolled]:
    ids, numbers = {}, {}
    for n, one in people.items():
        for what, seen in ((one.student.casefold(), ids), (one.number, numbers)):
            if what and seen.setdefault(what, n) != n:
                raise ValueError(
                    f"roster: expected everybody once, got {what} in the rows {seen[what]} and {n}"
                )
    return list(people.values())


def known(course: Course) -> dict[str, str]:
    """Ids by the platform's numbers, of everybody enrolled so far."""
    path = course.folder / "roster.json"
    return read_json(path) if path.exists() else {}


def enrol(course: Course, people: list[Enrolled]) -> None:
    """Have the course and the gradebook know the class, also whoever never hands anything in.

    Raises:
        ValueError: if somebody has been taken in before under another id, or has another id on an earlier
            roster: nobody would know that the two are one.
    """
    if not people:
        return
    numbers = {one.number: one.student for one in people if one.number}
    before = known(course)
    changed = [
        f"{before[n]} is {numbers[n]} now" for n in sorted(numbers) if before.get(n, numbers[n]) != numbers[n]
    ]
    there = {student for student, _ in course.submissions()}
    changed += [
        f"{student} is there already"
        for student in sorted(there - set(numbers.values()))
        if name_and_number(student)[1] in numbers
    ]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ValueError(
            f"roster: expected those who were taken in under the id that they have, got {'; '.join(changed[:3])}"
            f"{more}. A roster is for the first hand-in on: use another course's folder, or go on without."
        )
    with Gradebook(course.gradebook) as gradebook:
        for one in people:
            about = {name: getattr(one, name) for name in ("first_name", "last_name", "email", "lms_user_id")}
            gradebook.update_or_create_student(
                one.student, **{name: text for name, text in about.items() if text}
            )
    write_json(course.folder / "roster.json", {**before, **numbers})
