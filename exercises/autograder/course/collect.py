"""Taking submissions into a course's folder: mended, one file each, and a list of what could not be taken."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises.autograder.course.folders import Course
from exercises.autograder.intake import Quarantined, Received, ingest
from transformer_lessons.data.files import read_json, replacing, write_json

__all__ = ["Origin", "collect", "origin"]

ORIGIN = "origin.json"  # beside a submission


@dataclass(frozen=True)
class Origin:
    """What is known of a submission besides its text; see `intake.Received`."""

    path: str = ""
    repairs: tuple[str, ...] = ()
    timestamp: str | None = None
    late: bool = False


def origin(course: Course, student: str, assignment: str) -> Origin:
    """Of a submission that was taken in."""
    path = course.received(student, assignment).with_name(ORIGIN)
    if not path.exists():
        return Origin()
    found = read_json(path)
    return Origin(**{**found, "repairs": tuple(found["repairs"])})


def collect(
    source: Path,
    course: Course,
    released: dict[str, NotebookNode],
    earlier: Mapping[str, list[NotebookNode]] = {},
    roster: Mapping[str, str] = {},
) -> tuple[list[Received], list[Quarantined]]:
    """Take in all that a source holds; what was there of the same student and assignment is replaced.

    Args:
        source: a notebook, a folder of them, nbgrader's `submitted`, or a zip archive of Canvas or Moodle.
        released: all assignments, as they are handed out now.
        earlier, roster: see `intake.ingest`.

    Returns:
        what was taken in, without the notebooks, and what was put aside.

    Raises:
        FileNotFoundError: if there is no such source.
    """
    received, quarantined = [], []
    for outcome in ingest(source, released, earlier=earlier, roster=roster):
        if isinstance(outcome, Quarantined):
            quarantined.append(outcome)
        else:
            _keep(course, outcome)
            received.append(replace(outcome, notebook=NotebookNode()))
    _list_quarantined(course, received, quarantined)
    return received, quarantined


def _keep(course: Course, received: Received) -> None:
    path = course.received(received.student, received.assignment)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = asdict(Origin(received.path, received.repairs, received.timestamp, received.late))
    # The text first: without the rest it can be graded, but not the other way round.
    _write(path, nbformat.writes(received.notebook) + "\n")
    _write(path.with_name(ORIGIN), json.dumps(about, ensure_ascii=False, indent=2) + "\n")
    _write(path.with_name("timestamp.txt"), received.timestamp or "")  # where nbgrader looks for it


def _write(path: Path, text: str) -> None:
    """Whole or not at all; not at all, too, if it says so already, or if there is nothing to say."""
    if not text:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _list_quarantined(course: Course, received: list[Received], quarantined: list[Quarantined]) -> None:
    """Add to the course's list, from which goes what has been put right."""
    known = course.left_out()
    paths = {outcome.path for outcome in (*received, *quarantined)}
    settled = {(outcome.student, outcome.assignment) for outcome in received}
    kept = [
        entry
        for entry in known["quarantined"]
        if entry["path"] not in paths and (entry["student"], entry["assignment"]) not in settled
    ]
    write_json(course.not_graded, {**known, "quarantined": [*kept, *map(asdict, quarantined)]})
