"""The result of grading a submission: points, messages for the student, and flags for a person."""

from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from transformer_lessons.data.files import read_json


@dataclass(frozen=True)
class Flag:
    """Something for a person to look at; it never changes a mark."""

    kind: str  # in one word: "missing", "timeout", "library", "package", "ended", …
    text: str  # one sentence that says what was seen
    cell: str | None = None  # the grade id of the cell it concerns, or None
    line: str = ""  # the line of the student's code, or ""


@dataclass(frozen=True)
class Part:
    """One requirement of a check, as a test cell counted it."""

    task: str  # the name of the check's task
    requirement: str  # its id there
    sentence: str  # what is required, in words for the student
    worth: float  # the points it can give
    met: bool  # whether it was met and so gave them


@dataclass(frozen=True)
class CellResult:
    """The outcome of one test cell."""

    cell: str  # its grade id
    earned: float  # points
    worth: float  # the most it can give
    status: str = "done"  # "done" if the test ran to its end, else why not: "error", "missing", "timeout"
    # What its checks said about the student's code: a diagnosis, for the student
    messages: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()  # points per requirement, of the checks that were scored
    mistakes: tuple[str, ...] = ()  # the known mistakes that the checks recognised, "task/mistake"


@dataclass(frozen=True)
class Result:
    """The outcome of one submission."""

    student: str  # the student's id
    assignment: str  # the assignment's name
    # One for each automatically graded test cell, in the master's order
    cells: tuple[CellResult, ...] = ()
    flags: tuple[Flag, ...] = ()  # for a person
    repairs: tuple[str, ...] = ()  # what the intake repaired, one sentence each
    isolation: str = "full"  # what confined the student's code: "full", or "none" where a person insisted
    seconds: float = 0.0  # wall-clock seconds of the execution
    versions: dict[str, str] = field(default_factory=dict)  # the versions that marks may depend on, by name
    key: str = ""  # the grading's key in the course's journal; it changes with all it depends on
    submission: str = ""  # a digest of what the student wrote
    path: str = ""  # where it came from, for people
    timestamp: str | None = None  # when it was handed in, if known
    late: bool = False  # whether Canvas marks it as late; without a timestamp, nothing else tells
    # A digest of each graded answer, by grade id: a person has to look again if it changes
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def earned(self) -> float:
        """The points of all tests."""
        return sum(cell.earned for cell in self.cells)

    @property
    def worth(self) -> float:
        """The most that all tests can give."""
        return sum(cell.worth for cell in self.cells)


def read(path: Path) -> Result:
    """Read a result from JSON.

    Raises:
        ValueError: if the file is not such a record.
        FileNotFoundError: if there is no such file.
    """
    try:
        return rebuilt(Result, read_json(path))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name}: expected a grading result, got {error}") from None


def rebuilt(kind: Any, plain: Any) -> Any:
    """The object that `dataclasses.asdict` and JSON made plain; `kind` is its dataclass, or a field's type.

    Raises:
        AttributeError, KeyError, TypeError: if the plain value is not of this kind.
    """
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: rebuilt(kinds[name], value) for name, value in plain.items()})
    if get_origin(kind) is tuple:
        return tuple(rebuilt(get_args(kind)[0], value) for value in plain)
    return plain
