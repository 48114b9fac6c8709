"""Submissions, from wherever they come: each file is either ready to be graded or put aside with a reason.

A source is a notebook, a folder of them, nbgrader's folder `submitted`, or the zip archive in which Canvas or
Moodle hand out all submissions. Whatever a file contains, it does not stop the others. `files` opens folders
and archives, `cells` reads the contents of a file, `names` finds out whose it is; `repair` finds out which
cell is which, and of which assignment, and repairs the notebook.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from dateutil.parser import parse
from dateutil.tz import gettz
from nbformat import NotebookNode

from exercises.autograder.intake.cells import CannotBeGraded, cells_of, clip, content_of, normalize_source
from exercises.autograder.intake.files import Upload, opened, uploads
from exercises.autograder.intake.names import Sender, level_of_students, on_roster, sender_of
from exercises.autograder.intake.repair import Catalogue, repair_notebook

TIMESTAMP = "timestamp.txt"
# What answers come as, rightly or not; a browser appends .crdownload to half a notebook, a mail program .txt.
ANSWER = re.compile(r"\.ipynb|\.(zip|html|pdf)$", re.IGNORECASE)
NO_STUDENT = (
    "It is not clear whose this is. Name it STUDENT__ASSIGNMENT.ipynb, or put it into a folder named STUDENT."
)
OF_COURSE = "It belongs to the course: a master, or a released notebook with no answers."


@dataclass(eq=False)
class Arrival:
    """A file that came in: ready to be graded, or put aside until somebody has looked at it."""

    path: str  # where it came from, for people
    # The student's id, which can be a folder's name; if the file was put aside, only if it is known
    student: str | None = None
    assignment: str | None = None  # its name, likewise
    reason: str = ""  # why it was put aside, and what to do about it; "" if it is ready to be graded
    notebook: NotebookNode | None = None  # of format 4.5, repaired; None where the text is not needed
    repairs: tuple[str, ...] = ()  # what was repaired or guessed, one sentence each, for the student
    timestamp: str | None = None  # what nbgrader's `timestamp.txt` beside it says, if there is one
    late: bool = False  # whether Canvas marks it as handed in late
    is_blank: bool = False  # whether the notebook is as it was handed out
    parts: tuple[str, ...] = ()  # its path inside the source
    sender: Sender = field(default_factory=Sender)  # what this path says

    def quarantine(self, reason: str) -> None:
        """Put the file aside."""
        self.reason, self.notebook, self.repairs = reason, None, ()

    def entry(self) -> dict[str, str | None]:
        """The file's entry in lists of those that were put aside."""
        return {name: getattr(self, name) for name in ("path", "student", "assignment", "reason")}


def ingest(source: Path, catalogue: Catalogue, roster: Mapping[str, str] = {}) -> Iterator[Arrival]:
    """Yield what becomes of each file, in the order of their paths.

    Junk such as `.DS_Store` is left out, and so is what is beside a student's answers: a README, a plot, and
    in a clone of the course the masters, and the assignments that the student has not begun.

    Args:
        source: a notebook, a folder or a zip archive.
        catalogue: the assignments of the course; a file of none of them is put aside.
        roster: students' ids by the numbers that the platform puts into the names of files.
    """
    arrivals, times = [], {}
    for upload in uploads(source):
        if upload.parts[-1:] == (TIMESTAMP,) and not upload.problem:
            times[upload.parts[:-1]] = upload.data
        else:
            arrivals += (_arrival(source, one, catalogue) for one in opened(upload))
    _find_students(arrivals, catalogue, roster)
    _resolve_duplicates(arrivals)
    taken = {(one.sender.raw, one.assignment) for one in arrivals if not (one.reason or one.is_blank)}
    for arrival in arrivals:
        if arrival.reason and _is_beside(arrival, taken):
            continue
        # nbgrader's folder of a submission is one below the student's; a student may have put a time elsewhere.
        home = arrival.sender.folder
        folder = arrival.parts[: len(home) + 1]
        if home and folder[-1] in catalogue.assignments and folder in times and not arrival.reason:
            _set_timestamp(arrival, times[folder])
        yield arrival


