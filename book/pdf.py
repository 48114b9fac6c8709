"""The book as one PDF: ``make pdf`` writes ``_build/transformer-lessons.pdf``, with bookmarks and page numbers.

Sphinx puts all pages into a single one, whose links stay within it; Chromium typesets and prints that.
"""

import base64
import io
import sys
from pathlib import Path

import pikepdf

from book.browser import Browser, find
from book.build import ROOT, build
from transformer_lessons.data.files import replacing

PDF = ROOT / "_build" / "transformer-lessons.pdf"
INCH = 2.54  # centimetres
PAPER = {"paperWidth": 21.0 / INCH, "paperHeight": 29.7 / INCH}  # A4
MARGINS = {f"margin{side}": 1.8 / INCH for side in ("Top", "Bottom", "Left", "Right")}
STYLE = "width: 100%; font: 8px sans-serif; text-align: center"
NUMBER = f'<div style="{STYLE}"><span class="pageNumber"></span></div>'
# On paper nothing unfolds, nobody scrolls, and hands-on figures are pictures.
PREPARE = """
document.querySelectorAll("details").forEach((one) => (one.open = true));
document.querySelectorAll(".lessons-explorable").forEach((one) => {
  one.innerHTML = one.querySelector("noscript").textContent.replace('"../_static', '"_static');
});
Promise.all([...document.images].map((one) => one.decode().catch(() => one.src)))
  .then((found) => found.filter((one) => one));
"""

# What no font here has is drawn as a character that cannot be is.
BOXES = """
(() => {
  const pen = new OffscreenCanvas(32, 32).getContext("2d", { willReadFrequently: true });
  pen.font = "16px " + getComputedStyle(document.body).fontFamily;
  const drawn = (one) => {
    pen.clearRect(0, 0, 32, 32);
    pen.fillText(one, 4, 24);
    return pen.getImageData(0, 0, 32, 32).data.join();
  };
  const box = drawn("\\u{10fffe}");
  return [...new Set(document.body.innerText)].filter((one) => one > "~" && drawn(one) === box).join("");
})()
"""


def print_page(browser: Browser, page: Path) -> bytes:
    """A page as PDF.

    Raises:
        RuntimeError: if a picture is missing.
    """
    browser.open(page)
    if missing := browser.evaluate(PREPARE):
        raise RuntimeError(f"{page.name}: pictures are missing: {', '.join(missing)}")
    look = {
        "printBackground": True,
        "displayHeaderFooter": True,
        "footerTemplate": NUMBER,
        "headerTemplate": " ",
    }
    outline = {"generateDocumentOutline": True, "generateTaggedPDF": True}
    answer = browser.command("Page.printToPDF", **PAPER, **MARGINS, **look, **outline, scale=0.8)
    return base64.b64decode(answer["data"])


def write(data: bytes, path: Path) -> None:
    """Write a PDF; Chromium leaves all its objects uncompressed, which is two thirds of it."""
    with replacing(path) as temporary, pikepdf.open(io.BytesIO(data)) as pdf:
        pdf.save(temporary, object_stream_mode=pikepdf.ObjectStreamMode.generate)


def main() -> int:
    """The command."""
    if find() is None:
        print("Chromium prints the book, and none of its usual names is on the PATH", file=sys.stderr)
        return 2
    page = build(builder="singlehtml")
    with Browser() as browser:
        data = print_page(browser, page)
        boxes = browser.evaluate(BOXES)
    if boxes:
        print(
            f"No font here has {boxes}: they are boxes (Ubuntu: apt install fonts-noto-cjk)", file=sys.stderr
        )
    write(data, PDF)
    print(f"The book is at {PDF.relative_to(ROOT)} ({PDF.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
