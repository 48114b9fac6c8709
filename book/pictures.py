"""Pictures that are files: ``python -m book.pictures NAME …`` makes them again.

`readme` is a drawing of chapter 0, for light and dark pages. `translator` takes the live translator of the
built site (``make book``) as it starts, for readers without JavaScript and for the PDF, and prints the room
it needs: the text below must not move when its script has run. `grading` is what instructors see of a made-up
class; it takes a minute and needs a machine with a sandbox for students' code.
"""

import argparse
import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from book.browser import LAPTOP, PHONE, browser
from book.build import HTML
from book.notebooks import CHAPTERS
from book.site import drawing
from transformer_lessons.tools.svg import PALETTE

STATIC = Path(__file__).parent / "_static"
LIGHT, DARK = ("".join(f"--{role}:{colours[mode]};" for role, colours in PALETTE.items()) for mode in (0, 1))
STYLE = f"""<style>svg{{{LIGHT}background:var(--paper);fill:var(--ink);font-family:system-ui,sans-serif}}
@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}</style>"""
TALL = 4000  # pixels, so that a whole figure is visible at once
STUDENT, ASSIGNMENT = "student-003_1003", "ps01_embeddings_attention"
WIDTH, MARGIN, SHARPNESS, COLOURS = 720, 20, 2, 64
# Where each picture begins and ends: a task with a named mistake, and the report up to its first table.
GRADING = {
    "feedback": (f"feedback/{STUDENT}/{ASSIGNMENT}/{ASSIGNMENT}.html", "h3 >> nth=1", ".panel >> nth=1"),
    "report": (f"report/{ASSIGNMENT}.html", "header", "#scores ~ .scroll"),
}


def readme() -> None:
    """Write a drawing with its own colours, since in a file it cannot take them from a page."""
    html = drawing(str(CHAPTERS / "00_on_one_page.ipynb"), "fig-0-2")
    svg = re.search(r'<svg.*?viewBox="0 0 (\d+) (\d+)".*?>(.*?)</svg>', html, re.DOTALL)
    width, height, content = int(svg[1]) + 1, int(svg[2]), svg[3]  # half of the frame's line is outside
    xmlns = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    size = f'viewBox="0 0 {width} {height}" width="{1.5 * width:g}" height="{1.5 * height:g}"'
    path = STATIC / "cross_attention.svg"
    path.write_text(f"<svg {xmlns} {size}>{STYLE}{content}</svg>\n", encoding="utf-8")


def image(screenshot: bytes) -> Image.Image:
    """Open a screenshot that Playwright has taken."""
    return Image.open(io.BytesIO(screenshot)).convert("RGB")


def translator() -> None:
    """Take a picture of the untouched translator on a laptop, and print its size; for a phone, the height."""
    pictures = {}
    for name, width in (("laptop", LAPTOP), ("phone", PHONE)):
        with browser(width=width, height=TALL) as view:
            view.open(HTML / "explorables" / "translator.html")
            figure = view.page.locator(".lessons-explorable")
            figure.evaluate("(one) => { one.style.minHeight = 0; }")
            pictures[name] = image(figure.screenshot())
    pictures["laptop"].save(STATIC / "stills" / "translator.webp", lossless=True, method=6)
    width, height = pictures["laptop"].size
    print(f'in book/explorables/translator.md, set width="{width}" height="{height}"')
    print(f"in explorables.css, set min-height: {height}px, and {pictures['phone'].height}px for phones")


def grading() -> None:
    """Take pictures of a task on a student's page and of the top of the report, in few colours."""
    from exercises.autograder.__main__ import main as autograder  # takes seconds to import

    with TemporaryDirectory() as folder, browser(width=WIDTH, device_scale_factor=SHARPNESS) as view:
        where = ["--course", folder]
        if autograder(["rehearse", "20", *where]) > 1 or autograder(["report", *where]):
            raise SystemExit("grading the rehearsal failed")
        for name, (page, first, last) in GRADING.items():
            view.open(Path(folder) / page)
            start, end = (view.page.locator(one).first.bounding_box() for one in (first, last))
            height = end["y"] + end["height"] - start["y"] + 2 * MARGIN
            place = {"x": 0, "y": start["y"] - MARGIN, "width": WIDTH, "height": height}
            picture = image(view.page.screenshot(clip=place, full_page=True)).quantize(COLOURS)
            picture.save(STATIC / f"{name}.png", optimize=True)
            print(f"{name}.png: {picture.width} × {picture.height}")


PICTURES = {work.__name__: work for work in (readme, translator, grading)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m book.pictures")
    parser.add_argument("names", metavar="NAME", nargs="+", choices=PICTURES, help=", ".join(PICTURES))
    for name in parser.parse_args().names:
        PICTURES[name]()
