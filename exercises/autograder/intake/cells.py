"""What a submitted notebook holds: its cells as plain values, whichever program wrote it.

Only what grading needs is looked at: of a cell its type, text, pictures, tags, and the names it may be known by.
Outputs, widgets, counters and other metadata are left behind, and whatever garbage is in them does not matter.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

from exercises.autograder.intake.contents import AGAIN, FRESH, CannotBeGraded, kind, shown

__all__ = ["Cell", "bare", "cells_of"]

MOST_CELLS = 2_000
MOST_CHARACTERS = 500_000  # of one cell
MOST_TEXT = (
    1_000_000  # of all cells together; a line costs about as much as MOST_TEXT / MOST_LINES characters
)
MOST_LINES = 40_000
MOST_OF_PICTURES = 5_000_000  # characters, of one cell
MOST_PLOTS = 4  # of one cell
LONGEST_NAME = 200
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
TYPES = ("code", "markdown", "raw")


@dataclass(eq=False)
class Cell:
    """A cell as it was handed in.

    Attributes:
        number: where it stood in the file, from 1.
        type: "code", "markdown" or "raw".
        source: its text.
        marks: nbgrader's metadata, unchecked.
        ids: the cell ids, wherever in the file they stood.
        metadata: those of the others that are kept: tags, deletable, editable.
        attachments: pictures in its text; of code, the plots that it has drawn.
    """

    number: int
    type: str
    source: str
    marks: dict = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    metadata: dict = field(default_factory=dict)
    attachments: dict = field(default_factory=dict)

    @property
    def grade_id(self) -> str | None:
        """The name that the grader's marks give it, if they do."""
        found = self.marks.get("grade_id")
        return found if isinstance(found, str) else None

    @cached_property
    def bare(self) -> str:
        """Its text without what editors change of themselves."""
        return bare(self.source)


def bare(text: str) -> str:
    """A text without white space at the ends of its lines, around it, and with lines that end alike."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def cells_of(content: dict) -> tuple[list[Cell], list[str]]:
    """The cells of a notebook of format 3 or later, and a sentence for each thing that was mended.

    Args:
        content: what JSON can express.

    Raises:
        CannotBeGraded: if there are none, too many, or if what stands there is no cell.
    """
    notes: list[str] = []
    found = _listed(content, notes)
    if len(found) > MOST_CELLS:
        many = f"The notebook has {len(found):,} cells, more than {MOST_CELLS:,}."
        raise CannotBeGraded(f"{many} Delete those that it does not need.")
    _look_at_kernel(_dict(content.get("metadata")), notes)
    cells = [_cell(number, one, notes) for number, one in enumerate(found, start=1)]
    _look_at_length(cells)
    return cells, list(dict.fromkeys(notes))


def _look_at_length(cells: list[Cell]) -> None:
    """What takes a minute to be read, parsed and written several times holds up all the others."""
    characters = sum(len(cell.source) for cell in cells)
    lines = sum(cell.source.count("\n") + 1 for cell in cells)
    for found, most, what in ((characters, MOST_TEXT, "characters"), (lines, MOST_LINES, "lines")):
        if found > most:
            long = f"The cells have {found:,} {what}, more than {most:,}."
            raise CannotBeGraded(f"{long} Shorten them; data do not belong in a notebook.")


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _listed(content: dict, notes: list[str]) -> list:
    version = content.get("nbformat"), content.get("nbformat_minor")
    found = content.get("cells")
    if isinstance(content.get("worksheets"), list) and "cells" not in content:
        sheets = [_dict(sheet).get("cells") for sheet in content["worksheets"]]
        found = [_of_version_3(cell) for cells in sheets if isinstance(cells, list) for cell in cells]
    if not isinstance(found, list):
        held = f"its cells are {kind(found)}, not a list" if "cells" in content else "it has no cells"
        raise CannotBeGraded(f"The file is no notebook: {held}. {AGAIN}")
    if version != (4, 5):
        known = all(type(number) is int and 0 <= number < 100 for number in version)
        which = "of notebook format {}.{}".format(*version) if known else "of an unknown notebook format"
        notes.append(f"The file was {which} and was brought to 4.5.")
    return found


def _of_version_3(cell: object) -> object:
    """A cell as notebooks had it until 2015."""
    if not isinstance(cell, dict):
        return cell
    if cell.get("cell_type") == "code":
        return {**cell, "source": cell.get("input")}
    if cell.get("cell_type") == "html":
        return {**cell, "cell_type": "markdown"}
    if cell.get("cell_type") != "heading" or not isinstance(cell.get("source"), str | list):
        return cell
    level = cell.get("level") if cell.get("level") in range(1, 7) else 1
    lines = [cell["source"]] if isinstance(cell["source"], str) else cell["source"]
    return {**cell, "cell_type": "markdown", "source": ["#" * int(level), " ", *lines]}


def _look_at_kernel(metadata: dict, notes: list[str]) -> None:
    """Whatever a file says, it is run by the course's kernel; a student may want to know."""
    kernel, info = _dict(metadata.get("kernelspec")), _dict(metadata.get("language_info"))
    language = kernel.get("language") or info.get("name")
    if isinstance(language, str) and not language.lower().startswith(("python", "ipython")):
        notes.append(f"The notebook was saved for the language “{shown(language)}”; it is run with Python.")
    elif not isinstance(kernel.get("language"), str):
        notes.append("The notebook did not say which language its kernel speaks; Python was put in.")


