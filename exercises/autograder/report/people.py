"""Lists of students, each with what a person may have to do about them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exercises.autograder.course.marks import Mark
from exercises.autograder.result import Result

__all__ = [
    "Aside",
    "ByHand",
    "Flagged",
    "Late",
    "Missing",
    "Person",
    "Repaired",
    "by_hand",
    "flagged",
    "late",
    "missing",
    "not_graded",
    "people",
    "repaired",
]

# Said of a submission in lists of their own.
ELSEWHERE = {"repair", "unsafe", "late"}


@dataclass(frozen=True)
class Person:
    """A student: the id, and the name as far as it is known, or ""."""

    student: str
    name: str = ""


@dataclass(frozen=True)
class ByHand:
    """Which cells of a submission wait for a person."""

    person: Person
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Flagged:
    """Something in a submission to look at; `cell` and `line` are "" where it is about all of it."""

    person: Person
    kind: str
    text: str
    cell: str = ""
    line: str = ""


@dataclass(frozen=True)
class Aside:
    """A file that was not graded, and why; of its student and assignment, what is known, or ""."""

    person: Person
    path: str
    reason: str
    assignment: str = ""


@dataclass(frozen=True)
class Missing:
    """Who handed in nothing; `aside` says that a file of theirs was not graded."""

    person: Person
    aside: bool = False


@dataclass(frozen=True)
class Repaired:
    """What was mended in a submission, one sentence each."""

    person: Person
    repairs: tuple[str, ...]


@dataclass(frozen=True)
class Late:
    """When it was handed in, in UTC and as text, or "", and the points it lost for that."""

    person: Person
    timestamp: str
    penalty: float


def people(marks: Iterable[Mark], results: Iterable[Result]) -> dict[str, Person]:
    """By id, all who have a mark or a result; nothing else is asked for a name."""
    found = {one.student: Person(one.student) for one in results}
    named = {one.student: Person(one.student, f"{one.first_name} {one.last_name}".strip()) for one in marks}
    return found | named


def by_hand(marks: Iterable[Mark], known: Mapping[str, Person]) -> tuple[ByHand, ...]:
    """Whose submission waits for a person, and with which cells."""
    waiting = ((known[one.student], [n for n, cell in one.cells.items() if cell.waits]) for one in marks)
    return tuple(ByHand(person, tuple(cells)) for person, cells in waiting if cells)


def flagged(results: Iterable[Result], known: Mapping[str, Person]) -> tuple[Flagged, ...]:
    """All flags, but for those that only repeat another list."""
    return tuple(
        Flagged(known[one.student], flag.kind, flag.text, flag.cell or "", flag.line)
        for one in results
        for flag in one.flags
        if flag.kind not in ELSEWHERE
    )


def repaired(results: Iterable[Result], known: Mapping[str, Person]) -> tuple[Repaired, ...]:
    """Whose submission was mended."""
    return tuple(Repaired(known[one.student], tuple(one.repairs)) for one in results if one.repairs)


def late(marks: Iterable[Mark], results: Iterable[Result], known: Mapping[str, Person]) -> tuple[Late, ...]:
    """Who lost points for being late, or is flagged as late: without a due date, no penalty tells of it."""
    said = {one.student for one in results if any(flag.kind == "late" for flag in one.flags)}
    return tuple(
        Late(
            known[one.student], one.timestamp.isoformat(" ", "minutes") if one.timestamp else "", one.penalty
        )
        for one in marks
        if one.penalty > 0 or one.student in said
    )


def not_graded(
    found: Iterable[Mapping[str, Any]], assignment: str, known: Mapping[str, Person]
) -> tuple[Aside, ...]:
    """Files of this assignment that were not graded, and those of which nobody knows the assignment."""
    kept = (one for one in found if one.get("assignment") in (None, "", assignment))
    return tuple(
        Aside(
            known.get(one.get("student") or "", Person(one.get("student") or "")),
            str(one.get("path") or ""),
            str(one.get("reason") or ""),
            one.get("assignment") or "",
        )
        for one in kept
    )


def missing(
    marks: Iterable[Mark], aside: Iterable[Aside], known: Mapping[str, Person]
) -> tuple[Missing, ...]:
    """Whom the gradebook knows without a submission."""
    have = {one.person.student for one in aside}
    return tuple(Missing(known[one.student], one.student in have) for one in marks if not one.submitted)
