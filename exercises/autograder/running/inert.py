"""Making a graded notebook safe to open: nbgrader's formgrader shows it as HTML on Jupyter's own page.

There a script of a student's would have the instructor's rights. So written answers are turned into HTML
without any of the student's own, and of the outputs only texts and re-encoded pictures stay; the student's
page shows the same.
"""

import base64
import io
import re

from markdown_it import MarkdownIt
from nbformat import NotebookNode
from nbformat.v4 import new_output
from PIL import Image

FORMATTED = 100_000  # characters of all written answers together, or of code, as a parser can be made slow
BEGINNING = 1_000  # characters that are kept of a longer text
BLANK = re.compile(r"\s{500}")  # in code; colouring such a run takes the square of its length

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
ENCODED = 8 << 20  # the most characters of an encoded picture
PIXELS = 8_000_000
SCANS = 100  # the most of a JPEG: each passes over all pixels, and programs write about ten
SIDE = 1000  # the most pixels along a side of a picture that is shown
PNG, JPEG = 90_000, 150_000  # the most bytes of each; a larger PNG becomes a JPEG
NOT_SHOWN = " (a picture that cannot be shown)"
# Without HTML, without references, of which many take minutes, and without links to scripts.
MARKDOWN = MarkdownIt("js-default", {"html": False, "maxNesting": 20}).disable(["image", "reference"])


def sanitize(notebook: NotebookNode) -> None:
    """Make written answers inert, as outputs are by then; text that is too long for the parser is cut."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    if len(code) > FORMATTED or BLANK.search(code):
        notebook.metadata.language_info = NotebookNode(name="text")  # code is shown without colours
    letters = FORMATTED
    for cell in notebook.cells:
        if cell.cell_type == "code" or cell.metadata.get("nbgrader", {}).get("locked"):
            continue  # shown as text, or the course's own
        cell.pop("attachments", None)
        text = cell.source
        columns, rows = max(line.count("|") for line in [*text.splitlines(), ""]), text.count("\n")
        size = max(len(text), columns * rows)  # as a short line of a table is filled up with cells
        if size > letters:
            text = f"{text[:BEGINNING].replace('|', ' ')}\n# [cut: {len(text):,} characters in all]"
            size = len(text)
        letters -= size
        cell.source = inert_markdown(text)


def inert_markdown(text: str) -> str:
    """The text as HTML on one line, because after an empty line it would be read as Markdown again.

    A pitfall: a picture becomes the text that refers to it.
    """
    made = MARKDOWN.render(text).strip()
    return f"<div>{made}</div>".replace("\0", "").replace("\n", "&#10;") if text.strip() else text


def inert_output(output: NotebookNode) -> NotebookNode:
    """An output without what a browser would run: its text, and its picture, re-encoded."""
    if "data" not in output:
        return output
    kept = {"text/plain": output.data["text/plain"]} if "text/plain" in output.data else {}
    drawn = (re_encode(kind, output.data[kind]) for kind in FORMATS if kind in output.data)
    kept |= next(filter(None, drawn), {})
    if is_picture(output) and not kept.keys() & FORMATS.keys():
        kept["text/plain"] = ("".join(kept.get("text/plain", "")) + NOT_SHOWN).strip()
    if not kept:
        kinds = ", ".join(sorted(output.data))[:200]
        return new_output("stream", name="stdout", text=f"[not shown: {kinds}]\n")
    output.data, output.metadata = NotebookNode(kept), NotebookNode()
    return output


def is_picture(output: NotebookNode) -> bool:
    """Whether an output claims to be a picture."""
    return bool(output.get("data", {}).keys() & FORMATS.keys())


def re_encode(kind: str, data: str | list[str]) -> dict[str, str]:
    """A stranger's picture, decoded and encoded again on white, so that nothing but its pixels is left.

    Returns it as the data of an output; an empty dict if it is not a picture, or too large.

    Args:
        kind: one of `FORMATS`; the bytes must be of this format, whatever other they may pass for.
        data: the picture in base64.
    """
    text = "".join(data)
    if len(text) > ENCODED:
        return {}
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
        if kind == "image/jpeg" and raw.count(b"\xff\xda") > SCANS:
            return {}
        with Image.open(io.BytesIO(raw), formats=[FORMATS[kind]]) as image:
            if image.width * image.height > PIXELS:
                return {}
            pixels = image.convert("RGBA")
    except Exception:  # for a damaged picture, a decoder raises almost anything
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
