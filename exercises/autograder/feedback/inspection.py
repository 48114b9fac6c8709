"""The last look at a page before it is given out: only what it may hold, and nothing of a hidden test."""

import builtins
import keyword
import re
from html.parser import HTMLParser

from nbformat import NotebookNode

from exercises.autograder.feedback.markdown import HTTP, TAGS
from exercises.autograder.feedback.panels import given, source_of, whose

__all__ = ["inspect", "secrets"]

BYTES = 1_000_000
HEAD = {"meta", "title", "style"}  # which stand nowhere else
ELEMENTS = {
    *(*TAGS, *HEAD),
    *"html head body main header footer section div b img meter details summary".split(),
}
VOID = {"meta", "img", "br", "hr"}
EVERYWHERE = set("class id role aria-label aria-hidden tabindex start scope colspan".split())
ATTRIBUTES = {
    "html": {"lang"},
    "meta": {"http-equiv", "name", "content", "charset"},
    "a": {"href", "rel"},
    "img": {"src", "alt"},
    "meter": {"value", "max"},
}
VALUES = {
    "href": re.compile(rf"#points|#graded-\d+|{HTTP}", re.IGNORECASE),
    "src": re.compile("data:image/(png|jpeg);base64,[A-Za-z0-9+/]+=*"),
    "id": re.compile(r"points|graded-\d+"),
}
SECRET = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)(?:### END HIDDEN TESTS|\Z)", re.DOTALL)
ORDINARY = {*keyword.kwlist, *dir(builtins)}


def inspect(page: str, hidden: list[str]) -> None:
    """Lets a page pass, or not.

    Args:
        page: its HTML.
        hidden: lines that must not be on it.

    Raises:
        ValueError: if it is too large, holds anything that is not on the lists, or one of the lines.
    """
    size = len(page.encode())
    if size > BYTES:
        raise ValueError(f"page: expected at most {BYTES:,} bytes, got {size:,}")
    reader = _Reader()
    reader.feed(page)
    reader.close()
    if reader.open:
        raise ValueError(f"page: {reader.open[-1]} is not closed")
    text = " ".join("".join(reader.text).split())
    for line in hidden:
        if line in text:
            raise ValueError(f"page: a line of a hidden test would be on it: {line}")


def secrets(notebook: NotebookNode, released: NotebookNode) -> list[str]:
    """The lines of hidden tests that tell something: not short ones, nor those that a student was given or wrote.

    A line of Python's own words alone, such as ``except Exception:``, tells nothing, and is in many a traceback.
    """
    ours, known, tests = given(released), [source_of(cell) for cell in released.cells], []
    for cell in notebook.cells:
        (known if whose(cell, ours) == "theirs" else tests).append(source_of(cell))
    blocks = [block for text in tests for block in SECRET.findall(text)]
    lines = {" ".join(line.split()) for block in blocks for line in block.splitlines()}
    familiar = " ".join(" ".join(known).split())
    long = {line for line in lines if len(line) > 12 and line not in familiar}
    return sorted(line for line in long if set(re.findall(r"\w+", line)) - ORDINARY)


class _Reader(HTMLParser):
    """The text of a page; raises ValueError at the first thing that it may not hold."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attributes):
        if tag not in ELEMENTS or (tag in HEAD) != (self.open[-1:] == ["head"]):
            raise ValueError(f"page: no element {tag} is expected here")
        for name, value in attributes:
            if name not in EVERYWHERE | ATTRIBUTES.get(tag, set()):
                raise ValueError(f"page: no attribute {name} is expected of {tag}")
            if name in VALUES and not VALUES[name].fullmatch(value or ""):
                raise ValueError(f"page: no such {name} is expected: {(value or '')[:100]}")
            if name in ("alt", "aria-label"):
                self.text.append(f" {value} ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"page: no end of {tag} is expected here")

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        raise ValueError("page: no comment is expected")

    unknown_decl = handle_pi = handle_comment
