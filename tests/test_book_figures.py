"""Figures for dark pages: ink turns light, maps stay, nothing else changes."""

import re

import matplotlib.pyplot as plt
import pytest
import torch

from book.figures import add_dark_figures, dark, turned
from transformer_lessons.tools import plotting

PAGE = "#121212"  # the theme's dark background


@pytest.fixture
def svg(tmp_path):
    def text() -> str:
        plt.savefig(tmp_path / "drawn.svg")
        plt.close("all")
        return (tmp_path / "drawn.svg").read_text(encoding="utf-8")

    plotting.use_style()
    yield text
    plt.rcdefaults()


def contrast(a: str, b: str) -> float:
    """As WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def colours(group: str) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", group))


def group(svg: str, name: str) -> str:
    """The element with that id, up to the next one on the same level."""
    found = re.search(rf'(\n *)<g id="{name}".*?\1</g>', svg, re.DOTALL)
    return found[0]


def test_black_and_white_change_places():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)  # the definition's own extremes
    assert turned("#ffffff") == PAGE
    assert turned("#000000") == "#ededed"  # 0.93 · 255 = 237


def test_the_palette_can_be_seen_on_a_dark_page():
    for name in ("BLUE", "ORANGE", "GREEN", "PURPLE", "GREY"):
        assert contrast(turned(getattr(plotting, name)), PAGE) > 3, name  # of lines and areas: WCAG 1.4.11


def test_lines_and_texts_are_turned(svg):
    plt.plot([1, 2, 5], color=plotting.BLUE)
    plt.title("a title")
    plt.figtext(0.5, 0.5, "white on nothing", color="white")
    light = svg()
    found = dark(light)
    assert colours(found) == {turned(colour) for colour in colours(light) | {"#000000"}}
    assert re.search(r"<svg [^>]*fill=\"#ededed\"", found)  # of texts that say nothing of their colour
    assert re.sub(r'#[0-9a-f]{6}| fill="[^"]*"', "", found).count("<path") == light.count("<path")


def test_a_map_keeps_its_colours_and_what_is_written_on_it(svg):
    plotting.attention_map(torch.tensor([[0.1, 0.9], [0.7, 0.3]]), "ab", "cd", digits=1, title="beside it")
    light = svg()
    found = dark(light)
    data = re.compile(r"base64,\s*([^\"]+)\"")
    assert data.search(found)[1].split() == data.search(light)[1].split()
    texts = set(re.findall(r'<g id="(text_\d+)"', found))
    on_it = {one for one in texts if 'fill="#000000"' in group(found, one)[:60]}
    beside = texts - on_it
    assert len(on_it) == 4  # the digits of four cells
    assert len(beside) == 5  # two and two ticks, the title
    assert "#ffffff" in colours("".join(group(found, one) for one in on_it))  # on dark cells
    assert "#ffffff" not in colours("".join(group(found, one) for one in beside))


def test_filled_contours_are_a_map_too(svg):
    plt.contourf([[0.0, 1.0, 3.0], [1.0, 2.0, 5.0]], cmap="Blues")
    light = svg()
    found = group(dark(light), "QuadContourSet_1").replace(
        ' fill="#000000"', "", 1
    )  # says what was so anyhow
    assert colours(found) == colours(group(light, "QuadContourSet_1"))


def test_pages_show_either_and_a_second_time_changes_nothing(svg, tmp_path):
    plt.plot([1, 2, 5])
    (tmp_path / "_images").mkdir()
    (tmp_path / "_images" / "own.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "_images" / "a.svg").write_text(svg())
    page = tmp_path / "page.html"
    page.write_text('<p><img alt="A line" src="_images/a.svg" /><img alt="own" src="_images/own.svg" /></p>')
    add_dark_figures(tmp_path)
    once = page.read_text()
    size = 'alt="A line" width="614" height="326"'  # 6.4 by 3.4 inches of 96 pixels
    assert once == (
        f'<p><img class="only-light" loading="lazy" src="_images/a.svg" {size}/>'
        f'<img class="only-dark" loading="lazy" src="_images/a.dark.svg" {size}/>'
        '<img alt="own" src="_images/own.svg" /></p>'
    )
    assert (tmp_path / "_images" / "a.dark.svg").read_text() == dark(
        (tmp_path / "_images" / "a.svg").read_text()
    )
    add_dark_figures(tmp_path)
    assert page.read_text() == once