def _is_beside(arrival: Arrival, taken: Collection[tuple[str, str | None]]) -> bool:
    """Whether a file is not named like an answer, or is the course's, and its student has answers elsewhere."""
    theirs = {assignment for student, assignment in taken if student == arrival.sender.raw}
    if arrival.reason == OF_COURSE:
        return bool(theirs)
    is_other = not ANSWER.search("".join(arrival.parts[-1:]))
    return is_other and bool(theirs if arrival.assignment is None else arrival.assignment in theirs)


def _find_students(arrivals: list[Arrival], catalogue: Catalogue, roster: Mapping[str, str]) -> None:
    """Look at all folders together to find out which of them are called after students."""
    ready = [one for one in arrivals if not one.reason and one.sender.folder]
    levels = {
        name: level_of_students({one.sender.folder for one in ready if one.assignment == name})
        for name in catalogue.assignments
    }
    outermost = min(filter(None, levels.values()), default=0)
    for arrival in arrivals:
        level = outermost if arrival.reason else levels[arrival.assignment]
        arrival.sender, unknown = on_roster(arrival.sender.further_out(level), roster)
        arrival.student = arrival.sender.student
        if any(arrival.student in (name, name.partition("_")[0]) for name in catalogue.assignments):
            arrival.student = None  # a folder with all that was handed in for an assignment
        if unknown:
            arrival.repairs = (unknown, *arrival.repairs)
        if not (arrival.reason or arrival.student):
            arrival.quarantine(NO_STUDENT)


def _arrival(source: Path, upload: Upload, catalogue: Catalogue) -> Arrival:
    """The arrival of one file; whatever goes wrong while it is read is reported for this file only."""
    arrival = Arrival(_display_path(source, (*upload.parts, *upload.inside)), parts=upload.parts)
    try:
        if upload.parts:
            sender = arrival.sender = sender_of(upload.parts, catalogue.assignments)
            arrival.assignment, arrival.late = next(iter(sender.claimed), None), sender.late
        _read(arrival, upload, catalogue)
    except CannotBeGraded as error:
        arrival.quarantine(str(error))
    except Exception as error:
        what = f"{type(error).__name__}: {clip(str(error), most=80)}"
        arrival.quarantine(f"The file could not be read ({what}). Tell your instructor.")
    return arrival


def _read(arrival: Arrival, upload: Upload, catalogue: Catalogue) -> None:
    """Find out to which assignment the file belongs, and repair it."""
    if upload.problem:
        raise CannotBeGraded(upload.problem)
    suffix = Path("", *upload.parts, *upload.inside).suffix.lower()
    cells, notes = cells_of(content_of(upload.data, suffix))
    claimed = arrival.sender.claimed
    assignment, others = catalogue.assignment_of(cells, claimed)
    if others:
        also = f"It also contains cells of {' and '.join(others)}, which were not graded."
        notes.append(f"{also} Hand in one notebook for each.")
    if claimed and assignment not in claimed:
        named = " and ".join(claimed)
        notes.append(f"The file is named after {named} but contains {assignment}, and was taken as that.")
    released = catalogue.assignments[assignment]
    arrival.notebook, repairs = repair_notebook(cells, released)
    arrival.assignment, arrival.is_blank = assignment, released.is_blank(arrival.notebook)
    arrival.repairs = (*notes, *repairs)
    folders = {one for one, other in pairwise(upload.parts) if other in catalogue.assignments}
    if "source" in folders or ("release" in folders and arrival.is_blank):
        raise CannotBeGraded(OF_COURSE)


def _display_path(source: Path, parts: tuple[str, ...]) -> str:
    path = "/".join(clip(part, len(part)) for part in parts)
    if source.is_dir() or not parts or parts == (source.name,):
        return path or source.name
    return f"{source.name}: {path}"


