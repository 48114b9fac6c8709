"""Pictures of built pages: ``python -m book.screenshots [PAGE …] --output DIR``, after ``make book``.

Each page at the width of a phone and of a laptop, light and dark, at its full height, and as a dark page looks on
paper. Without PAGE: every page. `make screenshots` writes to `_build/screenshots`.
"""

import base64
import sys
from pathlib import Path

from book.browser import SETTLED, Browser
from book.built import arguments, chosen_pages

WIDTHS = (375, 1280)
PAPER = 820  # pixels across the text of a sheet of A4, at the scale at which book/pdf.py prints
DARK = [{"name": "prefers-color-scheme", "value": "dark"}]


def capture(browser: Browser) -> bytes:
    """The open page from top to bottom, as PNG."""
    browser.resize(browser.width, browser.evaluate("document.documentElement.scrollHeight"))
    browser.evaluate(SETTLED)
    answer = browser.command("Page.captureScreenshot")
    browser.resize(browser.width, browser.height)
    return base64.b64decode(answer["data"])


def take(pages: list[Path], output: Path, widths=WIDTHS) -> None:
    """Write ``NAME-WIDTH-light.png``, ``NAME-WIDTH-dark.png`` and ``NAME-print.png`` for every page."""
    output.mkdir(parents=True, exist_ok=True)
    looks = [
        (width, dark, f"{width}-{'dark' if dark else 'light'}") for width in widths for dark in (False, True)
    ]
    for width, dark, look in [*looks, (PAPER, True, "print")]:
        with Browser(width=width, dark=dark) as browser:
            if look == "print":
                browser.command("Emulation.setEmulatedMedia", media="print", features=DARK)
            for page in pages:
                browser.open(page)
                (output / f"{page.stem}-{look}.png").write_bytes(capture(browser))
                print(output / f"{page.stem}-{look}.png")


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
