"""Build the site: ``python -m book.build [FOLDER]`` writes ``FOLDER/_build/html`` (FOLDER: the repository).

Jupyter Book has a command but no ``python -m jupyter_book``, and commands installed by pip contain the path of
their environment: they stop working when its folder moves or has a space in its name.
"""

import gc
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
STRICT = ("--warningiserror", "--nitpick", "--keep-going", "--quiet")


def build(folder: Path = ROOT, builder: str = "html") -> Path:
    """Build with warnings as errors (`singlehtml`: all in one page), and return the first page.

    A failure ends the process with Jupyter Book's exit code.
    """
    gc.set_threshold(100_000, 20, 100)  # page trees stay: a fifth of the time went to collecting cycles
    from jupyter_book.cli.main import main as jupyter_book  # its own import is slow, and warns

    from book import generated

    generated.write_pages()
    paths = [str(ROOT / "book"), "--config", str(ROOT / "_config.yml"), "--path-output", str(folder)]
    jupyter_book(["build", *paths, "--builder", builder, *STRICT], standalone_mode=False)
    return folder / "_build" / builder / "index.html"


def pages(html: Path = HTML) -> list[Path]:
    """Return the pages of a built site."""
    return [page for page in sorted(html.rglob("*.html")) if "_static" not in page.relative_to(html).parts]


if __name__ == "__main__":
    build(*(Path(folder).resolve() for folder in sys.argv[1:2]))
