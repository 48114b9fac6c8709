"""Pictures of built pages: ``python -m book.screenshots [PAGE …] --output DIR``, after ``make book``.

Each page at the width of a phone and of a laptop, light and dark, at its full height, and as a dark page looks on
paper. Without PAGE: every page. `make screenshots` writes to `_build/screenshots`.
"""

import argparse
from pathlib import Path

from book.browser import LAPTOP, PHONE, browser
from book.build import built

PAPER = 820  # pixels across the text of a sheet of A4, at the scale at which book/pdf.py prints
LOOKS = [(width, dark, "screen") for width in (PHONE, LAPTOP) for dark in (False, True)]
LOOKS += [(PAPER, True, "print")]


def take(pages: list[Path], output: Path) -> None:
    """Write ``NAME-WIDTH-light.png``, ``NAME-WIDTH-dark.png`` and ``NAME-print.png`` for every page."""
    for width, dark, media in LOOKS:
        look = "print" if media == "print" else f"{width}-{'dark' if dark else 'light'}"
        with browser(width=width, dark=dark) as view:
            view.page.emulate_media(media=media)
            for page in pages:
                view.open(page)
                path = output / f"{page.stem}-{look}.png"
                view.page.screenshot(path=path, full_page=True)
                print(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m book.screenshots", description=__doc__.split("\n")[0])
    parser.add_argument("pages", metavar="PAGE", nargs="*", help="as in chapters/13_training (default: all)")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    options = parser.parse_args()
    take(built(options.pages), options.output)
