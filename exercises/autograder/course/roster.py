"""Who is who, from the platform's list of the class, so that one student has one id all term.

Canvas and Moodle put a number into the names of the files that they hand out. Moodle gives a student another
one in each assignment; its grading worksheet says which address it belongs to. So with a roster the id is the
student's login, and without one it is the name with the number.

These files are read, here and by `export`, which fills marks in; they are known by their columns:

    Identifier, Full name, Email address, Username, ID number       Moodle's grading worksheet
    Student, ID, SIS User ID, SIS Login ID                          the gradebook that Canvas exports
    id, first_name, last_name, email, lms_user_id                   what `nbgrader db student import` reads

`roster.json` in the course's folder keeps the numbers; of a student without one, the id with an @ in front.
Moodle never gives a number out twice, so they accumulate.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nbgrader.api import Gradebook

from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import STUDENT_FIELDS
from exercises.autograder.intake.names import safe_id
from transformer_lessons.data.files import read_json, write_json

# Columns with a student's login; the first one that is filled in gives the id.
MOODLE = ("Email address", "Username", "ID number")  # in its grading worksheet
CANVAS = ("SIS Login ID", "SIS User ID")  # in the gradebook that it exports
LAYOUTS = {"Identifier": MOODLE, "SIS Login ID": CANVAS, "id": ("id",)}  # by a column that only they have
OTHER_LOGINS = ("ID", "Integration ID", "Student ID")
WORTH = "Points Possible"  # Canvas's row of what assignments are worth


@dataclass(frozen=True)
class Enrolled:
    """A member of the class."""

    number: str  # the number that the platform puts into the names of files, "" if none
    student: str  # the id, "" where nothing in the row can be one
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""
    # What identifies only them, in lower case
    logins: frozenset[str] = field(default=frozenset(), compare=False)


# ---- Reading


@dataclass(frozen=True)
class Sheet:
    """A table; all its rows are as long as the header."""

    header: list[str]
    rows: list[list[str]]
    delimiter: str


def template_text(path: Path, of: str = "template") -> str:
    """The text of what Canvas or Moodle exported; messages call it by the name `of`.

    Raises:
        ValueError: if the file is not in UTF-8: a spreadsheet has rewritten it, and may have changed more,
            such as long numbers.
        FileNotFoundError: if there is none.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        expected = "expected a CSV file in UTF-8, as downloaded"
        raise ValueError(f"{of}: {expected}; {path.name} is in another encoding") from None


def sheet(template: str, of: str = "template") -> Sheet:
    """The table in a CSV text; Canvas, and Excel in many countries, also separate by semicolons.

    Raises:
        ValueError: if it has no table.
    """
    delimiter = max(",;", key=template.partition("\n")[0].count)
    try:
        rows = [row for row in csv.reader(io.StringIO(template, newline=""), delimiter=delimiter) if row]
    except csv.Error:
        rows = []
    if not rows or len(rows[0]) < 2:
        raise ValueError(f"{of}: expected a table in CSV, got {template[:60]!r}")
    width = len(rows[0])
    if any(cell.strip() for row in rows for cell in row[width:]):
        raise ValueError(f"{of}: expected {width} cells in each row, got {max(map(len, rows))} in one")
    header = [cell.strip() for cell in rows[0]]
    return Sheet(header, [[*row, *[""] * width][:width] for row in rows[1:]], delimiter)


def students(found: Sheet, ids: tuple[str, ...], where: Mapping[str, int] = {}) -> dict[int, Enrolled]:
    """The students by row index, without empty rows and rows of Canvas's own.

    `ids` are the columns with logins, and `where` has the indices of columns if some have other names.
    """
    where = where or {name: n for n, name in enumerate(found.header)}
    people = {}
    for n, row in enumerate(found.rows):
        person = _enrolled({name: row[place].strip() for name, place in where.items()}, ids)
        if person != Enrolled("", "") and WORTH not in row[0]:
            people[n] = person
    return people


