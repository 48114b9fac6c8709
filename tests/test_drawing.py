"""The book's drawings: colours that can be told apart, words that fit, and many drawings on one page."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from transformer_lessons.tools.drawing import PALETTE, TINT, WIDTH, Canvas, Drawing, Plot, text_width
from transformer_lessons.tools.one_page import Panel
from transformer_lessons.tools.svg import STYLE, in_html, in_svg

ROOT = Path(__file__).parent.parent
MODES = pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
SIX = ("query", "key", "value", "encoder", "decoder", "residual")
BLINDNESS = {  # Machado, Oliveira and Fernandes (2009), severity 1, of linear light
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    """Linear RGB, proportional to light."""
    rgb = np.array(mpl.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """The contrast ratio of WCAG 2.2."""
    darker, lighter = sorted(TO_XYZ[1] @ linear(colour) for colour in (a, b))
    return (lighter + 0.05) / (darker + 0.05)


def mixed(colour, alpha, ground):
    above, below = map(np.array, map(mpl.colors.to_rgb, (colour, ground)))
    return alpha * above + (1 - alpha) * below


def lab(colour, blindness):
    xyz = TO_XYZ @ (np.array(BLINDNESS[blindness]) @ linear(colour)).clip(0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@MODES
def test_words_and_outlines_stand_out(mode):
    colour = {role: pair[mode] for role, pair in PALETTE.items()}
    least = dict.fromkeys((*SIX, "weight"), 2.995)  # for outlines, bars and cells; more for words:
    least |= dict.fromkeys("ink soft query key value wrong residual mask".split(), 4.5)
    cells = {(role, alpha) for role in SIX for alpha in (0.06, TINT, 0.3)} | {("value", 0.4), ("mask", 0.12)}
    for page in {colour["paper"], ("#ffffff", "#121212")[mode]}:
        assert [role for role in least if contrast(colour[role], page) < least[role]] == []
        for role, alpha in cells | {("weight", i / 10) for i in range(11)}:
            assert contrast(colour["ink"], mixed(colour[role], alpha, page)) >= 4.5, (role, alpha)


@MODES
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_roles_can_be_told_apart(mode, blindness):
    for a, b in combinations(SIX, 2):
        apart = lab(PALETTE[a][mode], blindness) - lab(PALETTE[b][mode], blindness)
        assert np.linalg.norm(apart) >= 20, (a, b)


def test_the_site_has_the_same_palette():
    css = (ROOT / "book/_static/custom.css").read_text("utf-8")
    found = re.findall(r"\n  --(\w+): light-dark\((#\w+), (#\w+)\);", css)
    assert {role: tuple(pair) for role, *pair in found} == PALETTE


def drawn(number="1.2", caption="It sees.", alt="A row."):
    canvas, plot = Canvas(80), Plot(ylabel="∂h_n / ∂h_0, 0.1234", xlabel="d_model")
    canvas.arrow(canvas.box(0, 0, 90, 24, "W_q and 0.858", "query").right, (140, 12), (140, 60), role="query")
    canvas.matrix(10, 40, [[0.25, 0.75], [1, 0]], digits=2, weights=True, mask=[[1, 0], [1, 1]])
    plot.axes.plot([1, 2, 3], [0, 1e-7, 2e-7], marker="o")
    plot.axes.fill_between([1, 3], [0, 0], [1e-7, 1e-7], color="value", alpha=0.2)
    return Drawing([canvas, plot], number=number, caption=caption, alt=alt)


def pictures(drawing):
    return ElementTree.fromstring(drawing._repr_html_().removeprefix(STYLE)).findall("svg")


def test_symbols_are_set_as_formulas_and_decimals_stay():
    found = {"".join(text.itertext()) for one in pictures(drawn()) for text in one.iter("text")}
    assert {"Wq and 0.858", "∂hn / ∂h0, 0.1234", "dmodel", "2 × 10−7", "0.25", "1.00"} <= found
    assert not any("_" in one or "^" in one for one in found)
    assert in_html("x_{ij}^{2}, a_mask_, `d_k`") == "x<sub>ij</sub><sup>2</sup>, a_mask_, <code>d_k</code>"
    lowered, back = '<tspan dy="0.30em" font-size="80%">1</tspan>', '<tspan dy="-0.24em"> &lt; b</tspan>'
    assert in_svg("a_1 < b") == f"a{lowered}{back}"


def test_captions_and_alternative_texts_are_escaped():
    drawing = drawn(caption='<script>, "a" & *b*', alt='"d_k" < <b>')
    assert "&lt;script&gt;, &quot;a&quot; &amp; <em>b</em></figcaption>" in drawing._repr_html_()
    heard = [(one.get("aria-label"), one.get("aria-hidden")) for one in pictures(drawing)]
    assert heard == [('"d k" < <b>', None), (None, "true")]
    assert repr(drawing) == 'Figure 1.2. <script>, "a" & *b* ("d_k" < <b>)'


def test_ids_are_unique_and_references_resolve():
    ids = re.findall(r' id="([^"]*)"', html := drawn("1.2")._repr_html_() + drawn("1.3")._repr_html_())
    assert len(ids) == len(set(ids)) > 4
    assert set(re.findall(r'(?:url\(|href=")#([^")]*)', html)) == set(ids) - {"fig-1-2", "fig-1-3"}


def test_colours_are_variables_and_others_are_refused():
    used = re.findall(r'(?:fill|stroke):(?!none)([^;"]*)', drawn()._repr_html_().removeprefix(STYLE))
    assert {"var(--weight)", "var(--value)"} <= set(used) <= {f"var(--{role})" for role in PALETTE}
    (blue := Plot()).axes.plot([1, 2], color="tab:blue")
    (pixels := Plot()).axes.imshow([[1, 2]])
    for plot, complaint in ((blue, "a role of the palette, got #1f77b4"), (pixels, "got pixels")):
        with pytest.raises(ValueError, match=complaint):
            plot.svg()


def test_bytes_depend_on_content_alone():
    once = drawn()._repr_html_()
    with mpl.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.grid": True, "font.family": "serif"}):
        assert drawn()._repr_html_() == once


def test_letters_on_a_phone_have_9_pixels_and_stay_inside():
    for svg in pictures(drawn()):
        assert float(svg.get("viewBox").split()[2]) == WIDTH <= 375 - 2 * 16  # the column, at its own size
        for text in svg.iter("text"):
            style = dict(part.split(":") for part in text.get("style").split(";"))
            size = float(style["font-size"].removesuffix("px"))
            width = text_width("".join(text.itertext()), size)
            left = float(text.get("x")) - width * {"start": 0, "middle": 0.5, "end": 1}[style["text-anchor"]]
            assert (size >= 9, left >= 0, left + width <= WIDTH) == (True,) * 3, text.text


def test_heat_cells_have_the_opacity_and_place_of_their_values():
    (panel := Panel(40)).heat(10, 20, [[1.0, 0.5, -3.0]], "query", 6, negative="key")
    cell = r'd="M([\d.]+) ([\d.]+)L([\d.]+) [^"]*" style="(?:fill-opacity:([\d.]+);)?fill:var\(--(\w+)'
    cells = [(float(x), float(y), *look) for x, y, _, *look in re.findall(cell, panel.svg()[1])]
    assert cells == [(22, 20, "", "key"), (16, 20, "0.25", "query"), (10, 20, "0.5", "query")]


def test_only_opaque_lines_of_a_kind_share_a_path():
    canvas, hidden = Canvas(100), [[False] * 5] * 4
    canvas.matrix(0, 0, [[0.0] * 5] * 4, weights=True, mask=hidden)  # twenty crosses
    canvas.line((0, 0), (5, 5), role="mask", alpha=0.5)  # not one path: it is darker where two meet
    canvas.line((0, 5), (5, 0), role="mask", alpha=0.5)
    _, content = canvas.svg()
    crosses = [d for d in re.findall(r'<path d="([^"]*)"', content) if d.count("M") == 40]
    assert len(crosses) == 1
    assert content.count("opacity:0.5") == 2
