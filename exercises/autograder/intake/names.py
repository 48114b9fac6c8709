"""Whose submission a file is, and of which assignment, as far as its path tells.

    STUDENT/ASSIGNMENT/any name.ipynb                           nbgrader's folder `submitted`
    lastnamefirstname[_LATE]_USER_FILE_any name.ipynb           Canvas
    [LATE_]anon_USER_FILE_any name.ipynb                        Canvas, graded anonymously
    First Last_NUMBER_assignsubmission_file_/any name.ipynb     Moodle, in folders
    First Last_NUMBER_assignsubmission_file_any name.ipynb      Moodle, without
    STUDENT__ASSIGNMENT.ipynb                                   collected by hand
    STUDENT/any folders/any name.ipynb                          likewise, in folders; see `level_of_students`

The student's id is the roster's for the number that Canvas and Moodle put there. Without a roster it is the
name and the number, which distinguishes namesakes.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from exercises.autograder.intake.cells import INVISIBLE, clip

LONGEST_ID = 60  # characters; a folder's name may have 255 bytes
# What is typed into Canvas, not uploaded, comes as …_text.html or …_link.html, without the file's number.
UPLOADED = r"(?:(?P<file>\d+)_(?P<rest>.+)|(?:text|link)\.html)"
CANVAS = re.compile(rf"(?P<name>.+?)(?P<late>_LATE)?_(?P<user>\d+)_{UPLOADED}")
ANONYMOUS = re.compile(rf"(?P<late>LATE_)?(?P<name>anon)_(?P<user>[^\W_]+)_{UPLOADED}")
MOODLE = re.compile(r"(?P<name>.+?)_(?P<user>\d+)_assignsubmission_[a-z]+_?(?P<rest>.*)")
# What a browser, or Canvas, appends to a name that it has seen before.
REPEATED = re.compile(r" ?\((\d{1,9})\)|-(\d{1,9})|")


@dataclass(frozen=True)
class Sender:
    """What a path says about its file."""

    # Who sent it, as the path has it, "" if it does not tell. Two different values are two students, even if
    # their ids are equal.
    raw: str = ""
    claimed: tuple[str, ...] = ()  # the assignments that the path names
    # Among files of one student, the greatest is the latest; None if the path does not tell
    order: tuple[int, int] | None = None
    late: bool = False  # whether Canvas marks it as handed in late
    number: str = ""  # the platform's number, "" if the path has none
    folder: tuple[str, ...] = ()  # the path of the folder that names the student; () if something else does

    @property
    def student(self) -> str | None:
        """The student's id, which can be a folder's name."""
        return safe_id(self.raw)

    def further_out(self, level: int) -> "Sender":
        """The sender, if students' folders are so many folders deep, however deep the file is in there."""
        is_in_one = 0 < level < len(self.folder)
        return replace(self, raw=self.folder[level - 1], folder=self.folder[:level]) if is_in_one else self


def sender_of(parts: tuple[str, ...], assignments: Collection[str]) -> Sender:
    """What the path of a file inside the source says; `assignments` are the names of all."""
    parts = tuple(unicodedata.normalize("NFC", part) for part in parts)
    # The outermost part that tells decides: further in, a student may have used another student's name.
    readings = (_from_platform(parts, place, assignments) for place in range(len(parts)))
    return next(filter(None, readings), None) or _by_hand(parts, assignments)


def on_roster(sender: Sender, roster: Mapping[str, str]) -> tuple[Sender, str]:
    """The sender as the roster calls them, and a sentence if it does not know them, else "".

    Args:
        sender: as the path says.
        roster: ids by the platform's numbers, or by anything else where there is none.
    """
    by_id = {student.casefold(): student for student in roster.values()}
    # The outermost, which students do not name, is first.
    around = (*sender.folder, sender.raw) if sender.raw else ()
    names = ((safe_id(name) or "").casefold() for name in around)
    if known := roster.get(sender.number) or next(filter(None, map(by_id.get, names)), None):
        return replace(sender, raw=known), ""
    is_unknown = roster and sender.raw and not sender.raw.startswith("anon_")  # which no roster has
    which = f"The number {sender.number}" if sender.number else f"“{clip(sender.raw)}”"
    return sender, f"{which} is not on the course's roster." if is_unknown else ""


