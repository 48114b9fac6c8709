"""Strangers' texts and outputs, made harmless, and pages of them: nothing in a text is invisible, and no
terminal obeys it; outputs become such texts, or re-encoded pictures.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from nbformat import NotebookNode

from exercises.autograder.intake.cells import INVISIBLE
from exercises.autograder.running.inert import FORMATS, is_picture

DESCRIPTION = 200  # characters of a picture's description
MOST = 20_000  # characters of a cell, or of an output
# What a terminal obeys instead of showing it: colours and movements; titles and hyperlinks.
COMMANDS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")


def clean(text: str) -> str:
    """The text with nothing invisible or turning the reading direction: such characters show by number.

    Spaces of any kind are left alone, as are the two selectors that choose between the two kinds of ✔.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def cut(text: str, most: int = MOST) -> str:
    """The text; if it is too long, its beginning and end, and how much is missing between them."""
    if len(text) <= most:
        return text
    gap = f"\n… {len(text) - most:,} characters are left out here …\n"
    return text[: most * 2 // 3] + gap + text[-(most // 3) :]


def terminal(text: str) -> str:
    """The text as a terminal finally shows it, without colours: of a rewritten line, the last version."""
    lines = COMMANDS.sub("", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def points(value: float | None) -> str:
    """Points with at most two decimals."""
    return "–" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def output(of: NotebookNode) -> tuple[str, Markup | str]:
    """The kind of a graded notebook's (inert) output, "image", "error" or "text", and what it shows."""
    data = of.get("data", {})
    text = of.get("text") or data.get("text/plain", "")
    if is_picture(of):
        kind = next(form for form in FORMATS if form in data)
        picture = Markup('<img src="data:{};base64,{}" alt="{}">')
        description = clean(cut(terminal(text), DESCRIPTION)) or "a picture"
        return "image", picture.format(kind, data[kind], description)
    if of.output_type == "error":
        return "error", cut(terminal("\n".join(of.traceback) or f"{of.ename}: {of.evalue}").strip("\n"))
    return "text", cut(terminal(text).strip("\n"))


# ---- Pages


def template(path: Path, filters: Mapping[str, Callable]) -> Template:
    """A template of a static page, in which everything is text unless it is known to be markup.

    It gets `style`, the only style sheet of all pages, and `digest`, by which the page's policy admits it.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(str(value)),
    )
    environment.filters |= {"points": points, "output": output, **filters}
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    environment.globals |= {"style": Markup(style), "digest": f"sha256-{digest}"}
    return environment.from_string(path.read_text(encoding="utf-8"))