def _enrolled(cells: dict[str, str], ids: tuple[str, ...]) -> Enrolled:
    def first(*columns: str) -> str:
        return next((cells[name] for name in columns if cells.get(name)), "")

    full = first("Full name", "Student")
    names = _names(full) if full else (first("FirstName", "first_name"), first("LastName", "last_name"))
    participant = re.search(r"\d*$", first("Identifier"))[0]  # "Participant 123456", in any language
    other = first("ID", "lms_user_id")
    logins = frozenset(cells[name].casefold() for name in (*ids, *OTHER_LOGINS) if cells.get(name))
    email, lms = first("Email address", "email"), first("ID number", "ID", "lms_user_id")
    number = participant or (other if other.isdecimal() else "")
    return Enrolled(number, safe_id(first(*ids)) or "", *names, email, lms, logins)


def _names(full: str) -> tuple[str, str]:
    """First and last name of “Last, First” and of “First Middle Last”."""
    last, comma, first = (part.strip() for part in full.partition(","))
    if not comma:
        first, _, last = full.rpartition(" ")
    return first, last


def is_named_after(student: str, person: Enrolled) -> bool:
    """Whether an id is what Canvas or Moodle writes before a student's files: the name and the number.

    The number alone is not enough: whoever collects files by hand may have called somebody smith_12. Before
    the name, Moodle may put that of a group.
    """
    name, _, number = student.rpartition("_")
    if not number or number != person.number:
        return False
    both = person.first_name + person.last_name, person.last_name + person.first_name
    return any(letters(one) in letters(name) for one in both)


def letters(text: str) -> str:
    """Its letters and digits, without accents and capitals."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in parts if letter.isalnum())


# ---- The class


def read_roster(path: Path) -> list[Enrolled]:
    """Read the class from a file, as Canvas or Moodle exports it or nbgrader imports it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if its layout is unknown, or somebody in it has no id, or somebody else's.
    """
    found = sheet(template_text(path, "roster"), "roster")
    ids = next((LAYOUTS[name] for name in LAYOUTS if name in found.header), None)
    if ids is None:
        raise ValueError(
            f"roster: expected Moodle's grading worksheet, Canvas's gradebook, or the columns id, "
            f"{', '.join(STUDENT_FIELDS)}; got {', '.join(found.header[:8])}. If this is Moodle's in another "
            f"language, rename its columns to Identifier, Full name, {', '.join(MOODLE)}"
        )
    people: list[Enrolled] = []
    rows: dict[tuple[str, str], int] = {}  # where each id and number was seen
    for n, person in students(found, ids).items():
        row = n + 2  # as a spreadsheet counts, with a header
        if ids is CANVAS and (person.first_name, person.last_name) == ("Test", "Student"):
            continue  # as whom a teacher tries the course
        if not person.student:
            raise ValueError(f"roster: expected {' or '.join(ids)} in row {row}, got nothing")
        people.append(person)
        for what, key in (("id", person.student.casefold()), ("number", person.number)):
            if key and rows.setdefault((what, key), row) != row:
                both = f"{rows[what, key]} and {row}"
                raise ValueError(f"roster: expected everybody once, got {key} in rows {both}")
    return people


def known_ids(course: Course) -> dict[str, str]:
    """The ids of everybody enrolled so far, by the platform's number."""
    path = course.folder / "roster.json"
    return read_json(path) if path.exists() else {}


def enrol(course: Course, people: Collection[Enrolled]) -> None:
    """Enter the class into the course and the gradebook, including students who never hand anything in.

    A student taken in before under the name and number of a file keeps these as the id.

    Raises:
        ValueError: if somebody has another id on an earlier roster: nobody would know that the two are one.
    """
    if not people:
        return
    there = {student for student, _ in course.submissions()} - {person.student for person in people}
    taken_in = {person: one for person in people for one in there if is_named_after(one, person)}
    people = [replace(person, student=taken_in.get(person, person.student)) for person in people]
    numbers = {person.number or f"@{person.student}": person.student for person in people}
    before = known_ids(course)
    changed = [f"{before[n]}, now {now}" for n, now in sorted(numbers.items()) if before.get(n, now) != now]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ValueError(
            f"roster: expected everybody to keep their id, got {'; '.join(changed[:3])}{more}: "
            "use a new course folder, or the earlier roster."
        )
    with Gradebook(course.gradebook) as gradebook:
        for person in people:
            about = {name: getattr(person, name) for name in STUDENT_FIELDS if getattr(person, name)}
            gradebook.update_or_create_student(person.student, **about)
    write_json(course.folder / "roster.json", {**before, **numbers})
