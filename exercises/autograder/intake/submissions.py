"""Submissions, from wherever they come: each file is either ready to be graded or put aside with a reason.

A source is a notebook, a folder of them, nbgrader's folder `submitted`, or the zip archive in which Canvas or
Moodle hand out all submissions; `intake.names` has how students are told apart. Whatever a file holds, it stops
no other.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode

from exercises.autograder.intake.assignment import Catalogue
from exercises.autograder.intake.cells import cells_of
from exercises.autograder.intake.choice import Arrival, Quarantined, Received, one_of_each
from exercises.autograder.intake.contents import CannotBeGraded, content_of, shown
from exercises.autograder.intake.files import Upload, uploads
from exercises.autograder.intake.names import Sender, safe_id, sender_of
from exercises.autograder.intake.repair import repair
from exercises.autograder.intake.versions import EARLIER, brought_up_to_date, version_of

__all__ = ["take_in"]

TIMESTAMP = "timestamp.txt"
WHOSE = (
    "Nothing says whose this is. Name it STUDENT__ASSIGNMENT.ipynb, or put it into a folder named STUDENT."
)


def take_in(
    source: Path,
    assignments: dict[str, NotebookNode],
    *,
    student: str | None = None,
    earlier: Mapping[str, list[NotebookNode]] = {},
    roster: Mapping[str, str] = {},
) -> Iterator[Received | Quarantined]:
    """One outcome for each file, in the order of their paths; junk such as `.DS_Store` has none.

    Args:
        source: a notebook, a folder or a zip archive.
        assignments: all of the course, by name, as they were handed out: so nothing of a master can come into
            what is received. What is of none of them is put aside.
        student: whose all files are, if that is known.
        earlier: by name, versions of assignments that were handed out before and count as well.
        roster: students' ids by the numbers that the platform puts into the names of files.

    Raises:
        FileNotFoundError: if there is no such source.
        ValueError: for a student's name that cannot be the name of a folder.
    """
    source = Path(source)
    if not source.is_dir() and not source.is_file():
        raise FileNotFoundError(f"source: expected a notebook, a folder or a zip archive, got {source}")
    if student is not None and safe_id(student) != student:
        raise ValueError(f"student: expected what can be the name of a folder, got {student!r}")
    return _outcomes(source, Catalogue(assignments), student, earlier, roster)


def _outcomes(
    source: Path, catalogue: Catalogue, student: str | None, earlier: Mapping, roster: Mapping
) -> Iterator[Received | Quarantined]:
    arrivals, times = [], {}
    for upload in uploads(source):
        if upload.parts[-1:] == (TIMESTAMP,) and not upload.problem:
            times[upload.parts[:-1]] = upload.data
        else:
            arrivals.append(_arrival(source, upload, student, catalogue, earlier, roster))
    for arrival in one_of_each(arrivals, catalogue.assignments):
        yield _with_time(arrival.outcome, times.get(arrival.parts[:-1]))


def _arrival(
    source: Path,
    upload: Upload,
    student: str | None,
    catalogue: Catalogue,
    earlier: Mapping,
    roster: Mapping,
) -> Arrival:
    """Whatever happens while this file is read is said of this file."""
    sender, path = Sender(student or ""), _for_people(source, upload.parts)
    try:
        if upload.parts:
            telling = _telling(source, upload.parts, catalogue.assignments)
            found = sender_of(telling, catalogue.assignments, roster)
            sender = replace(found, raw=student, notes=()) if student else found
        return Arrival(upload.parts, sender, _received(path, upload, sender, catalogue, earlier))
    except CannotBeGraded as error:
        reason = str(error)
    except Exception as error:
        what = f"{type(error).__name__}: {shown(str(error), most=80)}"
        reason = f"The file could not be read ({what}). Tell your instructor."
    assignment = next(iter(sender.said), None)
    return Arrival(upload.parts, sender, Quarantined(path, sender.student, assignment, reason))


def _received(path: str, upload: Upload, sender: Sender, catalogue: Catalogue, earlier: Mapping) -> Received:
    if upload.problem:
        raise CannotBeGraded(upload.problem)
    content, notes = content_of(upload.data)
    cells = cells_of(content)[0]
    assignment = catalogue.assignment_of(cells, sender.said)
    if sender.said and assignment not in sender.said:
        said = " and ".join(sender.said)
        notes.append(f"The file is named after {said} but holds {assignment}; it was taken as that.")
    now = catalogue.assignments[assignment]
    version = version_of(cells, [now, *earlier.get(assignment, [])])
    notebook, repairs = repair(content, version)
    if version is not now:
        notebook, repairs = brought_up_to_date(notebook, version, now), (EARLIER, *repairs)
    if sender.student is None:
        raise CannotBeGraded(WHOSE)
    repairs = (*sender.notes, *notes, *repairs)
    return Received(sender.student, assignment, path, notebook, repairs, late=sender.late)


def _telling(source: Path, parts: tuple[str, ...], assignments: dict) -> tuple[str, ...]:
    """The path inside the source; of a single notebook in nbgrader's folder, the path in there."""
    above = source.resolve().parts[-3:]
    return above if parts == (source.name,) and above[-2] in assignments else parts


def _for_people(source: Path, parts: tuple[str, ...]) -> str:
    path = "/".join("".join(letter if letter.isprintable() else "�" for letter in part) for part in parts)
    if source.is_dir() or not parts or parts == (source.name,):
        return path or source.name
    return f"{source.name}: {path}"


def _with_time(outcome: Received | Quarantined, time: bytes | None) -> Received | Quarantined:
    """What `timestamp.txt` says, if it can be a time; nbgrader's tree is written by many hands."""
    if time is None or isinstance(outcome, Quarantined):
        return outcome
    text = time[:100].decode("ascii", "replace").strip()
    if re.fullmatch(r"[0-9A-Za-z :.,+/-]{4,64}", text):
        return replace(outcome, timestamp=text)
    said = f"Its {TIMESTAMP} holds no time: “{shown(text)}”."
    return replace(outcome, repairs=(*outcome.repairs, said))
