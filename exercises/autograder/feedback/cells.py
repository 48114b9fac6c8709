"""A student's cells and what they put out: as text, and as pictures that were drawn anew."""

import re
from dataclasses import dataclass

from markupsafe import Markup, escape
from nbformat import NotebookNode

from exercises.autograder.feedback.text import Budget, clean, cut, short, terminal
from exercises.autograder.running.inert import FORMATS, picture

__all__ = ["Block", "Writer"]

BYTES = 550_000  # of all cells and outputs
BESIDE = 800  # bytes of the markup around a cell or an output, and of a picture's description
SOURCE = 20_000  # characters of a cell
OUTPUT = 10_000  # characters of an output
OUTPUTS = 20  # of a cell
PICTURES = 20  # in all
INLINED = re.compile("data:(image/(?:png|jpeg));base64,([A-Za-z0-9+/=]+)")


@dataclass(frozen=True)
class Block:
    """One cell, "code", "markdown" or "raw", or one output, "text", "error", "image" or "note"."""

    kind: str
    body: Markup | str
    outputs: tuple["Block", ...] = ()


class Writer:
    """Makes blocks of cells, one after the other, until the page is full.

    Attributes:
        left_out: how many cells had no room.
    """

    def __init__(self):
        self._bytes, self._pictures = Budget(BYTES), Budget(PICTURES)
        self.left_out = 0

    def block(self, cell: NotebookNode) -> Block | None:
        """A cell with its pictures and outputs; None if there is no room for it."""
        if not self._bytes.spend(BESIDE):
            self.left_out += 1
            return None
        source, outputs, pictures = cell.source, cell.get("outputs", []), []
        if cell.cell_type == "markdown":
            pictures += cell.get("attachments", {}).values()
            pictures += [{match[1]: match[2]} for match in INLINED.finditer(source)]
            source = INLINED.sub("(a picture, see below)", source)
        body = self._fitting(cut(clean(source), SOURCE))
        shown = [
            self._picture(bundle, "a picture") for bundle in pictures[:OUTPUTS] if self._bytes.spend(BESIDE)
        ]
        fitting = [output for output in outputs[:OUTPUTS] if self._bytes.spend(BESIDE)]
        shown += [part for output in fitting for part in self._output(output)]
        if len(outputs) > len(fitting):
            shown.append(Block("note", f"({len(outputs) - len(fitting):,} more outputs are left out)"))
        return Block(cell.cell_type, body, tuple(shown))

    def _fitting(self, text: str) -> str:
        return text if self._bytes.spend(len(escape(text).encode())) else "(left out: this page is full)"

    def _output(self, output: NotebookNode) -> list[Block]:
        """Text or a picture; `running.inert` has left nothing else."""
        if output.output_type == "stream":
            return self._text("text", output.text)
        if output.output_type == "error":
            return self._text("error", "\n".join(output.traceback) or f"{output.ename}: {output.evalue}")
        plain = output.data.get("text/plain", "")
        if output.data.keys() & FORMATS.keys():
            return [self._picture(output.data, short(terminal(plain[:OUTPUT])) or "a picture")]
        return self._text("text", plain)

    def _text(self, kind: str, text: str) -> list[Block]:
        shown = cut(clean(terminal(cut(text, 30 * OUTPUT))).strip("\n"), OUTPUT)
        return [Block(kind, self._fitting(shown))] if shown else []

    def _picture(self, bundle: dict[str, str], description: str) -> Block:
        kind = next((form for form in FORMATS if form in bundle), None)
        if kind and self._pictures.spend(1):
            for form, drawn in picture(kind, bundle[kind]).items():
                address = f"data:{form};base64,{drawn}"
                if self._bytes.spend(len(address)):
                    image = Markup('<img src="{}" alt="{}">').format(address, clean(description))
                    return Block("image", image)
        return Block("note", f"{description} (a picture that cannot be shown)")
