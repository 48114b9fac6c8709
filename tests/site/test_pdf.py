"""The printed book: it has bookmarks, folds are open, and pictures replace hands-on figures."""

import pikepdf
import pytest
from PIL import Image

from book import pdf
from book.browser import browser as open_browser

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A book</title><body>
<h1>First</h1><p>Text.</p><details><summary>Answer</summary><h2>Unfolded</h2></details>
<div class="lessons-explorable"><p>Needs JavaScript.</p>
<noscript><img src="../_static/still.png" alt="A still"></noscript></div>
<h1 style="break-before: page">Second</h1><a href="#first">back</a>
</body></html>"""


@pytest.fixture
def page(tmp_path, chromium):
    (tmp_path / "_static").mkdir()
    Image.new("RGB", (5, 3)).save(tmp_path / "_static" / "still.png")
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    return tmp_path / "index.html"


def test_a_page_is_printed(page, tmp_path):
    with open_browser() as browser:
        pdf.print_page(browser, page, tmp_path / "book.pdf")
        text = browser.page.evaluate("document.body.innerText")
    with pikepdf.open(tmp_path / "book.pdf") as made, made.open_outline() as outline:
        assert len(made.pages) == 2
        assert [float(side) for side in made.pages[0].mediabox[2:]] == pytest.approx([595, 842], abs=1)  # A4
        titles = [item.title for item in outline.root]
        nested = [item.title for item in outline.root[0].children]
        sizes = [(image.Width, image.Height) for image in made.pages[0].get_images().values()]
    assert (titles, nested) == (["First", "Second"], ["Unfolded"])
    assert sizes == [(5, 3)]
    assert "Needs JavaScript." not in text
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".html", ".pdf"}


def test_a_missing_picture_ends_it(page):
    (page.parent / "_static" / "still.png").unlink()
    with open_browser() as browser, pytest.raises(RuntimeError, match=r"pictures are missing: .*still\.png"):
        pdf.print_page(browser, page, page.with_suffix(".pdf"))
