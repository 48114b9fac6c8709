"""A graded notebook that a person can open: nbgrader's formgrader shows it as HTML on Jupyter's own page.

There a script of a student's would have the instructor's rights. So written answers are turned into HTML without
any of the student's own, and outputs keep only what cannot hold a script.
"""

import base64
import binascii
from typing import Any

from markdown_it import MarkdownIt
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import NbGraderPreprocessor

__all__ = ["InertNotebook", "inert_markdown", "inert_output"]

STARTS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
# Without HTML, and without links to scripts, which this parser refuses by itself.
MARKDOWN = MarkdownIt("js-default", {"html": False, "maxNesting": 20}).disable("image")


class InertNotebook(NbGraderPreprocessor):
    """The last step of autograding: marks and checksums are saved by then, and are of the student's own text."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Answers in words and outputs of code; locked cells are the course's."""
        if cell.cell_type == "code":
            cell.outputs = [inert_output(output) for output in cell.outputs]
        elif not cell.metadata.get("nbgrader", {}).get("locked"):
            cell.pop("attachments", None)
            cell.source = inert_markdown(cell.source)
        return cell, resources


def inert_markdown(text: str) -> str:
    """The text as HTML on one line, as Markdown would be read anew behind an empty one.

    A pitfall: pictures become the text that calls them.
    """
    html = MARKDOWN.render(text.replace("\0", ""))
    return f"<div>{html.strip()}</div>".replace("\n", "&#10;") if text.strip() else text


def inert_output(output: NotebookNode) -> NotebookNode:
    """An output without what a browser would run: text and pictures stay."""
    if "data" not in output:
        return output
    kept = {mime: value for mime, value in output.data.items() if _is_inert(mime, value)}
    if not kept:
        return new_output(
            "stream", name="stdout", text=f"[not shown: {', '.join(sorted(output.data))[:200]}]\n"
        )
    output.data, output.metadata = NotebookNode(kept), NotebookNode()
    return output


def _is_inert(mime: str, value: Any) -> bool:
    if mime not in STARTS:
        return mime == "text/plain"
    try:
        return base64.b64decode("".join(value).replace("\n", ""), validate=True).startswith(STARTS[mime])
    except (binascii.Error, TypeError, ValueError):
        return False
