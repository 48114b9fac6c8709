"""Results, marks and reports that name nobody, so that they can be shared or looked at again later.

A student's pseudonym is a keyed digest of the id, HMAC-SHA256 (RFC 2104): one and the same for a course, and
another one in every other course. Only the key is stored: in `pseudonyms.key` in the course's folder, for its
owner's eyes (mode 0600), made once. So this is no anonymity: a person with the key and a list of the ids
can undo it, and without the key there will be other pseudonyms. To break the tie for good, delete the key.

Left out are names, addresses, the LMS's ids, a person's comments, and every sentence about a submission, as it
may hold the names of people and files. What stays are kinds, times, points and the digests of a submission, by
which somebody who has the submissions, or the LMS's own list of times, may find one again.
"""

import hmac
import os
import re
import secrets
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from exercises.autograder.course.marks import ABOUT, Mark
from exercises.autograder.result import Flag, Result

KEY_FILE = "pseudonyms.key"
KEY_BYTES = 32
DIGITS = 10  # of a pseudonym: of 1,000 students two would share one once in two million courses
LEFT_OUT = "…"


class Pseudonyms:
    """A course's pseudonyms; the key is made if there is none.

    Args:
        folder: the course's.

    Raises:
        ValueError: if the key's file holds no key.
    """

    def __init__(self, folder: Path):
        self._key = _key(folder / KEY_FILE)

    def of(self, student: str) -> str:
        """A student's pseudonym."""
        return f"student-{self._code(student)}"

    def mark(self, mark: Mark) -> Mark:
        """A mark that says nothing of who has it."""
        nobody = dict.fromkeys(ABOUT, "")
        return replace(mark, student=self.of(mark.student), comments={}, **nobody)

    def result(self, result: Result) -> Result:
        """A result that says nothing of whose it is."""
        student = self.of(result.student)
        return replace(
            result,
            student=student,
            path=student,
            cells=tuple(replace(cell, messages=()) for cell in result.cells),
            flags=tuple(Flag(flag.kind, LEFT_OUT, flag.cell) for flag in result.flags),
            repairs=(LEFT_OUT,) * len(result.repairs),
        )

    def not_graded(self, entry: dict) -> dict:
        """What is said of a file that was not graded, without whose it is; a file of nobody's gets a name too."""
        known = self.of(entry["student"]) if entry["student"] else None
        path = known or f"file-{self._code(entry['path'])}"
        return {"path": path, "student": known, "assignment": entry["assignment"], "reason": LEFT_OUT}

    def _code(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(), "sha256").hex()[:DIGITS]


def _key(path: Path) -> bytes:
    """The key in a file, which is made if it is not there; if two make it at once, the first one's stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(number, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
        raise ValueError(
            f"{path.name}: expected a key of {2 * KEY_BYTES} hexadecimal digits, got something else"
        )
    return bytes.fromhex(text)
