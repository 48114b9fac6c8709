"""Submissions, from wherever they come: each file is either ready to be graded or put aside with a reason.

A source is a notebook, a folder of them, nbgrader's folder `submitted`, or the zip archive in which Canvas or
Moodle hand out all submissions; `intake.names` has how students are told apart. Whatever a file holds, it stops
no other.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode

from exercises.autograder.intake.cells import CannotBeGraded, cells_of, content_of, normalize_source, shown
from exercises.autograder.intake.files import Upload, uploads
from exercises.autograder.intake.matching import Catalogue, Released
from exercises.autograder.intake.names import Sender, sender_of
from exercises.autograder.intake.repair import repair

__all__ = ["Quarantined", "Received", "ingest"]

TIMESTAMP = "timestamp.txt"
MOST_LISTED = 5  # files or names, in a sentence
WHOSE = (
    "Nothing says whose this is. Name it STUDENT__ASSIGNMENT.ipynb, or put it into a folder named STUDENT."
)


@dataclass(frozen=True)
class Received:
    """A submission ready to be graded.

    Attributes:
        student: an id that can be the name of a folder.
        assignment: its name.
        path: where it came from, for people.
        notebook: of format 4.5, repaired; None where the text is not asked for.
        repairs: what was mended or guessed, one sentence each, for the student.
        timestamp: what nbgrader's `timestamp.txt` beside it says, if there is one.
        late: whether Canvas marks it as handed in late.
    """

    student: str
    assignment: str
    path: str
    notebook: NotebookNode | None = None
    repairs: tuple[str, ...] = ()
    timestamp: str | None = None
    late: bool = False


@dataclass(frozen=True)
class Quarantined:
    """A file that is not graded before somebody has looked at it.

    Attributes:
        path: where it came from, for people.
        student, assignment: whose and of what, as far as that is known.
        reason: what is wrong and what to do about it.
    """

    path: str
    student: str | None
    assignment: str | None
    reason: str


@dataclass(eq=False)
class _Arrival:
    """A file, what its path says, and what becomes of it."""

    parts: tuple[str, ...]
    sender: Sender
    outcome: Received | Quarantined

    def quarantine(self, reason: str) -> None:
        known = self.outcome
        self.outcome = Quarantined(known.path, known.student, known.assignment, reason)

    def note(self, sentence: str) -> None:
        self.outcome = replace(self.outcome, repairs=(*self.outcome.repairs, sentence))


def ingest(
    source: Path,
    assignments: dict[str, NotebookNode],
    *,
    earlier: Mapping[str, list[NotebookNode]] = {},
    roster: Mapping[str, str] = {},
) -> Iterator[Received | Quarantined]:
    """One outcome for each file, in the order of their paths; junk such as `.DS_Store` has none.

    Args:
        source: a notebook, a folder or a zip archive.
        assignments: all of the course, by name, as they were handed out: so nothing of a master can come into
            what is received. What is of none of them is put aside.
        earlier: by name, versions of assignments that were handed out before and count as well.
        roster: students' ids by the numbers that the platform puts into the names of files.

    Raises:
        FileNotFoundError: if there is no such source.
    """
    if not source.is_dir() and not source.is_file():
        raise FileNotFoundError(f"source: expected a notebook, a folder or a zip archive, got {source}")
    catalogue, arrivals, times = Catalogue(assignments, earlier), [], {}
    for upload in uploads(source):
        if upload.parts[-1:] == (TIMESTAMP,) and not upload.problem:
            times[upload.parts[:-1]] = upload.data
        else:
            arrivals.append(_arrival(source, upload, catalogue, roster))
    _settle(arrivals, catalogue)
    for arrival in arrivals:
        # In other folders, and further in, a student may have put a time.
        folder = arrival.parts[: arrival.sender.depth]
        if isinstance(arrival.outcome, Received) and folder and folder in times:
            _put_time(arrival, times[folder])
        yield arrival.outcome


def _arrival(source: Path, upload: Upload, catalogue: Catalogue, roster: Mapping) -> _Arrival:
    """Whatever happens while this file is read is said of this file."""
    sender, path = Sender(""), _for_people(source, upload.parts)
    try:
        if upload.parts:
            sender = sender_of(
                _telling(source, upload.parts, catalogue.assignments), catalogue.assignments, roster
            )
        return _Arrival(upload.parts, sender, _received(path, upload, sender, catalogue))
    except CannotBeGraded as error:
        reason = str(error)
    except Exception as error:
        what = f"{type(error).__name__}: {shown(str(error), most=80)}"
        reason = f"The file could not be read ({what}). Tell your instructor."
    assignment = next(iter(sender.said), None)
    return _Arrival(upload.parts, sender, Quarantined(path, sender.student, assignment, reason))


def _received(path: str, upload: Upload, sender: Sender, catalogue: Catalogue) -> Received:
    if upload.problem:
        raise CannotBeGraded(upload.problem)
    content, notes = content_of(upload.data)
    cells, more = cells_of(content)
    assignment = catalogue.assignment_of(cells, sender.said)
    if sender.said and assignment not in sender.said:
        said = " and ".join(sender.said)
        notes.append(f"The file is named after {said} but holds {assignment}; it was taken as that.")
    notebook, repairs = repair(cells, catalogue.assignments[assignment])
    if sender.student is None:
        raise CannotBeGraded(WHOSE)
    repairs = (*sender.notes, *notes, *more, *repairs)
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


def _put_time(arrival: _Arrival, time: bytes) -> None:
    """What `timestamp.txt` says, if it can be a time; nbgrader's tree is written by many hands."""
    text = time[:100].decode("ascii", "replace").strip()
    if re.fullmatch(r"[0-9A-Za-z :.,+/-]{4,64}", text):
        arrival.outcome = replace(arrival.outcome, timestamp=text)
    else:
        arrival.note(f"Its {TIMESTAMP} holds no time: “{shown(text)}”.")