def level_of_students(folders: Collection[tuple[str, ...]]) -> int:
    """How deep students' folders are, 0 if there are none, from the folders with notebooks of an assignment.

    They are as deep as the outermost of these; but further out if each is alone in its folder, and some have
    one name, such as ``ann/work`` and ``bob/work``.
    """
    level = min(map(len, folders), default=0)
    found = {folder[:level] for folder in folders}
    while len({f[-1:] for f in found}) < len(found) == len({f[:-1] for f in found}):
        found, level = {folder[:-1] for folder in found}, level - 1
    return level


def _from_platform(parts: tuple[str, ...], place: int, assignments: Collection[str]) -> Sender | None:
    """What Moodle, nbgrader or Canvas says at one place of a path, or None."""
    part, inner = parts[place], parts[place + 1 :]
    moodle = MOODLE.fullmatch(part)
    canvas = None if inner else ANONYMOUS.fullmatch(part) or CANVAS.fullmatch(part)
    if canvas and _parse_file_name(canvas["name"], assignments)[0]:
        canvas = None  # Canvas writes no assignment there, so somebody else has named the file
    if moodle and not (canvas and canvas.start("user") < moodle.start("user")):
        if re.search(r"(^|_)\d+_assignsubmission_", moodle["rest"]):
            return Sender("")  # somebody has given themselves or a file such a name: nobody can tell
        file = inner[-1] if inner else moodle["rest"]
        sender = _sender(f"{moodle['name']}_{moodle['user']}", file, assignments)
        return replace(sender, number=moodle["user"])
    if len(inner) > 1 and inner[0] in assignments:
        # Below ASSIGNMENT there may be folders of STUDENT's, or of the whole class: then nobody can tell.
        sender = _sender(part if len(inner) == 2 else "", inner[-1], assignments)
        claimed = tuple(dict.fromkeys((inner[0], *sender.claimed)))
        return replace(sender, claimed=claimed, folder=parts[: place + 1])
    if canvas:
        sender = _sender(f"{canvas['name']}_{canvas['user']}", canvas["rest"] or "", assignments)
        order, late = (int(canvas["file"] or 0), 0), bool(canvas["late"])
        return replace(sender, order=order, late=late, number=canvas["user"] if canvas.re is CANVAS else "")
    return None


def _by_hand(parts: tuple[str, ...], assignments: Collection[str]) -> Sender:
    """The sender of a file that no platform has named."""
    student, _, rest = parts[-1].partition("__")
    sender = _sender(student, rest, assignments)
    if sender.claimed:
        return sender
    if len(parts) > 1 and parts[-2] not in assignments:
        return replace(_sender(parts[-2], parts[-1], assignments), folder=parts[:-1])
    claimed = (*parts[-2:-1], *_sender("", parts[-1], assignments).claimed)
    return Sender("", tuple(dict.fromkeys(claimed)))


def _sender(raw: str, name: str, assignments: Collection[str]) -> Sender:
    """A sender known otherwise; a file's number counts if its name has nothing else but the assignment."""
    assignment, order = _parse_file_name(name, assignments)
    return Sender(raw, tuple(filter(None, [assignment])), order)


def _parse_file_name(name: str, assignments: Collection[str]) -> tuple[str | None, tuple[int, int] | None]:
    """The assignment in a file's name, and its order among repeated downloads if the name has no more."""
    stem = re.sub(r"\.(ipynb|json|txt|zip)\b", "", name, flags=re.IGNORECASE)
    for assignment in sorted(assignments, key=len, reverse=True):
        found = re.search(re.escape(assignment).replace("_", "[ _-]"), stem, re.IGNORECASE)
        if found:
            again = REPEATED.fullmatch(stem[found.end() :])
            return assignment, (0, int(again[1] or again[2] or 0)) if again and not found.start() else None
    return None, None


def safe_id(raw: str) -> str | None:
    """A student's name or number as a folder's name that nbgrader accepts; None if nothing is left of it.

    A pitfall: two names may become the same id; the caller must check.
    """
    letters = unicodedata.normalize("NFC", raw)
    # Letters, their marks, and numbers of all scripts. nbgrader does not allow + and searches by patterns.
    kept = "".join(c if c in " ._-@" or unicodedata.category(c)[0] in "LMN" else "-" for c in letters)
    # Some of them nobody sees, nor the marks that follow an emoji.
    seen = re.sub(f"{INVISIBLE.pattern}|[\ufe0e\ufe0f]", "", kept)
    # The end is kept, because Canvas's and Moodle's numbers are there.
    return seen.strip(" .-")[-LONGEST_ID:].lstrip(" .-") or None
