"""The commands of ``python -m exercises.autograder``: `grading` changes a course, `reporting` shows it.

What they share is here: what a command says, in lines for people and as data for scripts, and how it ends.
"""

import errno
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exercises.autograder.batch.grade import BusyError, Failure
from exercises.autograder.batch.pool import PoolGoneError
from exercises.autograder.course.folders import Course
from exercises.autograder.course.gradebook import LockedError

__all__ = ["LEFT", "ME", "STOPS", "CommandOutput", "RefusedError", "failures", "known_course", "known_names"]
__all__ += ["stopped"]

FINE, LEFT, REFUSED, HALFWAY, INTERRUPTED = 0, 1, 2, 3, 130
ME = "python -m exercises.autograder"


class RefusedError(Exception):
    """Nothing is done, for a reason that a person can change."""


STOPS = (RefusedError, ValueError, BusyError, LockedError, PoolGoneError, OSError, KeyboardInterrupt)


@dataclass
class CommandOutput:
    """What a command says.

    Attributes:
        lines: for people.
        data: for scripts.
        code: the exit code.
    """

    lines: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    code: int = FINE


def stopped(error: BaseException) -> tuple[int, str]:
    """The exit code and what is said if a command ends before its end."""
    again = "What was done is kept: the same command goes on from there."
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, f"Stopped. {again}"
    if isinstance(error, LockedError):
        return HALFWAY, f"The gradebook is in use: close what has it open (formgrader, a viewer). {again}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return HALFWAY, f"There is no room left on the disk: make some. {again}"
    if isinstance(error, OSError | PoolGoneError) and not isinstance(error, FileNotFoundError):
        return HALFWAY, f"{error}. {again}"
    return REFUSED, str(error)


def failures(failed: list[Failure]) -> tuple[list[str], list[dict]]:
    """What could not be done, for people and for scripts."""
    return [f"FAILED: {one.path}: {one.reason}" for one in failed], [one._asdict() for one in failed]


def known_course(folder: Path) -> Course:
    """A course of which there is something to be said."""
    if not (folder / "gradebook.db").exists():
        raise RefusedError(f"--course: expected a course's folder, got {folder}, which has no gradebook.db")
    return Course(folder)


def known_names(wanted: list[str], known: Collection[str]) -> list[str]:
    """The assignments that are asked for, or else all."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise RefusedError(f"ASSIGNMENT: expected one of {', '.join(known)}, got {', '.join(unknown)}")
    return wanted or list(known)
