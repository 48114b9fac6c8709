"""A student's cells and what they put out, as a page shows them: text, and pictures that were drawn anew."""

import re
from dataclasses import dataclass

from markupsafe import Markup
from nbformat import NotebookNode

from exercises.autograder.feedback.text import clean, cut, short, terminal
from exercises.autograder.running.inert import FORMATS

INLINED = re.compile("data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+")  # a picture, in the text of an answer


@dataclass(frozen=True)
class Block:
    """One cell, "code", "markdown" or "raw", or one output, "text", "error", "image" or "note"."""

    kind: str
    body: Markup | str
    outputs: tuple["Block", ...] = ()


def block(cell: NotebookNode, most: int, pictures: int) -> Block:
    """A cell with its outputs.

    Args:
        cell: of a graded notebook, whose outputs are inert.
        most: characters of each text.
        pictures: how many are shown, at most.
    """
    shown = []
    for output in cell.get("outputs", []):
        is_image = "data" in output and output.data.keys() & FORMATS.keys()
        if is_image and pictures == 0:
            shown.append(Block("note", "(a picture is left out: this page is full)"))
        elif is_image:
            shown.append(_image(output.data))
            pictures -= 1
        elif text := _text(output, most):
            shown.append(Block("error" if output.output_type == "error" else "text", text))
    source = INLINED.sub("(a picture)", cell.source)
    return Block(cell.cell_type, cut(clean(source), most), tuple(shown))


def _text(output: NotebookNode, most: int) -> str:
    """What an output that is no picture says."""
    if output.output_type == "stream":
        text = output.text
    elif output.output_type == "error":
        text = "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
    else:
        text = output.data.get("text/plain", "")
    return cut(clean(terminal(cut(text, 30 * most))).strip("\n"), most)


def _image(data: NotebookNode) -> Block:
    kind = next(form for form in FORMATS if form in data)
    address = f"data:{kind};base64,{data[kind]}"
    description = short(terminal(data.get("text/plain", ""))) or "a picture"
    return Block("image", Markup('<img src="{}" alt="{}">').format(address, clean(description)))
