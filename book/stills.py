"""How the hands-on figures start: pictures, for readers without JavaScript and the PDF, and the room they need.

``python -m book.stills`` takes them from the built site (``make book`` first) and writes ``book/_static/stills``
and ``book/_static/explorables/heights.css``: what stands below a figure must not move when its script has run.
"""

import base64
import io
import re
from pathlib import Path
from textwrap import indent

from PIL import Image

from book.browser import SETTLED, Browser
from book.built import HTML
from book.site import EXPLORABLES

FOLDER = Path(__file__).parent / "_static" / "stills"
HEIGHTS = FOLDER.parent / "explorables" / "heights.css"
LAPTOP, PHONE = 1280, 375
# As high as what is in it, whatever room was kept.
BOX = """(() => {
  const place = document.querySelector(".lessons-explorable");
  place.style.minHeight = 0;
  const { x, y, width, height } = place.getBoundingClientRect();
  return { x, y, width, height };
})()"""


def box(browser: Browser, page: Path) -> dict:
    """Where the explorable of a page lies, with all of it on the screen."""
    browser.open(page)
    browser.resize(browser.width, browser.evaluate("document.documentElement.scrollHeight"))
    browser.evaluate(SETTLED)
    found = browser.evaluate(BOX)
    browser.resize(browser.width, browser.height)
    return found


def still(browser: Browser, page: Path) -> Image.Image:
    """The explorable of a page, as it is before anybody touches it."""
    clip = {**box(browser, page), "scale": 1}
    answer = browser.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    return Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB")


def say_sizes(pictures: dict[str, Image.Image]) -> None:
    """Write the pictures' sizes into the pages' sources, where a browser looks for them."""
    for page in sorted(FOLDER.parents[1].glob("explorables/*.md")):
        text = page.read_text(encoding="utf-8")
        for name, picture in pictures.items():
            size = rf'(stills/{name}\.webp") width="\d+" height="\d+"'
            text = re.sub(size, rf'\1 width="{picture.width}" height="{picture.height}"', text)
        page.write_text(text, encoding="utf-8")


def rules(heights: dict[str, float]) -> str:
    """Room for each, in a style sheet."""
    lines = (
        f'[data-explorable="{name}"] {{ min-height: {height:.0f}px; }}' for name, height in heights.items()
    )
    return "\n".join(lines)


def main() -> None:
    """Take all of them."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted((HTML / "explorables").glob("*.html"))}
    found = {
        name: next(page for page, text in pages.items() if f'data-explorable="{name}"' in text)
        for name in EXPLORABLES
    }
    FOLDER.mkdir(exist_ok=True)
    with Browser(width=LAPTOP) as browser:
        taken = {name: still(browser, page) for name, page in found.items()}
    with Browser(width=PHONE) as browser:
        narrow = {name: box(browser, page)["height"] for name, page in found.items()}
    for name, picture in taken.items():
        path = FOLDER / f"{name}.webp"
        picture.save(path, lossless=True, method=6)
        print(f"{path.name}: {picture.width} × {picture.height}, {path.stat().st_size / 1000:.0f} kB")
    say_sizes(taken)
    wide = rules({name: picture.height for name, picture in taken.items()})
    HEIGHTS.write_text(
        "/* The room that each figure needs when its script has run; `python -m book.stills` measures it. */\n\n"
        f"{wide}\n\n@media (max-width: 600px) {{\n{indent(rules(narrow), '  ')}\n}}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