def _cell(number: int, cell: object, notes: list[str]) -> Cell:
    if not isinstance(cell, dict):
        raise CannotBeGraded(f"Cell {number} of the file is {kind(cell)}, not a cell. {FRESH}")
    metadata = _dict(cell.get("metadata"))
    marks = _marks(metadata)
    ids = [cell.get("id"), metadata.get("id"), metadata.get("cell_id")]
    if not isinstance(ids[0], str) and isinstance(ids[1], str):
        notes.append("The cells' ids stood in their metadata, where Colab may put them, and were moved back.")
    if marks and marks is not metadata.get("nbgrader"):
        notes.append("The grader's marks of cells stood in another place of the file and were moved back.")
    return Cell(
        number=number,
        type=_type(number, cell.get("cell_type"), notes),
        source=_source(number, cell.get("source"), notes),
        marks=marks,
        ids=tuple(name for name in ids if isinstance(name, str)),
        metadata=_kept(metadata),
        attachments=_pictures(number, _plots(cell) or cell.get("attachments"), notes),
    )


def _plots(cell: dict) -> dict:
    """What code has drawn, which a person looks at where it was an experiment."""
    outputs = cell.get("outputs") if cell.get("cell_type") == "code" else None
    data = [_dict(_dict(output).get("data")) for output in outputs] if isinstance(outputs, list) else []
    drawn = [{"image/png": one["image/png"]} for one in data if "image/png" in one]
    return {f"plot-{number}.png": one for number, one in enumerate(drawn[:MOST_PLOTS], start=1)}


def _type(number: int, found: object, notes: list[str]) -> str:
    if isinstance(found, str) and found in TYPES:
        return found
    notes.append(f"Cell {number} was of no known type and was kept as text that is not run.")
    return "raw"


def _source(number: int, source: object, notes: list[str]) -> str:
    if source is None:
        notes.append(f"Cell {number} had no text.")
        return ""
    lines = source if isinstance(source, list) else [source]
    wrong = [line for line in lines if not isinstance(line, str)]
    if wrong:
        raise CannotBeGraded(f"The text of cell {number} is {kind(wrong[0])}, not text. {FRESH}")
    text = "".join(lines)
    if len(text) > MOST_CHARACTERS:
        long = f"Cell {number} has {len(text):,} characters, more than {MOST_CHARACTERS:,}."
        raise CannotBeGraded(f"{long} Shorten it; data do not belong in a cell.")
    return whole(text)


def whole(text: str) -> str:
    """A text without lone halves of characters (JSON can express them), which no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _marks(metadata: dict, depth: int = 2) -> dict:
    """nbgrader's metadata; some programs move what they do not know one or two levels down."""
    found = metadata.get("nbgrader")
    if isinstance(found, dict):
        return found
    inner = [value for value in metadata.values() if isinstance(value, dict)] if depth else []
    return next((marks for marks in (_marks(value, depth - 1) for value in inner) if marks), {})


def _kept(metadata: dict) -> dict:
    kept = {name: metadata[name] for name in ("deletable", "editable") if type(metadata.get(name)) is bool}
    found = metadata.get("tags") if isinstance(metadata.get("tags"), list) else []
    tags = [whole(tag) for tag in found if isinstance(tag, str) and len(tag) <= LONGEST_NAME]
    tags = [tag for tag in dict.fromkeys(tags) if tag and "," not in tag]
    return {**kept, "tags": tags} if tags else kept


def _pictures(number: int, found: object, notes: list[str]) -> dict:
    """Pictures pasted into a written answer, of kinds that cannot hold a program."""
    every = {name: _picture(_dict(bundle)) for name, bundle in _dict(found).items()}
    kept = {whole(name): one for name, one in every.items() if one and len(name) <= LONGEST_NAME}
    if sum(len(text) for picture in kept.values() for text in picture.values()) > MOST_OF_PICTURES:
        kept = {}
    if found and (not every or len(kept) < len(every)):
        notes.append(f"Pictures in cell {number} were left out: too large, or not PNG, JPEG, GIF or WebP.")
    return kept


def _picture(bundle: dict) -> dict:
    found = {}
    for kind_of_picture in PICTURES:
        text = bundle.get(kind_of_picture)
        lines = text if isinstance(text, list) else [text]
        if all(isinstance(line, str) and re.fullmatch(r"[A-Za-z0-9+/=\s]+", line) for line in lines):
            found[kind_of_picture] = "".join(lines)
    return found
