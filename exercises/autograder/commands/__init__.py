"""The commands of ``python -m exercises.autograder``: `grading` changes a course, `reporting` shows it.

What they share is here.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from exercises.autograder.batch.grade import Summary
from exercises.autograder.course.folders import Course

OK, INCOMPLETE = 0, 1
ME = "python -m exercises.autograder"


class CommandOutput(NamedTuple):
    """What a command prints, and its exit code."""

    lines: list[str]
    code: int = OK  # the exit code


def failures(summary: Summary) -> list[str]:
    """A line for each submission that failed."""
    return [f"FAILED: {one.path}: {one.reason}" for one in summary.failed]


def course_in(folder: Path) -> Course:
    """The course in a folder; ValueError if there is none."""
    if not (folder / "gradebook.db").exists():
        raise ValueError(f"--course: expected a course's folder, got {folder}, where nothing was graded yet")
    return Course(folder)


def select_names(wanted: list[str], known: Collection[str]) -> list[str]:
    """The assignments that are asked for, or all if there are none; ValueError for an unknown one."""
    if unknown := [name for name in wanted if name not in known]:
        expected = f"one of {', '.join(known)}" if known else "a submission first; there is none yet"
        raise ValueError(f"ASSIGNMENT: expected {expected}, got {', '.join(unknown)}")
    return wanted or list(known)