def _set_timestamp(arrival: Arrival, time: bytes) -> None:
    """Take the time from `timestamp.txt`, if it can be one; nbgrader's folders are written by many hands."""
    text = time[:100].decode("ascii", "replace").strip()
    is_plain = re.fullmatch(r"[0-9A-Za-z :.,+/-]{4,64}", text)
    try:
        in_utc(text if is_plain else "")
        arrival.timestamp = text
    except ValueError:
        arrival.repairs += (f"Its {TIMESTAMP} contains no time that can be read: “{clip(text)}”.",)


def in_utc(text: str) -> datetime:
    """A time as nbgrader stores it: in UTC, without a time zone.

    nbgrader's `parse_utc` is not used, because it takes "+0100" after a time for a hundred seconds.

    Args:
        text: "2026-12-01 12:00:00 +0100", "… UTC" or "… CET"; in UTC if it names no zone.

    Raises:
        ValueError: if it is not a time of a day, or its zone is not known.
    """
    try:
        found = parse(text, tzinfos=lambda name, offset: gettz(name) if name and offset is None else offset)
        # dateutil makes up a time of day, takes UTC+1 for UTC-1, and ignores a zone that it does not know.
        unknown = not found.tzinfo and re.search(r":\d\d.*[A-Z]", re.sub("[AP]M", "", text))
        if unknown or not re.search(r"\d:\d\d", text) or re.search(r"[A-Z] *[+-]\d", text):
            raise ValueError(f"expected a time with a zone such as +0100, got {text}")
        return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
    except ArithmeticError as error:
        raise ValueError(str(error)) from None


def _resolve_duplicates(arrivals: list[Arrival]) -> None:
    """Let only one of a student's notebooks of an assignment be graded; put the others aside.

    A pitfall: only files that come together are compared; what was taken in before is not known here.
    """
    groups: dict[tuple[str, str], list[Arrival]] = {}
    for arrival in arrivals:
        if not arrival.reason:
            # Not all systems distinguish upper and lower case in the names of folders.
            groups.setdefault((arrival.student.casefold(), arrival.assignment), []).append(arrival)
    for (student, _), group in groups.items():
        names = sorted({arrival.sender.raw for arrival in group})
        if len(names) > 1:
            several = " and ".join(f"“{clip(name)}”" for name in names)
            for arrival in group:
                arrival.quarantine(f"{several} would all have the id “{student}”. Give them other names.")
        elif len(group) > 1:
            _quarantine_others(group, *_choose_notebook(group))


def _quarantine_others(group: list[Arrival], chosen: Arrival | None, why: str) -> None:
    """Put aside all of a student's notebooks of an assignment but the chosen one; all if none is chosen."""
    which = f"It is not clear which is the newest: {', '.join(arrival.path for arrival in group)}."
    for arrival in group:
        if chosen is None:
            one = "Hand in only one. Different students need different names and no common folder."
            arrival.quarantine(f"{which} {one}")
        elif arrival is not chosen:
            arrival.quarantine(f"Superseded: {chosen.path} counts instead, because {why}.")
    if chosen:
        chosen.repairs += (f"There were {len(group)} notebooks; {chosen.path} counts, because {why}.",)


def _choose_notebook(group: list[Arrival]) -> tuple[Arrival | None, str]:
    """The notebook that counts, or None if that cannot be known, and why."""
    if len({arrival.sender.folder[:-1] for arrival in group}) > 1:
        return None, ""  # monday/ann/ and tuesday/ann/: folders of the same name, but not one student's
    texts = {one: [normalize_source(cell.source) for cell in one.notebook.cells] for one in group}
    filled = [arrival for arrival in group if not arrival.is_blank] or group
    if len(filled) == 1:
        return filled[0], "the others have no answers"
    if all(texts[arrival] == texts[filled[0]] for arrival in filled):
        return filled[0], "all say the same"
    orders = [arrival.sender.order for arrival in filled]
    if None in orders or orders.count(max(orders)) > 1:
        return None, ""
    return filled[orders.index(max(orders))], "it is the newest"
