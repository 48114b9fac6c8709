"""The pages of the built site that a command is asked about."""

import argparse
from pathlib import Path

__all__ = ["HTML", "arguments", "chosen_pages"]

HTML = Path(__file__).resolve().parents[1] / "_build" / "html"


def arguments(program: str, about: str) -> argparse.ArgumentParser:
    """The arguments that say which pages, and where they are."""
    parser = argparse.ArgumentParser(prog=f"python -m book.{program}", description=about)
    parser.add_argument("pages", metavar="PAGE", nargs="*", help="as in chapters/13_training (default: all)")
    parser.add_argument("--html", metavar="DIR", type=Path, default=HTML, help="the built site")
    return parser


def chosen_pages(options: argparse.Namespace) -> list[Path]:
    """The pages that were named, or all.

    Raises:
        FileNotFoundError: if one is not built.
    """
    named = [options.html / f"{name.removesuffix('.html')}.html" for name in options.pages]
    pages = named or [page for page in sorted(options.html.rglob("*.html")) if "_static" not in page.parts]
    if missing := [str(page) for page in pages or [options.html] if not page.is_file()]:
        raise FileNotFoundError(f"not built: {', '.join(missing)} (make book builds the site)")
    return pages
