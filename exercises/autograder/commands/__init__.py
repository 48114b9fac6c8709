"""The commands of ``python -m exercises.autograder``: `grading` changes a course, `reporting` shows it.

What they share is here: what a command says, in lines for people and as data for scripts.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exercises.autograder.batch.grade import Summary
from exercises.autograder.course.folders import Course

FINE, LEFT = 0, 1
ME = "python -m exercises.autograder"


@dataclass
class CommandOutput:
    """What a command says."""

    lines: list[str] = field(default_factory=list)  # for people
    data: dict[str, Any] = field(default_factory=dict)  # for scripts
    code: int = FINE  # the exit code


def failures(summary: Summary) -> tuple[list[str], list[dict]]:
    """What could not be done, for people and for scripts."""
    lines = [f"FAILED: {one.path}: {one.reason}" for one in summary.failed]
    return lines, [one.entry() for one in summary.failed]


def a_course(folder: Path) -> Course:
    """The course in a folder; ValueError if there is none."""
    if not (folder / "gradebook.db").exists():
        raise ValueError(f"--course: expected a course's folder, got {folder}, which has no gradebook.db")
    return Course(folder)


def known_names(wanted: list[str], known: Collection[str]) -> list[str]:
    """The assignments that are asked for, or else all."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"ASSIGNMENT: expected one of {', '.join(known)}, got {', '.join(unknown)}")
    return wanted or list(known)
