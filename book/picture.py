"""The README's picture, for light pages and dark ones: ``python -m book.picture`` takes a chapter's drawing.

A drawing takes its colours from the page that it stands in; a file brings its own.
"""

import re
from pathlib import Path

from book.notebooks import CHAPTERS
from book.site import drawing
from transformer_lessons.tools.svg import PALETTE

PICTURE = Path(__file__).parent / "_static" / "cross_attention.svg"
CHAPTER, FIGURE = "00_on_one_page.ipynb", "fig-0-2"
LIGHT, DARK = ("".join(f"--{role}:{colours[mode]};" for role, colours in PALETTE.items()) for mode in (0, 1))
STYLE = f"""<style>svg{{{LIGHT}background:var(--paper);fill:var(--ink);font-family:system-ui,sans-serif}}
@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}</style>"""

if __name__ == "__main__":
    html = drawing(str(CHAPTERS / CHAPTER), FIGURE)
    svg = re.search(r'<svg.*?viewBox="0 0 (\d+) (\d+)".*?>(.*?)</svg>', html, re.DOTALL)
    width, height, content = svg.groups()
    xmlns = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    width = int(width) + 1  # of the frame's line, half lies outside
    size = f'viewBox="0 0 {width} {height}" width="{1.5 * width:g}" height="{1.5 * int(height):g}"'
    PICTURE.write_text(f"<svg {xmlns} {size}>{STYLE}{content}</svg>\n", encoding="utf-8")
