"""Which row of a template is whose.

A row is a student's if a number or a login says so, and else if a name does that nobody else has. What is said
twice has to agree: a mark in the wrong row is worse than one that is missing, which is named.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from exercises.autograder.course.marks import Mark

__all__ = ["Matches", "Person", "letters", "match", "name_and_number", "names_of"]


@dataclass(frozen=True)
class Person:
    """What a row of a template says of its student."""

    number: str  # the platform's own, which its archives put into the names of files
    logins: frozenset[str]  # whatever else only they have: logins, numbers of the school, addresses
    names: frozenset[str]  # as `names_of` has them


@dataclass
class Matches:
    """Marks by the number of their row, students with something to enter who have none, and what to look at."""

    marks: dict[int, Mark] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def letters(text: str) -> str:
    """The letters and digits of a name, without accents and capitals, as platforms differ in the rest."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in parts if letter.isalnum())


def names_of(first: str, last: str = "") -> frozenset[str]:
    """A name in both orders; "Last, First" may also come as one."""
    if not last:
        last, _, first = first.partition(",")
    return frozenset({letters(first + last), letters(last + first)} - {""})


def name_and_number(student: str) -> tuple[str, str]:
    """An id taken apart: that of Canvas' and Moodle's files ends with the platform's number, "" of others."""
    found = re.fullmatch(r"(.+)_(\d+)", student)
    return (found[1], found[2]) if found else (student, "")


def match(marks: Iterable[Mark], people: dict[int, Person], *, by_lms_id: bool) -> Matches:
    """Find the row of each student.

    Args:
        marks: of one assignment.
        people: by the number of their row, 0 being the one below the header.
        by_lms_id: whether the platform's number is also what the gradebook keeps as the id in the LMS.
    """
    found, rows = Matches(), {}
    for mark in marks:
        sure, likely = _rows(mark, people, by_lms_id)
        those = sure or likely
        if len(those) == 1:
            rows.setdefault(those[0], []).append(mark)
        elif mark.submitted:
            found.unmatched.append(mark.student)
            if those:
                what = "are both theirs, by number or login" if sure else "have that name"
                listed = " and ".join(str(row + 2) for row in those)  # as a spreadsheet counts, with a header
                found.notes.append(f"{mark.student}: the rows {listed} {what}.")
    for row, those in rows.items():
        submitted = [mark for mark in those if mark.submitted]
        if len(submitted) > 1:
            ids = [mark.student for mark in submitted]
            found.unmatched += ids
            found.notes.append(f"{' and '.join(ids)} are both in row {row + 2}; none was entered.")
        else:
            found.marks[row] = (submitted or those)[0]
            found.notes += _doubts(found.marks[row], people[row])
    return found


def _rows(mark: Mark, people: dict[int, Person], by_lms_id: bool) -> tuple[list[int], list[int]]:
    """A student's rows by number or login, and those with the name."""
    name, number = name_and_number(mark.student)
    numbers = {number, mark.lms_user_id if by_lms_id else ""} - {""}
    logins = {text.casefold() for text in (mark.student, mark.email, mark.lms_user_id) if text}
    names = names_of(mark.first_name, mark.last_name) | names_of(name)
    sure = [n for n, person in people.items() if person.number in numbers or person.logins & logins]
    return sure, [n for n, person in people.items() if person.names & names]


def _doubts(mark: Mark, person: Person) -> Iterator[str]:
    """A number that was read from an id may be another number; then the names say so."""
    name, number = name_and_number(mark.student)
    if number == person.number and mark.submitted and person.names:
        known = {letters(name), *names_of(mark.first_name, mark.last_name)} - {""}
        if not any(_alike(one, other) for one in known for other in person.names):
            yield f"{mark.student} was found by the number {number}, but the name there differs: look at it."


def _alike(one: str, other: str) -> bool:
    """Whether one contains the other: Moodle puts a group's name in front, and somebody may leave one out."""
    shorter, longer = sorted((one, other), key=len)
    return one == other or (len(shorter) > 2 and shorter in longer)
