"""How the live translator starts: a picture for readers without JavaScript and the PDF, and the room it needs.

``python -m book.stills`` takes it from the built site (``make book`` first) and writes ``book/_static/stills``
and ``book/_static/explorables/heights.css``: what stands below a figure must not move when its script has run.
"""

import io
from pathlib import Path

from PIL import Image

from book.browser import LAPTOP, PHONE, SETTLED, TABLET, browser
from book.build import HTML

STATIC = Path(__file__).parent / "_static"
PICTURE = STATIC / "stills" / "translator.webp"
HEIGHTS = STATIC / "explorables" / "heights.css"
RULES = """\
/* The room that each figure needs when its script has run; `python -m book.stills` measures it. */

[data-explorable="translator"] {{ min-height: {laptop}px; }}

@media (max-width: {narrow}px) {{
  [data-explorable="translator"] {{ min-height: {phone}px; }}
}}
"""


def still(width: int) -> Image.Image:
    """The translator before anybody touches it, on a screen on which all of it is seen, without room to spare."""
    with browser(width=width) as view:
        view.open(HTML / "explorables" / "translator.html")
        figure = view.page.locator(".lessons-explorable")
        figure.evaluate("(one) => { one.style.minHeight = 0; }")
        height = view.page.evaluate("document.documentElement.scrollHeight")
        view.page.set_viewport_size({"width": width, "height": height})
        view.page.evaluate(SETTLED)
        return Image.open(io.BytesIO(figure.screenshot())).convert("RGB")


if __name__ == "__main__":
    laptop, phone = still(LAPTOP), still(PHONE)
    laptop.save(PICTURE, lossless=True, method=6)
    HEIGHTS.write_text(
        RULES.format(laptop=laptop.height, phone=phone.height, narrow=TABLET), encoding="utf-8"
    )
    size = f'width="{laptop.width}" height="{laptop.height}"'
    print(f"{PICTURE.name}: its page, book/explorables/translator.md, should say {size}")
