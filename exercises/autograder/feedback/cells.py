"""The notebook, cell by cell: the course's cells as they were given out, the student's as text, and outputs."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from nbformat import NotebookNode

from exercises.autograder.feedback.markdown import markdown, without_pictures
from exercises.autograder.feedback.panels import Panel, given, grade_id, source_of, whose
from exercises.autograder.feedback.pictures import FORMATS, picture
from exercises.autograder.feedback.text import NOTHING, Room, clean, code, cut, short, terminal, text_of

__all__ = ["Block", "Output", "Writer"]

BYTES = 550_000  # of the student's cells and all outputs
AROUND = 400  # bytes of the markup around a cell
BESIDE = 1_500  # bytes beside the text or pixels of an output: markup, a description, what is not shown
SOURCE = 20_000  # characters of a cell
PROSE = 10_000  # characters of one in Markdown
PARSED = 100_000  # characters of Markdown in all: some takes half a second for PROSE
OUTPUT = 10_000  # characters of an output
LINES = 200  # of an output
OUTPUTS = 20  # of a cell
PICTURES = 20  # in all
KINDS = {
    "text/html": "an HTML output",
    "text/latex": "a LaTeX output",
    "text/markdown": "a Markdown output",
    "image/svg+xml": "an SVG picture",
    "application/javascript": "a script",
    "application/pdf": "a PDF",
    "application/vnd.jupyter.widget-view+json": "a widget",
}


@dataclass(frozen=True)
class Output:
    """One output: "text", "stderr", "error", "image" or "note"."""

    kind: str
    body: Markup | str


@dataclass(frozen=True)
class Block:
    """One cell: "prose", "code" or "raw", or "" where there is only a panel; and whether it is the student's."""

    kind: str
    body: Markup = NOTHING
    theirs: bool = False
    outputs: tuple[Output, ...] = ()
    panel: Panel | None = None


class Writer:
    """Writes the cells of one page, in their order, until it is full.

    Attributes:
        level: of the last heading.
        formulas: whether there was one.
        left_out: how many of the student's cells had no room.
    """

    def __init__(self, released: NotebookNode, panels: Mapping[str, Panel]):
        self._given, self._panels = given(released), panels
        self._room, self._parsed, self._pictures = Room(BYTES), Room(PARSED), Room(PICTURES)
        self._shown: set[str | None] = set()
        self.level, self.formulas, self.left_out = 2, False, 0

    def blocks(self, notebook: NotebookNode) -> list[Block]:
        """The notebook's cells, then what is graded and has no cell in it."""
        found = [block for cell in notebook.cells if (block := self._block(cell))]
        lost = [panel for name, panel in self._panels.items() if name not in self._shown]
        return [*found, *(Block("", panel=panel) for panel in lost)]

    def _block(self, cell: NotebookNode) -> Block | None:
        name, kind = grade_id(cell), whose(cell, self._given)
        again = name in self._shown
        panel = None if again else self._panels.get(name)
        if kind != "theirs" and again:
            return None  # a copy of a cell of ours
        self._shown.add(name)
        if kind == "locked":
            return self._locked(self._given[name], cell)
        if kind == "theirs" and self._room.take(AROUND):
            return self._theirs(cell, panel)
        self.left_out += kind == "theirs"
        return Block("", panel=panel) if panel else None

    def _locked(self, ours: NotebookNode, cell: NotebookNode) -> Block:
        """A cell of the course's as it was given out, with what it put out."""
        text = clean(source_of(ours))
        if ours.cell_type == "code":
            return Block("code", code(text), outputs=self._outputs(cell))
        return Block("prose", markdown(text, self, {}, ours=True))

    def _theirs(self, cell: NotebookNode, panel: Panel | None) -> Block:
        if cell.get("cell_type") == "markdown":
            return Block("prose", self._prose(cell), theirs=True, panel=panel)
        text = cut(clean(source_of(cell)), SOURCE)
        if cell.get("cell_type") != "code":
            return Block("raw", self._fitted(escape(text)), theirs=True, panel=panel)
        body = self._fitted(code(text))
        return Block("code", body, theirs=True, outputs=self._outputs(cell), panel=panel)

    def _prose(self, cell: NotebookNode) -> Markup:
        source, attachments = without_pictures(source_of(cell), cell.get("attachments"))
        text = cut(clean(source), PROSE)
        if self._parsed.take(len(text)):
            return self._fitted(markdown(text, self, attachments))
        return self._fitted(Markup('<pre class="text">{}</pre>').format(text))

    def _fitted(self, markup: Markup) -> Markup:
        fits = self._room.take(len(markup.encode()))
        return markup if fits else Markup('<span class="note">(left out: this page is full)</span>')

    def image(self, bundle: Any, description: str) -> Markup:
        """The picture in a MIME bundle, or that it cannot be shown."""
        description = clean(short(description))
        kind = next((kind for kind in FORMATS if kind in bundle), None) if isinstance(bundle, dict) else None
        if kind and self._room.left and self._pictures.take(1):
            address = picture(kind, text_of(bundle[kind]))
            if address and self._room.take(len(address)):
                return Markup('<img src="{}" alt="{}">').format(address, description)
        return Markup('<span class="note">{} (a picture that cannot be shown)</span>').format(description)

    def _outputs(self, cell: NotebookNode) -> tuple[Output, ...]:
        outputs = cell.get("outputs")
        runs = _joined([one for one in outputs if isinstance(one, dict)] if isinstance(outputs, list) else [])
        fitting = [one for one in runs[:OUTPUTS] if self._room.take(BESIDE)]
        found = [part for one in fitting for part in self._output(one)]
        if len(runs) > len(fitting):
            found.append(Output("note", f"({len(runs) - len(fitting):,} more outputs are left out)"))
        return tuple(found)

    def _output(self, output: dict[str, Any]) -> list[Output]:
        kind, data = output.get("output_type"), output.get("data")
        if kind == "stream":
            return self._lines(
                "stderr" if output.get("name") == "stderr" else "text", text_of(output.get("text"))
            )
        if kind == "error":
            return self._lines("error", _traceback(output))
        return self._bundle(data) if isinstance(data, dict) else []

    def _bundle(self, data: dict[str, Any]) -> list[Output]:
        """The picture of an output, else its text; and what of it is not shown."""
        plain = text_of(data.get("text/plain"))
        if data.keys() & FORMATS.keys():
            return [Output("image", self.image(data, short(terminal(plain[:OUTPUT])) or "a picture"))]
        other = next((kind for kind in data if kind != "text/plain"), None)
        named = KINDS.get(other) or f"an output of type {short(str(other))}"
        note = [Output("note", f"({named} is not shown)")] if other is not None else []
        return [*self._lines("text", plain), *note]

    def _lines(self, kind: str, text: str) -> list[Output]:
        shown = clean(terminal(cut(text, 30 * OUTPUT))).strip("\n")
        return [Output(kind, self._fitted(escape(cut(shown, OUTPUT, LINES))))] if shown else []


def _joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outputs in which a stream is one: a kernel may cut it anywhere."""
    streams = itertools.groupby(
        outputs, lambda one: ("stream", one.get("name")) if one.get("output_type") == "stream" else id(one)
    )
    runs = [list(run) for _, run in streams]
    return [{**run[0], "text": [text_of(one.get("text")) for one in run]} for run in runs]


def _traceback(output: dict[str, Any]) -> str:
    lines = output.get("traceback")
    found = "\n".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ""
    return found or f"{text_of(output.get('ename'))}: {text_of(output.get('evalue'))}"
