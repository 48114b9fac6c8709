"""The book as one PDF: ``make pdf`` writes ``_build/transformer-lessons.pdf``, with bookmarks and page numbers.

Sphinx joins all pages into one with internal links; Chromium typesets and prints it. Without a Chinese font
(Ubuntu: apt install fonts-noto-cjk), the Chinese page is full of boxes.
"""

import io
from pathlib import Path

import pikepdf

from book.browser import Browser, browser
from book.build import ROOT, build
from transformer_lessons.data.files import replacing

PDF = ROOT / "_build" / "transformer-lessons.pdf"
STYLE = "width: 100%; font: 8px sans-serif; text-align: center"
PDF_OPTIONS = {
    "format": "A4",
    "margin": dict.fromkeys(("top", "bottom", "left", "right"), "1.8cm"),
    "scale": 0.8,
    "print_background": True,
    "display_header_footer": True,
    "header_template": " ",
    "footer_template": f'<div style="{STYLE}"><span class="pageNumber"></span></div>',
    "outline": True,
    "tagged": True,
}
# On paper nothing unfolds or scrolls, and interactive figures are pictures.
PREPARE = """async () => {
  document.querySelectorAll("details").forEach((one) => (one.open = true));
  document.querySelectorAll(".lessons-explorable").forEach((one) => {
    one.innerHTML = one.querySelector("noscript").textContent.replace('"../_static', '"_static');
  });
  const failed = await Promise.all([...document.images].map((one) => one.decode().catch(() => one.src)));
  return failed.filter((one) => one);
}"""


def print_page(view: Browser, page: Path, to: Path) -> None:
    """Print a page as PDF.

    Raises:
        RuntimeError: if a picture is missing.
    """
    view.page.set_default_timeout(0)  # a whole book takes half a minute to open, and on a busy machine more
    view.open(page)
    if missing := view.page.evaluate(PREPARE):
        raise RuntimeError(f"{page.name}: pictures are missing: {', '.join(missing)}")
    # Chromium leaves all objects of a PDF uncompressed, which makes up two thirds of the file.
    with replacing(to) as temporary, pikepdf.open(io.BytesIO(view.page.pdf(**PDF_OPTIONS))) as pdf:
        pdf.save(temporary, object_stream_mode=pikepdf.ObjectStreamMode.generate)


if __name__ == "__main__":
    single = build(builder="singlehtml")
    with browser() as view:
        print_page(view, single, PDF)
    print(f"The book is at {PDF.relative_to(ROOT)} ({PDF.stat().st_size / 1e6:.0f} MB)")
