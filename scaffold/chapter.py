"""``lessons new-chapter``: a notebook with the parts of a chapter, executed, and its rows on the book's pages."""

import re
import tempfile
from pathlib import Path

import jupytext

from book.notebooks import chapters, execute
from book.notebooks import write as write_notebook
from book.setup_cell import SETUP_CELL
from scaffold.files import ROOT, filled, identifier, with_line, write

LEFT = (
    "all of the text and code: edit it in Jupyter, then python -m book.notebooks book/chapters/{stem}.ipynb",
    "its question in book/index.md, its topics in book/topics.md, its title in Chinese in book/zh.md",
    "pytest tests/test_book_notebooks.py tests/test_book_pages.py, and make book",
)
MINUTES = "10 minutes"


def new_chapter(name: str, title: str, exercise: str) -> tuple[list[Path], list[str]]:
    """Begin the next chapter: the files that were written, and what is left to do.

    Args:
        name: of the file, without its number.
        title: without its number.
        exercise: the assignment that goes with it.

    Raises:
        ValueError: for a name that is none or taken, a title that would break a table, or an unknown assignment.
    """
    there = [path.stem for path in chapters() if path.stem[:2].isdigit()]
    if identifier(name) in [stem[3:] for stem in there]:
        raise ValueError(f"name: expected a new one, there is a chapter {name!r} already")
    if not re.fullmatch(r"\w[^|\[\]<>\n]*", title):
        raise ValueError(f"title: expected a line of text without any of | [ ] < >, got {title!r}")
    assignments = sorted(path.name for path in (ROOT / "exercises" / "source").iterdir())
    if exercise not in assignments:
        raise ValueError(f"exercise: expected one of {', '.join(assignments)}, got {exercise!r}")
    number = f"{int(there[-1][:2]) + 1:02}"
    stem = f"{number}_{name}"
    text = notebook(number, name.replace("_", "-"), title, exercise)
    new = {ROOT / "book" / "chapters" / f"{stem}.ipynb": text}
    return write(new, pages(there[-1], stem, title, exercise)), [line.format(stem=stem) for line in LEFT]


def notebook(number: str, label: str, title: str, exercise: str) -> str:
    """The text of a chapter, executed."""
    values = {"two_digits": number, "number": str(int(number)), "minutes": MINUTES}
    text = filled("chapter.py.txt", label=label, title=title, exercise=exercise, **values)
    made = jupytext.reads(text, fmt="py:percent")
    for cell in made.cells:
        if "setup" in cell.metadata.get("tags", []):
            cell.source = SETUP_CELL
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chapter.ipynb")
        write_notebook(path, made)
        execute(path)
        return path.read_text(encoding="utf-8")


def pages(last: str, stem: str, title: str, exercise: str) -> dict[Path, str]:
    """The pages that list all chapters, with this one after the last."""
    number, file = str(int(stem[:2])), f"chapters/{stem}.ipynb"
    link, after = f"[{number}. {title}]({file})", rf"^\| .*\(chapters/{last}\.ipynb\) \| "
    rows = {
        "_toc.yml": (rf"- file: chapters/{last}$", f"      - file: chapters/{stem}"),
        "how_to_use.md": (rf"{after}.* \| `ps", f"| {link} | {MINUTES} | `{exercise[:4]}` |"),
        "index.md": (after, f"| {link} | What is the question? |"),
        "zh.md": (after, f"| [{number}]({file}) | {title} |"),
        "topics.md": (r"^\| .*\(chapters/", f"| {title} | [{number}.1]({file}#ch{stem[:2]}-begin) |"),
    }
    return {ROOT / "book" / page: with_row(ROOT / "book" / page, *row) for page, row in rows.items()}


def with_row(page: Path, beside: str, row: str) -> str:
    """A page with a row added; in `topics.md` to the first of two tables, which look alike."""
    text, mark, rest = page.read_text(encoding="utf-8").partition("## Mistakes")
    return with_line(text, beside, row) + mark + rest
