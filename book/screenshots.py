"""Screenshots of built pages: ``make screenshots``, or ``make screenshots PAGES=chapters/13_training``.

They go into `_build/screenshots`: each page at the width of a phone and of a laptop, light and dark, at its
full height, and as a dark page looks on paper.
"""

import sys

from book.browser import LAPTOP, PHONE, browser
from book.build import HTML, ROOT, pages

OUTPUT = ROOT / "_build" / "screenshots"
PAPER = 820  # pixels across the text of a sheet of A4, at the scale of book/pdf.py
LOOKS = {
    f"{width}-{'dark' if is_dark else 'light'}": (width, is_dark, "screen")
    for width in (PHONE, LAPTOP)
    for is_dark in (False, True)
} | {"print": (PAPER, True, "print")}

if __name__ == "__main__":
    chosen = [HTML / f"{name}.html" for name in sys.argv[1:]] or pages()
    for look, (width, is_dark, media) in LOOKS.items():
        with browser(width=width, dark=is_dark) as view:
            view.page.emulate_media(media=media)
            for page in chosen:
                view.open(page)
                path = OUTPUT / f"{page.stem}-{look}.png"
                view.page.screenshot(path=path, full_page=True)
                print(path)
