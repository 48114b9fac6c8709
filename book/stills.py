"""Pictures of the hands-on figures as they start, for readers without JavaScript and for the PDF.

``python -m book.stills`` takes them from the built site (``make book`` first) and writes ``book/_static/stills``.
"""

import base64
import io
from pathlib import Path

from PIL import Image

from book.browser import SETTLED, Browser
from book.built import HTML
from book.site import EXPLORABLES

FOLDER = Path(__file__).parent / "_static" / "stills"
PLACE = "document.querySelector('.lessons-explorable').getBoundingClientRect()"


def still(browser: Browser, page: Path) -> Image.Image:
    """The explorable of a page, as it is before anybody touches it."""
    browser.open(page)
    browser.resize(browser.width, browser.evaluate("document.documentElement.scrollHeight"))
    browser.evaluate(SETTLED)
    box = browser.evaluate(f"(({{ x, y, width, height }}) => ({{ x, y, width, height }}))({PLACE})")
    answer = browser.command("Page.captureScreenshot", clip={**box, "scale": 1})
    browser.resize(browser.width, browser.height)
    return Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB")


def main() -> None:
    """Take all of them."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted((HTML / "explorables").glob("*.html"))}
    FOLDER.mkdir(exist_ok=True)
    with Browser() as browser:
        for name in EXPLORABLES:
            [page] = [page for page, text in pages.items() if f'data-explorable="{name}"' in text]
            path = FOLDER / f"{name}.webp"
            taken = still(browser, page)
            taken.save(path, lossless=True, method=6)
            print(f"{path.name}: {taken.width} × {taken.height}, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
