"""The pages of the built site that a command is asked about."""

import argparse
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from book.browser import find

__all__ = ["HTML", "arguments", "chosen_pages", "site_path"]

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"


def site_path() -> str:
    """Where on its host the site is published: a project's pages lie below the host's root."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return urlsplit(settings["sphinx"]["config"]["html_baseurl"]).path


def arguments(program: str, about: str, default: str = "all") -> argparse.ArgumentParser:
    """The arguments that say which pages, and where they are."""
    parser = argparse.ArgumentParser(prog=f"python -m book.{program}", description=about)
    parser.add_argument(
        "pages", metavar="PAGE", nargs="*", help=f"as in chapters/13_training (default: {default})"
    )
    parser.add_argument("--html", metavar="DIR", type=Path, default=HTML, help="the built site")
    return parser


def chosen_pages(options: argparse.Namespace) -> list[Path]:
    """The pages that were named, or all.

    Raises:
        FileNotFoundError: if one is not built, or there is no Chromium to open them.
    """
    named = [options.html / f"{name.removesuffix('.html')}.html" for name in options.pages]
    pages = named or [page for page in sorted(options.html.rglob("*.html")) if "_static" not in page.parts]
    missing = [str(page) for page in pages if not page.is_file()]
    if missing or not pages:
        raise FileNotFoundError(
            f"not built: {', '.join(missing) or options.html} (make book builds the site)"
        )
    if find() is None:
        raise FileNotFoundError("Chromium is needed, and none of its usual names is on the PATH")
    return pages
