"""Pictures of built pages: ``python -m book.screenshots [PAGE …] --output DIR``, after ``make book``.

Each page at the width of a phone and of a laptop, light and dark, at its full height. Without PAGE: every page.
"""

import argparse
import base64
import sys
from pathlib import Path

from book.browser import SETTLED, Browser, find

HTML = Path(__file__).resolve().parents[1] / "_build" / "html"
WIDTHS = (375, 1280)


def capture(browser: Browser) -> bytes:
    """The open page from top to bottom, as PNG."""
    browser.resize(browser.width, browser.evaluate("document.documentElement.scrollHeight"))
    browser.evaluate(SETTLED)
    answer = browser.command("Page.captureScreenshot")
    browser.resize(browser.width, browser.height)
    return base64.b64decode(answer["data"])


def take(pages: list[Path], output: Path, widths=WIDTHS) -> None:
    """Write ``NAME-WIDTH-light.png`` and ``NAME-WIDTH-dark.png`` for every page."""
    output.mkdir(parents=True, exist_ok=True)
    for width in widths:
        for dark in (False, True):
            with Browser(width=width, dark=dark) as browser:
                for page in pages:
                    browser.open(page)
                    name = f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
                    (output / name).write_bytes(capture(browser))
                    print(output / name)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m book.screenshots", description=__doc__)
    parser.add_argument("pages", metavar="PAGE", nargs="*", help="as in chapters/14_training (default: all)")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    parser.add_argument("--html", metavar="DIR", type=Path, default=HTML, help="the built site")
    options = parser.parse_args(arguments)
    found = [options.html / f"{name.removesuffix('.html')}.html" for name in options.pages]
    pages = found or [page for page in sorted(options.html.rglob("*.html")) if "_static" not in page.parts]
    missing = [str(page) for page in pages if not page.is_file()]
    if missing or not pages:
        print(f"not built: {', '.join(missing) or options.html} (make book builds the site)", file=sys.stderr)
        return 2
    if find() is None:
        print("Chromium is needed, and none of its usual names is on the PATH", file=sys.stderr)
        return 2
    take(pages, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
