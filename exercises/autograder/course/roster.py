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
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook

from exercises.autograder.course.folders import Course
from exercises.autograder.export.sheets import sheet, template_text
from exercises.autograder.export.templates import name_and_number
from exercises.autograder.intake.names import safe_id
from transformer_lessons.data.files import read_json, write_json

__all__ = ["Enrolled", "enrol", "known", "read"]

NAMES = ("first_name", "last_name", "email", "lms_user_id")  # as nbgrader calls them
# By the column that only they have: which hold the number, the id (the first that is filled in), the name, the
# address, and what nbgrader keeps as the id in the LMS.
LAYOUTS = {
    "Identifier": (
        "Identifier",
        ("Email address", "Username", "ID number"),
        "Full name",
        "Email address",
        "ID number",
    ),
    "SIS Login ID": ("ID", ("SIS Login ID", "SIS User ID"), "Student", "", "ID"),
    "id": ("lms_user_id", ("id",), "", "email", "lms_user_id"),
}


@dataclass(frozen=True)
class Enrolled:
    """Somebody of the class; the number is what the platform puts into the names of files, "" if it has none."""

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
    layout = next((LAYOUTS[name] for name in LAYOUTS if name in found.header), None)
    if layout is None:
        raise ValueError(
            f"roster: expected Moodle's grading worksheet, Canvas's gradebook, or the columns id, "
            f"{', '.join(NAMES)}; got {', '.join(found.header[:8])}"
        )
    people: list[Enrolled] = []
    rows: dict[tuple[str, str], int] = {}  # of ids and numbers
    for n, cells in enumerate(found.rows, start=2):
        row = {name: cell.strip() for name, cell in zip(found.header, cells, strict=True)}
        # Canvas has rows for what an assignment is worth, and for a student who only tests the course.
        if not any(cells) or row.get("Student") in ("", "Points Possible", "Student, Test"):
            continue
        person = _enrolled(n, row, *layout)
        people.append(person)
        for what, key in (("id", person.student.casefold()), ("number", person.number)):
            if key and rows.setdefault((what, key), n) != n:
                both = f"{rows[what, key]} and {n}"
                raise ValueError(f"roster: expected everybody once, got {key} in the rows {both}")
    return people


def _enrolled(
    n: int, row: dict[str, str], number: str, ids: tuple[str, ...], name: str, email: str, lms: str
) -> Enrolled:
    student = safe_id(next((row[column] for column in ids if row.get(column)), ""))
    if not student:
        raise ValueError(f"roster: expected {' or '.join(ids)} in row {n}, got nothing")
    digits = re.search(r"\d*$", row.get(number, ""))[0]  # "Participant 123456", in whatever language
    names = _names(row[name]) if row.get(name) else (row.get("first_name", ""), row.get("last_name", ""))
    return Enrolled(digits, student, *names, row.get(email, ""), row.get(lms, ""))


def _names(full: str) -> tuple[str, str]:
    """First and last name of “Last, First” and of “First Middle Last”."""
    last, comma, first = (part.strip() for part in full.partition(","))
    if not comma:
        first, _, last = full.rpartition(" ")
    return first, last


def known(course: Course) -> dict[str, str]:
    """Ids by the platform's numbers, of everybody enrolled so far."""
    path = course.folder / "roster.json"
    return read_json(path) if path.exists() else {}


def enrol(course: Course, people: Collection[Enrolled]) -> None:
    """Have the course and the gradebook know the class, also whoever never hands anything in.

    Raises:
        ValueError: if somebody has been taken in before under another id, or has another id on an earlier
            roster: nobody would know that the two are one.
    """
    if not people:
        return
    numbers = {person.number: person.student for person in people if person.number}
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
        for person in people:
            about = {name: getattr(person, name) for name in NAMES if getattr(person, name)}
            gradebook.update_or_create_student(person.student, **about)
    write_json(course.folder / "roster.json", {**before, **numbers})
