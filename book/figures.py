"""The book's figures for a dark page: their ink becomes light, what they show stays.

Matplotlib draws black on white, in a notebook and in Colab too. For the site's dark mode each figure gets a
second file in which lightness is turned round and hue stays: black text becomes nearly white, white paper dark,
blue lines a lighter blue. Maps (images and filled contours) keep their colours with all that is drawn on them,
because captions speak of "the dark cells".
"""

import colorsys
import re
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["add_dark_figures", "dark"]

SVG = "{http://www.w3.org/2000/svg}"
DARKEST, LIGHTEST = 0.07, 0.93  # lightness of the dark page, and of what was black
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
FIGURE = re.compile(r'<img (?P<about>[^>]*?)src="(?P<src>[^"]*_images/[^"]+)\.svg" ?(?P<more>[^>]*?)/?>')
NUMBER = r"-?\d+(?:\.\d+)?"

for prefix, name in {"": SVG[1:-1], "xlink": "http://www.w3.org/1999/xlink"}.items():
    ElementTree.register_namespace(prefix, name)


def turned(colour: str) -> str:
    """A colour of the same hue, as dark as it was light: ``#000000`` becomes ``#ededed``."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    lightness = LIGHTEST - (LIGHTEST - DARKEST) * lightness
    return "#" + "".join(
        f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, saturation)
    )


def dark(svg: str) -> str:
    """A figure of matplotlib's as it should look on a dark page.

    Args:
        svg: its text.

    Raises:
        ValueError: if it is none of matplotlib's.
    """
    root = ElementTree.fromstring(svg)
    figure = root.find(f"{SVG}g[@id='figure_1']")
    if figure is None:
        raise ValueError("svg: expected a figure drawn by matplotlib, got another one")
    kept = {part for axes in figure if _is_map(axes) for group in _on_the_map(axes) for part in group.iter()}
    for part in root.iter():
        if part not in kept and "style" in part.attrib:
            part.set("style", COLOUR.sub(lambda found: turned(found[0]), part.get("style")))
    root.set("fill", turned("#000000"))  # of text, where nothing else is said
    for axes in filter(_is_map, figure):
        for group in _on_the_map(axes):
            group.set("fill", "#000000")
    return ElementTree.tostring(root, encoding="unicode")


def _is_map(axes: ElementTree.Element) -> bool:
    has_image = axes.find(f".//{SVG}image") is not None
    return has_image or any("QuadContourSet" in group.get("id", "") for group in axes.iter(f"{SVG}g"))


def _on_the_map(axes: ElementTree.Element) -> list[ElementTree.Element]:
    """The parts of a map but its ticks and what is written beside it."""
    paper = axes[0].find(f"{SVG}path").get("d")
    corners = re.findall(rf"({NUMBER}) ({NUMBER})", paper)
    (left, right), (top, bottom) = ((min(axis), max(axis)) for axis in zip(*_numbers(corners), strict=True))

    def is_beside(part: ElementTree.Element) -> bool:
        name = part.get("id", "")
        place = re.search(
            rf"translate\(({NUMBER}) ({NUMBER})\)", ElementTree.tostring(part, encoding="unicode")
        )
        if name.startswith("matplotlib.axis"):
            return True
        if not name.startswith("text") or place is None:
            return False
        [(x, y)] = _numbers([place.groups()])
        return not (left <= x <= right and top <= y <= bottom)

    return [part for part in axes if not is_beside(part)]


def _numbers(pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in pairs]


def add_dark_figures(html: Path) -> None:
    """Put a dark figure beside each in the pages of a built site; a browser loads the one that it shows."""
    for page in html.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        changed = FIGURE.sub(partial(_both, page.parent), text)
        if changed != text:
            page.write_text(changed, encoding="utf-8")


def _both(folder: Path, found: re.Match) -> str:
    path = folder / f"{found['src']}.svg"
    svg = path.read_text(encoding="utf-8")
    if "matplotlib" not in svg or "only-" in found[0]:  # done in an earlier build
        return found[0]
    path.with_suffix(".dark.svg").write_text(dark(svg), encoding="utf-8")
    size = ElementTree.fromstring(svg)
    width, height = (round(float(size.get(side).removesuffix("pt")) * 4 / 3) for side in ("width", "height"))
    about = " ".join(f'{found["about"]} {found["more"]} width="{width}" height="{height}"'.split())
    return "".join(
        f'<img class="only-{kind}" loading="lazy" src="{found["src"]}{end}" {about}/>'
        for kind, end in (("light", ".svg"), ("dark", ".dark.svg"))
    )
