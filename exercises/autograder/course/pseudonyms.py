"""Other names for students, for whatever leaves the course: reports, tables, what is shown on a screen.

A pseudonym is made of the student's id and a secret key (HMAC-SHA256), so it is the same in every report of a
course and another one in every other course. Only the key is stored: in `pseudonyms.key` in the course's folder,
for its owner's eyes (mode 0600), made once. There is no table of who is who; `lookup` makes one when somebody
asks for it. So this is no anonymity: whoever has the key and a list of the ids can undo it, and whoever loses the
key gets other pseudonyms. To break the tie for good, delete the key.

Taken out are ids, names, addresses, the LMS's ids, a person's comments, and from sentences about a submission the
names and paths of files and whatever is quoted in “ ”, which somebody else wrote. What stays are times, points
and the digests of a submission, by which somebody who has the submissions, or the LMS's own list of times, may
find one again. What students wrote may hold their names anywhere: the line of code of a flag is dropped, but
notebooks and pages of feedback cannot be made pseudonymous.
"""

import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from exercises.autograder.course.marks import Mark
from exercises.autograder.export.sheets import Exported, table
from exercises.autograder.result import Flag, Result

__all__ = ["KEY_FILE", "Pseudonyms"]

KEY_FILE = "pseudonyms.key"
KEY_BYTES = 32
LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 that are not easily taken for each other
SHORTEST = 6  # letters of a pseudonym: of 500 students two would share it once in 8,600 courses
GONE = "…"
LEAST_WORD = 2  # letters of a part of an id that is looked for by itself, and 3 digits
# What the intake says of files, whose paths hold names; see `intake.choice`.
PATHS = re.compile(
    r"(?<=notebooks; ).+(?= counts, because)|(?<=Superseded: ).+(?= counts instead)"
    r"|(?<=newest: ).+(?=\. Hand in)",
    re.DOTALL,
)
QUOTED = re.compile("“[^”]*”")


class Pseudonyms:
    """A course's pseudonyms; the key is made if there is none.

    Args:
        folder: the course's.
        students: the ids of the class. Two of them that would get the same pseudonym get longer ones, so a
            pseudonym can grow when somebody joins, but it never becomes another student's.

    Raises:
        ValueError: if the key's file holds no key.
    """

    def __init__(self, folder: Path, students: Iterable[str] = ()):
        self._key = _key(folder / KEY_FILE)
        self._codes = {student: self._code(student) for student in sorted(set(students))}

    def of(self, student: str) -> str:
        """A student's pseudonym."""
        code = self._codes.get(student) or self._code(student)
        others = [other for one, other in self._codes.items() if one != student]
        length = SHORTEST
        while any(other[:length] == code[:length] for other in others):
            length += 1
        return f"student-{code[:length]}"

    def mark(self, mark: Mark) -> Mark:
        """A mark that says nothing of who has it."""
        nobody = dict.fromkeys(("first_name", "last_name", "email", "lms_user_id"), "")
        return replace(mark, student=self.of(mark.student), comments={}, **nobody)

    def result(self, result: Result, names: Iterable[str] = ()) -> Result:
        """A result that says nothing of whose it is.

        Args:
            result: of a grading.
            names: first and last name, address and the like, where they are known; they are looked for too.
        """

        def clean(text: str) -> str:
            return self.redacted(text, result.student, result.path, names)

        student = self.of(result.student)
        return replace(
            result,
            student=student,
            path=student,
            cells=tuple(replace(one, messages=tuple(map(clean, one.messages))) for one in result.cells),
            flags=tuple(Flag(one.kind, clean(_unquoted(one.text)), one.cell) for one in result.flags),
            repairs=tuple(clean(_unquoted(text)) for text in result.repairs),
        )

    def not_graded(self, entry: dict) -> dict:
        """What is said of a file that was not graded, without whose it is; a file of nobody's gets a name too."""
        student, path = entry.get("student"), entry.get("path") or ""
        known = self.of(student) if student else None
        changed = {
            "path": known or f"file-{self._code(path)[:SHORTEST]}",
            "student": known,
            "assignment": entry.get("assignment"),
            "reason": self.redacted(_unquoted(entry.get("reason") or ""), student or "", path),
        }
        return {name: value for name, value in changed.items() if name in entry}

    def redacted(self, text: str, student: str, path: str = "", names: Iterable[str] = ()) -> str:
        """A sentence about a submission with the student's id, its parts, names and paths taken out.

        Args:
            text: the sentence.
            student: the id.
            path: where the submission came from.
            names: whatever else the student is called.
        """
        text = PATHS.sub(GONE, text)
        for one in (path, path.rpartition("/")[2], *names):
            text = _without(text, one)
        words = re.findall(r"[^\W_]+", " ".join((student, *names)))
        pieces = re.split(_pattern(student), text) if student else [text]
        for word in words:
            if len(word) >= LEAST_WORD + word.isdecimal():
                pieces = [_without(piece, word) for piece in pieces]
        return (self.of(student) if student else "").join(pieces)

    def lookup(self, marks: Iterable[Mark]) -> Exported:
        """Who is who, for the instructor: a row for each student."""
        students = {mark.student: mark for mark in marks}
        header = ("pseudonym", "student", "last name", "first name", "email")
        rows = [
            (self.of(student), student, mark.last_name, mark.first_name, mark.email)
            for student, mark in sorted(students.items())
        ]
        return Exported(table([header, *rows]))

    def _code(self, text: str) -> str:
        """All letters that there are for it, of which a pseudonym takes the first."""
        digest = hmac.digest(self._key, text.encode(), hashlib.sha256)
        return "".join(LETTERS[byte % len(LETTERS)] for byte in digest)


def _unquoted(text: str) -> str:
    return QUOTED.sub(f"“{GONE}”", text)


def _without(text: str, what: str) -> str:
    return re.sub(_pattern(what), GONE, text) if what else text


def _pattern(what: str) -> re.Pattern:
    """It as whole words, in capitals or not: a student called Ann does not change “cannot”."""
    return re.compile(rf"(?<![^\W_]){re.escape(what)}(?![^\W_])", re.IGNORECASE)


def _key(path: Path) -> bytes:
    """The key in a file, which is made if it is not there; if two make it at once, the first one's stays."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
        raise ValueError(
            f"{path.name}: expected a key of {2 * KEY_BYTES} hexadecimal digits, got something else"
        )
    return bytes.fromhex(text)


def _make(path: Path) -> None:
    """The file appears with all that it holds: written beside, readable for its owner, then linked."""
    number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
