"""The contents of a submitted file: the cells of its notebook as plain values, or a helpful reason for none.

Only what grading needs is looked at: a cell's type, text, plots, and the names it may be known by. Other
outputs, attachments, widgets, counters and metadata are dropped, so garbage in them does not matter.
"""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property

MOST_BYTES = 20_000_000  # JSON of this size takes at most 0.5 GB in memory
TOO_LARGE = (
    f"The file has more than {MOST_BYTES / 1e6:.0f} MB. Clear the outputs of the notebook (Edit › Clear all "
    "outputs), save it and hand it in again."
)
AGAIN = "Download the notebook again (in Colab: File › Download › Download .ipynb) and hand it in again."
FRESH = "Copy your answers into a fresh notebook of the assignment and hand that in."
SUFFIXES = ("", ".ipynb", ".zip", ".html")  # a file with another one is no notebook, unless it is JSON
# What others may be, recognised by how they begin.
BEGINNINGS = {
    r"PK\x03\x04": "The file is a zip archive. Hand in the notebook itself, or an archive of it alone.",
    "<[!?a-zA-Z]": f"The file is a web page: saved by a browser, or typed into the platform. {AGAIN}",
}
# The longest notebook, in characters; reading, parsing and writing a line costs about as much as 25, a cell
# as 250. The box takes no longer text at once, see `running.wire`.
LONGEST, LINE, CELL = 500_000, 25, 250
# Controls, also of direction; zero width; fillers; selectors and tags, which can carry text; lone surrogates.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
MOST_PLOTS = 8  # the most plots of one cell
PLOTS = ("image/png", "image/jpeg")
PICTURE = re.compile(r"data:image/[\w.+-]+;base64,[\w+/=]*")  # as Colab stores one in a text


class CannotBeGraded(Exception):  # noqa: N818 -- nothing went wrong in the program
    """Raised for a submission that a person has to see to; the message tells the student what to do."""


def content_of(data: bytes, suffix: str = ".ipynb") -> dict:
    """The JSON object in a file whose name ends so.

    Raises:
        CannotBeGraded: if there is none.
    """
    if len(data) > MOST_BYTES:
        raise CannotBeGraded(TOO_LARGE)
    if not data.strip(b"\0 \t\r\n"):
        raise CannotBeGraded(f"The file is empty. {AGAIN}")
    text = data.decode(json.detect_encoding(data), "replace").strip()
    if not text.startswith("{"):
        raise CannotBeGraded(_what_it_is(text, suffix))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotBeGraded(_what_is_broken(text, error)) from None


def clip(text: str, most: int = 40) -> str:
    """The beginning of somebody else's text, fit for a message: without line breaks and the like."""
    shown = INVISIBLE.sub("�", text[:most].strip())
    return "".join(letter if letter.isprintable() else "�" for letter in shown)


def _what_it_is(text: str, suffix: str) -> str:
    """The message for a file that cannot be a notebook."""
    if suffix not in SUFFIXES:
        return f"This is a {clip(suffix)} file, not a notebook. {AGAIN}"
    reasons = (reason for start, reason in BEGINNINGS.items() if re.match(start, text))
    return next(reasons, f"The file is not a notebook: it begins with “{clip(text)}”. {AGAIN}")


def _what_is_broken(text: str, error: Exception) -> str:
    rest = text[getattr(error, "pos", 0) :]
    if "Unterminated" in str(error) or (len(rest) < 2 and rest != "}"):
        return f"The file breaks off after {len(text):,} characters. {AGAIN}"
    if isinstance(error, json.JSONDecodeError):
        line = clip(text.split("\n")[error.lineno - 1])
        return f"The file is damaged in line {error.lineno}, “{line}”: {error.msg}. {AGAIN}"
    return f"The file is damaged: {clip(str(error), most=80)}. {AGAIN}"


