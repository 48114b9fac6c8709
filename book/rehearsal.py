"""What grading shows, photographed: ``python -m book.rehearsal`` grades a made-up class and takes two pictures.

The page for instructors shows them: a task on a student's page, and the top of the report. It takes a minute,
Chromium, and a machine on which students' code can be confined.
"""

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from book.browser import Browser, browser
from exercises.autograder.__main__ import main as autograder

STATIC = Path(__file__).parent / "_static"
STUDENT, ASSIGNMENT = "student-003_1003", "ps01_embeddings_attention"
WIDTH, MARGIN, SHARPNESS, COLOURS = 720, 20, 2, 64
# Where each picture begins and ends: a task with a mistake that has a name, and the report up to its first table.
PICTURES = {
    "feedback": (f"feedback/{STUDENT}/{ASSIGNMENT}/{ASSIGNMENT}.html", "h3:nth-of-type(2)", "#graded-2"),
    "report": (f"report/{ASSIGNMENT}.html", "header", "#scores ~ .scroll"),
}


def photograph(view: Browser, page: Path, first: str, last: str) -> Image.Image:
    """A page from one element to another, in few colours."""
    view.open(page)
    start, end = (view.page.locator(name).first.bounding_box() for name in (first, last))
    height = end["y"] + end["height"] - start["y"] + 2 * MARGIN
    place = {"x": 0, "y": start["y"] - MARGIN, "width": WIDTH, "height": height}
    picture = view.page.screenshot(clip=place, full_page=True)
    return Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)


def main() -> int:
    """The command."""
    with TemporaryDirectory() as folder, browser(width=WIDTH, device_scale_factor=SHARPNESS) as view:
        where = ["--course", folder]
        if autograder(["rehearse", "20", *where]) > 1 or autograder(["report", *where]):
            return 1
        for name, (page, first, last) in PICTURES.items():
            path = STATIC / f"{name}.png"
            picture = photograph(view, Path(folder) / page, first, last)
            picture.save(path, optimize=True)
            print(f"{path.name}: {picture.width} × {picture.height}, {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
