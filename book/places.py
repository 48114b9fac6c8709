"""Where the book explains what: ``python -m book.places`` writes it down for the checks' messages.

An anchor's name has no chapter number in it, so messages keep it when chapters move; chapter and section are read
from the chapters, here, into ``transformer_lessons/checks/places.json``.
"""

import json
import re
from pathlib import Path

from transformer_lessons.data.files import read_json, replacing

BOOK = "https://transformer-lessons.github.io/transformer-lessons/"  # `make set-repository` keeps it right
CHAPTERS = Path(__file__).parent / "chapters"
PLACES = Path(__file__).parents[1] / "transformer_lessons" / "checks" / "places.json"
ANCHOR = re.compile(r'<a id="(?!ch\d\d-|eq:)([^"]+)"></a>')


def places() -> dict[str, list[str]]:
    """For each anchor its place in words, and its page."""
    found = {}
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        cells = [cell for cell in read_json(path)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
        title = re.search(r"^# (?:\d+\. )?(.+)$", text, re.MULTILINE)[1]
        for anchor in ANCHOR.finditer(text):
            own = re.match(r'(?:<a id="[^"]+"></a>|\s)*## (\d+\.\d+) (.+)', text[anchor.end() :])
            above = re.findall(r"^## (\d+\.\d+) (.+)$", text[: anchor.start()], re.MULTILINE)
            section = own.groups() if own else above[-1] if above else None
            where = f"chapter {section[0]}, “{section[1]}”" if section else f"“{title}”"
            assert anchor[1] not in found, f"{anchor[1]}: two anchors of this name"
            found[anchor[1]] = [plain(where), f"chapters/{path.stem}.html"]
    return found


def plain(title: str) -> str:
    """A heading without Markdown, and its formulas in letters."""
    title = re.sub(r"\\text\{(\w+)\}", r"\1", title).replace(r"\sqrt", "√")
    return re.sub(r"[`$*\\{}]", "", title)


def content() -> str:
    """What the file should hold."""
    return json.dumps({"book": BOOK, "anchors": places()}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    with replacing(PLACES) as temporary:
        temporary.write_text(content(), encoding="utf-8")
