"""The hands-on figures: their numbers are the package's, and keys and fingers can work them."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from book.browser import Browser, find
from book.site import EXPLORABLES, TRAINED
from transformer_lessons.model import Transformer, TransformerConfig

SCRIPTS = Path(__file__).parents[2] / "book" / "_static" / "explorables"
OTHERS = sorted(set(EXPLORABLES) - {"translator"})  # which has tests of its own

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium on the PATH")


def html(name: str) -> str:
    scripts = "".join(f'<script src="{script}" defer></script>' for script in EXPLORABLES[name])
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="explorables.css">
<body><div class="lessons-explorable" data-explorable="{name}"><p>without</p></div>{scripts}</body></html>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("explorables")
    for path in SCRIPTS.iterdir():
        shutil.copy(path, made)
    for name in OTHERS:
        (made / f"{name}.html").write_text(html(name), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def shared():
    with Browser(width=375) as browser:
        yield browser


@pytest.fixture
def opened(shared, folder):
    def open_(name: str) -> Browser:
        shared.resize(375, 800)
        shared.open(folder / f"{name}.html")
        return shared

    return open_


def slide(browser: Browser, name: str, value: float) -> None:
    """Move the slider with that label."""
    browser.evaluate(f"""(() => {{
      const label = [...document.querySelectorAll(".x-slider label")].find((one) => one.textContent === {name!r});
      const input = document.getElementById(label.htmlFor);
      input.value = {value};
      input.dispatchEvent(new Event("input"));
    }})()""")


def press(browser: Browser, text: str) -> None:
    browser.evaluate(
        f"[...document.querySelectorAll('button')].find((one) => one.textContent === {text!r}).click()"
    )


def text(browser: Browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


@pytest.mark.parametrize("name", OTHERS)
def test_it_starts_without_a_complaint_and_fits(opened, name):
    browser = opened(name)
    assert "without" not in text(browser, ".lessons-explorable")
    assert len(text(browser, "[role=status]")) > 20
    for width in (320, 1280):
        browser.resize(width, 800)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    small = browser.evaluate("""[...document.querySelectorAll("button, input")]
      .filter((one) => Math.min(one.offsetWidth, one.offsetHeight) < 24).map((one) => one.outerHTML)""")
    assert small == []  # for fingers: WCAG 2.2, target size
    unnamed = browser.evaluate("""[...document.querySelectorAll("input, svg[role], canvas, [role=group]")]
      .filter((one) => !(one.labels?.length || one.getAttribute("aria-label"))).length""")
    assert unnamed == 0
    assert browser.problems == []
    assert all(address.startswith("file:") for address in browser.requests)


def test_each_is_on_a_page_and_each_script_on_some():
    pages = (SCRIPTS.parents[1] / "explorables").glob("*.md")
    named = [path.read_text(encoding="utf-8").split("\n")[1].removeprefix("explorable: ") for path in pages]
    assert sorted(named) == sorted(EXPLORABLES)
    used = {script for scripts in EXPLORABLES.values() for script in scripts}
    assert used == {path.name for path in SCRIPTS.glob("*.js")} | {f"{TRAINED}.js"}


# ---- The architecture


@pytest.mark.parametrize("name", ["base", "big", "words"])
@pytest.mark.parametrize("is_shared", [False, True])
def test_parameters_are_counted_as_the_package_has_them(opened, name, is_shared):
    browser = opened("architecture")
    sizes = browser.evaluate(f"lessons.architecture.PRESETS[{name!r}]")
    config = TransformerConfig(
        sizes["vocabulary"],
        sizes["vocabulary"],
        d_model=sizes["d_model"],
        num_heads=sizes["num_heads"],
        d_ff=sizes["d_ff"],
        num_encoder_layers=sizes["layers"],
        num_decoder_layers=sizes["layers"],
        shared_vocabulary=is_shared,
    )
    with torch.device("meta"):
        model = Transformer(config)
    expected = sum(parameter.numel() for parameter in model.parameters())
    found = browser.evaluate(
        f"lessons.architecture.total(lessons.architecture.PRESETS[{name!r}], {str(is_shared).lower()})"
    )
    assert found == expected


def test_the_base_model_has_as_many_as_the_page_says(opened):
    about = (SCRIPTS.parents[1] / "explorables" / "architecture.md").read_text(encoding="utf-8")
    total = opened("architecture").evaluate(
        "lessons.architecture.total(lessons.architecture.PRESETS.base, true)"
    )
    assert f"{total / 1e6:.1f} million" in about


def test_a_block_says_its_shapes_and_its_chapter(opened):
    browser = opened("architecture")
    press(browser, "Masked self-attention")
    said = text(browser, ".x-about")
    assert "weights (2, 8, 7, 7)" in said
    assert "1,050,624 in each" in said  # 4 · (512² + 512)
    assert (
        browser.evaluate("document.querySelector('.x-about a').getAttribute('href')")
        == "../chapters/04_masks.html"
    )
    links = browser.evaluate("""[...document.querySelectorAll(".x-stacks button")].map((button) => {
      button.click();
      return document.querySelector(".x-about a").getAttribute("href");
    })""")
    chapters = SCRIPTS.parents[1] / "chapters"
    for link in links:
        assert (chapters / Path(link).name).with_suffix(".ipynb").exists()
    assert len(links) == 15
