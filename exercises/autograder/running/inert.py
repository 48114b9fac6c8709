"""A graded notebook that a person can open: nbgrader's formgrader shows it as HTML on Jupyter's own page.

There a script of a student's would have the instructor's rights. So written answers are turned into HTML without
any of the student's own, and of outputs there stay texts, and pictures that were drawn anew; the student's page
shows the same. And it stays small enough to be opened.
"""

import base64
import io
import json
import re
from typing import Any

from markdown_it import MarkdownIt
from nbformat import NotebookNode
from nbformat.v4 import new_output
from PIL import Image

ROOM = 600_000  # bytes of all that the student wrote, in the file
BEGINNING = 1_000  # characters of a text for which there is no room
LINE_ENDS = re.compile(r"\\(?:[nrf]|u000b|u001[cde]|u0085|u202[89])")  # of which `splitlines` knows, in JSON
FORMATTED = 100_000  # characters of all written answers, as a parser can be made slow

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
ENCODED = 8 << 20  # characters in which a picture may come
PIXELS = 8_000_000
SIDE = 1000  # pixels of a picture that is shown
PNG, JPEG = 90_000, 150_000  # bytes of one; a larger PNG becomes a JPEG
NOT_SHOWN = " (a picture that cannot be shown)"
# Without HTML, and without links to scripts, which this parser refuses by itself.
MARKDOWN = MarkdownIt("js-default", {"html": False, "maxNesting": 20}).disable("image")


def sanitize(notebook: NotebookNode) -> None:
    """Make what the student wrote inert, as outputs are by then; texts for which no room is left are cut."""
    room, letters = ROOM, FORMATTED
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("locked"):
            continue  # the course's
        cell.pop("attachments", None)
        is_code, short = cell.cell_type == "code", _beginning(cell.source)
        text = cell.source if is_code or len(cell.source) <= letters else short
        inert = str if is_code else inert_markdown
        made = inert(text)
        cell.source = made if written_bytes(made) <= room else inert(short)
        room -= written_bytes(cell.source)
        letters -= 0 if is_code else len(text)


def _beginning(text: str) -> str:
    return f"{text[:BEGINNING]}\n# [cut: {len(text):,} characters in all]"


def written_bytes(value: Any) -> int:
    """At most so many bytes a text or an output takes in a notebook's file, which has a line for each line of it.

    Raises:
        RecursionError: if it is nested too deep to be written.
    """
    text = json.dumps(value, indent=1)
    return len(text) + 8 * text.count("\n") + 16 * len(LINE_ENDS.findall(text))


def inert_markdown(text: str) -> str:
    """The text as HTML on one line, as Markdown would be read anew behind an empty one.

    A pitfall: pictures become the text that calls them.
    """
    made = MARKDOWN.render(text).strip()
    return f"<div>{made}</div>".replace("\0", "").replace("\n", "&#10;") if text.strip() else text


def inert_output(output: NotebookNode) -> NotebookNode:
    """An output without what a browser would run: its text, and its picture, drawn anew."""
    if "data" not in output:
        return output
    kept = {"text/plain": output.data["text/plain"]} if "text/plain" in output.data else {}
    drawn = (picture(kind, output.data[kind]) for kind in FORMATS if kind in output.data)
    kept |= next(filter(None, drawn), {})
    if is_picture(output) and not kept.keys() & FORMATS.keys():
        kept["text/plain"] = ("".join(kept.get("text/plain", "")) + NOT_SHOWN).strip()
    if not kept:
        return new_output(
            "stream", name="stdout", text=f"[not shown: {', '.join(sorted(output.data))[:200]}]\n"
        )
    output.data, output.metadata = NotebookNode(kept), NotebookNode()
    return output


def is_picture(output: NotebookNode) -> bool:
    """Whether it says that it is one."""
    return bool(output.get("data", {}).keys() & FORMATS.keys())


def picture(kind: str, data: str | list[str]) -> dict[str, str]:
    """A stranger's picture, decoded and encoded anew on white, so that nothing but pixels is left of it.

    Returns it as the data of an output; nothing if it is no picture, or too large.

    Args:
        kind: one of `FORMATS`; the bytes must be of this format, whatever other they may pass for.
        data: in base 64.
    """
    text = "".join(data)
    if len(text) > ENCODED:
        return {}
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
        with Image.open(io.BytesIO(raw), formats=[FORMATS[kind]]) as image:
            if image.width * image.height > PIXELS:
                return {}
            pixels = image.convert("RGBA")
    except Exception:  # of a damaged picture, a decoder raises almost anything
        return {}
    pixels.thumbnail((SIDE, SIDE))
    plain = Image.new("RGB", pixels.size, "white")
    plain.paste(pixels, mask=pixels.getchannel("A"))
    for form, most in (("png", PNG), ("jpeg", JPEG)):
        buffer = io.BytesIO()
        plain.save(buffer, form)
        if len(encoded := buffer.getvalue()) <= most:
            return {f"image/{form}": base64.b64encode(encoded).decode("ascii")}
    return {}
