"""A page with one live figure below its still, which tests can open again and again."""

import html
import shutil
from pathlib import Path

from book import live_data, site
from book.browser import PHONE, Browser
from book.browser import browser as open_browser
from transformer_lessons.tools.drawing import Canvas, Drawing

STATIC = Path(site.__file__).parent / "_static"
STILL = Drawing(Canvas(40), number="3.2", caption="What to see.", alt="A still.")._repr_html_()
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>live</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="live/live.css">
<style>* {{ box-sizing: border-box }}</style>
<body>{still}<div class="lessons-live" data-live="{name}" data-about="{about}" id="live">
On the site, this moves.</div>{scripts}"""


def opening(tmp_path_factory, chromium):
    """For a fixture: yield a function that opens the page of a figure by its name, always in one browser."""
    folder = tmp_path_factory.mktemp("live")
    for part in ("live", "explorables"):
        shutil.copytree(STATIC / part, folder / part)
    with open_browser(width=PHONE, has_touch=True) as browser:

        def open_(name: str, still=STILL, about="{}") -> Browser:
            data = folder / "live" / f"{name}.data.js"
            if name in live_data.DATA and not data.exists():
                data.write_text(live_data.script(name), encoding="utf-8")
            loaded = site.figure_scripts("live", name)
            scripts = "".join(f'<script src="{script}" defer></script>' for script in loaded)
            page = PAGE.format(still=still, name=name, about=html.escape(about), scripts=scripts)
            (folder / "page.html").write_text(page, encoding="utf-8")
            browser.page.set_viewport_size({"width": PHONE, "height": 800})
            browser.page.emulate_media(media="screen")
            browser.open(folder / "page.html")
            return browser

        yield open_


def each(browser: Browser, selector: str, value: str) -> list:
    """The values of a JavaScript expression for all elements that match, each called `one`."""
    return browser.page.evaluate(f"[...document.querySelectorAll({selector!r})].map((one) => {value})")


def said(browser: Browser) -> str:
    return browser.page.text_content("[role=status]")


def check_fit(browser: Browser, width: int, touched: str = "button, input, [tabindex]", least: float = 23.5):
    """Check that the page fits the screen and that touch targets are large enough (WCAG 2.2, target size)."""
    browser.page.set_viewport_size({"width": width, "height": 800})
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= width
    size = "(({ width, height }) => Math.min(width, height))(one.getBoundingClientRect())"
    assert min(filter(None, each(browser, touched, size))) > least