def _settle(arrivals: list[_Arrival], catalogue: Catalogue) -> None:
    """Of one student's notebooks of one assignment only one is graded.

    A pitfall: only files that come together are compared; what was taken in before is not known here.
    """
    groups: dict[tuple[str, str], list[_Arrival]] = {}
    for arrival in arrivals:
        if isinstance(known := arrival.outcome, Received):
            # Not all systems tell capitals from small letters in the names of folders.
            groups.setdefault((known.student.casefold(), known.assignment), []).append(arrival)
    for (student, assignment), group in groups.items():
        names = sorted({arrival.sender.raw for arrival in group})
        if len(names) > 1:
            several = " and ".join(f"“{shown(name)}”" for name in names[:MOST_LISTED])
            for arrival in group:
                arrival.quarantine(f"{several} would all be called “{student}”. Give them other names.")
        elif len(group) > 1:
            _keep_one(group, *_chosen(group, catalogue.assignments[assignment]))


def _keep_one(group: list[_Arrival], chosen: _Arrival | None, why: str) -> None:
    """Of one student's notebooks of one assignment the one that counts; none if that cannot be known."""
    paths = [arrival.outcome.path for arrival in group]
    more = f" and {len(paths) - MOST_LISTED} more" if len(paths) > MOST_LISTED else ""
    which = f"Nothing tells which is the newest: {', '.join(paths[:MOST_LISTED])}{more}."
    for arrival in group:
        if chosen is None:
            arrival.quarantine(f"{which} Hand in only one. Different students need different names.")
        elif arrival is not chosen:
            arrival.quarantine(f"Superseded: {chosen.outcome.path} counts instead, because {why}.")
    if chosen:
        chosen.note(f"There were {len(group)} notebooks; {chosen.outcome.path} counts, because {why}.")


def _chosen(group: list[_Arrival], released: Released) -> tuple[_Arrival | None, str]:
    """The one that counts, and why."""
    given = {normalize_source(cell.source) for cell in released.notebook.cells} | {""}
    texts = {
        arrival: [(cell.cell_type, normalize_source(cell.source)) for cell in arrival.outcome.notebook.cells]
        for arrival in group
    }
    filled = [arrival for arrival in group if any(text not in given for _, text in texts[arrival])] or group
    if len(filled) == 1:
        return filled[0], "the others are not answered"
    if all(texts[arrival] == texts[filled[0]] for arrival in filled):
        return filled[0], "they say the same"
    orders = [arrival.sender.order for arrival in filled]
    if None in orders or orders.count(max(orders)) > 1:
        return None, ""
    return filled[orders.index(max(orders))], "it is the newest"