@dataclass(eq=False)
class Cell:
    """A cell as it was handed in."""

    number: int  # where it stood in the file, from 1
    type: str  # "code", "markdown" or "raw"
    source: str
    marks: dict = field(default_factory=dict)  # nbgrader's metadata, unchecked
    ids: tuple[str, ...] = ()  # from wherever they are in the file
    plots: tuple[dict, ...] = ()  # the pictures in its outputs
    # Set by `repair`: the cell of the assignment that this one is, or is a copy of, and how that is known
    name: str | None = None
    matched_by: str = ""  # "marks", "id", "text" or "place"

    @property
    def grade_id(self) -> str | None:
        """The name in the grader's metadata, or None."""
        found = self.marks.get("grade_id")
        return found if isinstance(found, str) else None

    @cached_property
    def normalized(self) -> str:
        """The text without what editors change by themselves."""
        return normalize_source(self.source)


def normalize_source(text: str) -> str:
    """The text with uniform line ends, and without white space around it and at the ends of its lines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def replace_surrogates(text: str) -> str:
    """The text without lone halves of characters (JSON can express them), which no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cells_of(content: dict) -> tuple[list[Cell], list[str]]:
    """The cells of a notebook, and a sentence for each thing that was repaired.

    Raises:
        CannotBeGraded: if there are none or too many, or if something among them is not a cell.
    """
    notes: list[str] = []
    found = content.get("cells")
    if not isinstance(found, list):
        old = "worksheets" in content
        what = "is in a notebook format from before 2015" if old else "is not a notebook: it has no cells"
        raise CannotBeGraded(f"The file {what}. {AGAIN}")
    _refuse_if_too_long(CELL * len(found))
    cells = [_cell(number, cell, notes) for number, cell in enumerate(found, start=1)]
    # A notebook that takes a minute to be read, parsed and written several times holds up all the others.
    _refuse_if_too_long(sum(CELL + len(cell.source) + LINE * cell.source.count("\n") for cell in cells))
    return cells, list(dict.fromkeys(notes))


def _refuse_if_too_long(length: int) -> None:
    if length > LONGEST:
        much = "The notebook has too many cells, lines or characters"
        raise CannotBeGraded(f"{much}. Delete what it does not need; data do not belong in a notebook.")


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _cell(number: int, cell: object, notes: list[str]) -> Cell:
    if not isinstance(cell, dict):
        raise CannotBeGraded(f"Cell {number} of the file is not a cell. {FRESH}")
    metadata = _dict(cell.get("metadata"))
    ids = (cell.get("id"), metadata.get("id"), metadata.get("cell_id"))  # Colab puts them into the metadata
    type_ = cell.get("cell_type")
    if type_ not in ("code", "markdown", "raw"):
        notes.append(f"Cell {number} had an unknown type and was kept as text that is not run.")
        type_ = "raw"
    source = _joined([] if cell.get("source") is None else cell["source"])
    if source is None:
        raise CannotBeGraded(f"The content of cell {number} is not text. {FRESH}")
    words = source if type_ == "code" else PICTURE.sub("", source)
    if cell.get("attachments") or words != source:
        notes.append(f"Pictures in the text of cell {number} were left out: an answer consists of words.")
    return Cell(
        number=number,
        type=type_,
        source=words,
        marks=_dict(metadata.get("nbgrader")),
        ids=tuple(name for name in ids if isinstance(name, str)),
        plots=_plots(cell),
    )


def _joined(lines: object) -> str | None:
    """The text from a string or a list of lines; None if it is neither."""
    lines = lines if isinstance(lines, list) else [lines]
    return replace_surrogates("".join(lines)) if all(isinstance(line, str) for line in lines) else None


def _plots(cell: dict) -> tuple[dict, ...]:
    """The pictures that a cell has drawn; a person looks at an experiment's, and grading re-encodes them."""
    outputs = cell.get("outputs")
    data = [_dict(_dict(output).get("data")) for output in outputs] if isinstance(outputs, list) else []
    drawn = [{kind: _joined(bundle[kind])} for bundle in data for kind in PLOTS if kind in bundle]
    return tuple(plot for plot in drawn[:MOST_PLOTS] if None not in plot.values())
