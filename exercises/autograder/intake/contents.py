"""The JSON object that a submitted file holds, or why it holds none, in words that help its student."""

import codecs
import json
import re

__all__ = ["AGAIN", "FRESH", "MOST_BYTES", "CannotBeGraded", "content_of", "kind", "shown", "too_large"]

MOST_BYTES = 20_000_000  # JSON of this size takes at most 0.5 GB in memory
AGAIN = "Download the notebook again (in Colab: File › Download › Download .ipynb) and hand it in again."
FRESH = "Copy your answers into a fresh notebook of the assignment and hand that in."
# What a file may be instead of a notebook, told by how it begins.
BEGINNINGS = {
    rb"%PDF": f"The file is a PDF, which cannot be run. {AGAIN}",
    rb"PK\x03\x04": "The file is a zip archive. Unpack it and hand in the notebook itself.",
    rb"\s*<[!?a-zA-Z]": f"The file is a web page, as a browser's “Save page as” makes it. {AGAIN}",
}


class CannotBeGraded(Exception):  # noqa: N818 -- nothing went wrong in the program
    """A submission that a person has to see to; the message is for the student, and says what to do."""


def content_of(data: bytes) -> tuple[dict, list[str]]:
    """The JSON object in a file, and a sentence for each thing that had to be mended to read it.

    Raises:
        CannotBeGraded: if there is none.
    """
    if len(data) > MOST_BYTES:
        raise CannotBeGraded(too_large(len(data)))
    if not data.strip(b"\0 \t\r\n"):
        raise CannotBeGraded(f"The file is empty. {AGAIN}")
    for beginning, reason in BEGINNINGS.items():
        if re.match(beginning, data.removeprefix(codecs.BOM_UTF8)):
            raise CannotBeGraded(reason)
    text, notes = _text(data)
    try:
        content = json.loads(text)
    except RecursionError:
        raise CannotBeGraded(f"The file is no notebook: it is nested too deeply. {FRESH}") from None
    except ValueError as error:
        raise CannotBeGraded(_what_is_broken(text, error)) from None
    if not isinstance(content, dict):
        raise CannotBeGraded(f"The file is no notebook: it holds {kind(content)}, not a JSON object. {AGAIN}")
    return content, notes


def too_large(size: int) -> str:
    """Why a file was not read."""
    return (
        f"The file has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}. "
        "Clear the outputs of the notebook (Edit › Clear all outputs), save it and hand it in again."
    )


def kind(value: object) -> str:
    """What a value is, in words that do not ask for Python's."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "nothing")


def shown(text: str, most: int = 40) -> str:
    """The beginning of a text that somebody else wrote, fit for a message: without line breaks and the like."""
    return "".join(letter if letter.isprintable() else "�" for letter in text[:most].strip())


def _text(data: bytes) -> tuple[str, list[str]]:
    """The text: in UTF-8, or in what programs on Windows write instead."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace"), ["The file was written in UTF-16 and was read as that."]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        note = (
            "The file was not written in UTF-8; it was read as Windows-1252. Letters such as ä may be wrong."
        )
        return data.decode("cp1252", "replace"), [note]


def _what_is_broken(text: str, error: ValueError) -> str:
    if re.search(r"^<{7} ", text, re.MULTILINE):
        return f"The file holds the marks of a merge conflict (<<<<<<<). {FRESH}"
    if not text.lstrip().startswith("{"):
        return f"The file is no notebook: it begins with “{shown(text.lstrip())}”. {AGAIN}"
    if "Unterminated" in str(error) or getattr(error, "pos", 0) >= len(text.rstrip()) - 1:
        return f"The file breaks off after {len(text):,} characters. {AGAIN}"
    what = shown(getattr(error, "msg", str(error)), most=80)
    return f"The file is damaged at line {getattr(error, 'lineno', 1)}: {what}. {AGAIN}"
