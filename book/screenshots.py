"""Pictures of built pages: ``python -m book.screenshots [PAGE …] --output DIR``, after ``make book``.

Each page at the width of a phone and of a laptop, light and dark, at its full height. Without PAGE: every page.
"""

import base64
import sys
from pathlib import Path

from book.browser import SETTLED, Browser
from book.built import arguments, chosen_pages

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


def main(given: list[str] | None = None) -> int:
    """The command."""
    parser = arguments("screenshots", __doc__)
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    options = parser.parse_args(given)
    try:
        pages = chosen_pages(options)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    take(pages, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
