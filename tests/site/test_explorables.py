"""The hands-on figures: their numbers are the package's, and keys and fingers can work them."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from book.browser import Browser, find
from book.site import EXPLORABLES, TRAINED
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.encodings import SinusoidalEncoding
from transformer_lessons.masks import causal_mask, combine, padding_mask
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


# ---- Positions


def test_position_vectors_are_the_packages(opened):
    browser = opened("positions")
    for width in (2, 6, 64):
        expected = SinusoidalEncoding(width, 101)(torch.zeros(1, 101, width))[0]
        found = browser.evaluate(
            f"Array.from({{length: 101}}, (_, t) => Array.from(lessons.positionalEncoding(t, {width})))"
        )
        assert (torch.tensor(found) - expected).abs().max() < 1e-5


def test_a_shift_is_a_rotation_and_the_product_knows_only_the_distance(opened):
    browser = opened("positions")
    for t, k in ((0, 0), (3, 5), (47, 31)):
        found = browser.evaluate(f"Array.from(lessons.positions.turned(30, {t}, {k}))")
        there = browser.evaluate(f"Array.from(lessons.positionalEncoding({t + k}, 30))")
        assert torch.tensor(found).allclose(torch.tensor(there), atol=1e-5)
        product = browser.evaluate(f"lessons.positions.product(30, {t}, {k})")
        rates = 10_000 ** (-torch.arange(0, 30, 2, dtype=torch.float64) / 30)
        assert product == pytest.approx((k * rates).cos().sum().item(), abs=1e-4)


def test_moving_the_position_leaves_the_product(opened):
    browser = opened("positions")
    before = text(browser, "[role=status]").split(" = ")[1].split(",")[0]
    slide(browser, "position t", 33)
    assert text(browser, "[role=status]").startswith(f"PE(33) · PE(38) = {before},")
    slide(browser, "shift k", 0)
    assert "= 32.00," in text(browser, "[role=status]")
    slide(browser, "d_model", 8)
    assert browser.evaluate("document.querySelectorAll('.x-dials svg').length") == 4


def test_few_pairs_swing_and_many_ripple_and_the_last_turns_slowly(opened):
    browser = opened("positions")

    def curve(width: int) -> torch.Tensor:
        values = f"Array.from({{length: 101}}, (_, k) => lessons.positions.product({width}, 0, k))"
        return torch.tensor(browser.evaluate(values)) / (width / 2)

    after = 5  # steps, behind the fall from 1 at k = 0
    steps = {width: curve(width)[after:].diff().abs().max() for width in (8, 128)}
    assert steps[8] > 5 * steps[128]
    assert curve(8).min() < 0 < curve(128).min()
    assert math.degrees(browser.evaluate("lessons.positions.frequency(31, 64)")) < 1 / 100


# ---- Masks


@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both"])
@pytest.mark.parametrize(("queries", "keys", "real"), [(5, 5, 3), (2, 7, 4), (3, 5, 0), (1, 1, 1)])
def test_masks_and_weights_are_the_packages(opened, kind, queries, keys, real):
    browser = opened("masks")
    about = json.dumps({"queries": queries, "keys": keys, "real": real, "kind": kind})
    padding = padding_mask(torch.tensor([[1] * real + [0] * (keys - real)]), 0)
    causal = causal_mask(queries, keys)
    mask = {"none": None, "padding": padding, "causal": causal, "both": combine(padding, causal)}[kind]
    full = (
        torch.ones(1, 1, queries, keys, dtype=torch.bool)
        if mask is None
        else mask.expand(1, 1, queries, keys)
    )
    found = torch.tensor(browser.evaluate(f"lessons.masks.visible({about})"))
    assert torch.equal(found, full[0, 0])
    scores = torch.tensor(browser.evaluate(f"lessons.masks.scores({queries}, {keys})"), dtype=torch.float64)
    # Queries that pick their scores out of the keys: q · kᵀ / √d = scores.
    q = scores * keys**0.5
    _, expected = scaled_dot_product_attention(
        q[None, None], torch.eye(keys).double()[None, None], scores.T.clone()[None, None], mask
    )
    weights = browser.evaluate(
        f"lessons.masks.weights(lessons.masks.scores({queries}, {keys}), lessons.masks.visible({about}))"
    )
    assert torch.tensor(weights, dtype=torch.float64).allclose(expected[0, 0], atol=1e-12)


def test_a_mask_is_built(opened):
    browser = opened("masks")
    assert text(browser, "[role=status]") == "18 of 36 scores survive."  # 1 + 2 + 3 + 4 + 4 + 4
    slide(browser, "of these real", 0)
    assert "6 of the queries may look at nothing" in text(browser, "[role=status]")
    press(browser, "causal")
    assert text(browser, "[role=status]") == "21 of 36 scores survive."
    assert text(browser, "code") == "mask = causal_mask(6)"
    slide(browser, "keys", 4)
    assert text(browser, "[role=status]").startswith("causal_mask refuses 6 queries over 4 keys")
    with pytest.raises(ValueError, match="queries ≤ keys"):
        causal_mask(6, 4)


@pytest.mark.parametrize("kind", ["nothing hidden", "padding", "causal", "both"])
def test_the_program_beside_it_makes_the_mask(opened, kind):
    browser = opened("masks")
    press(browser, kind)
    names = {"torch": torch, "padding_mask": padding_mask, "causal_mask": causal_mask, "combine": combine}
    exec(text(browser, "code"), names)  # the page's own words
    number = 36 if names["mask"] is None else names["mask"].expand(1, 1, 6, 6).sum().item()
    assert text(browser, "[role=status]") == f"{number} of 36 scores survive."


# ---- By hand


def test_weights_by_hand_are_attention(opened):
    browser = opened("hand")
    query, keys = [1.5, 0.75], [[2.0, 1.0], [-1.5, 1.5], [0.5, -2.0], [-2.0, -1.25]]
    state = json.dumps({"query": query, "keys": keys, "temperature": 1, "strength": 0, "back": 1})
    q, k = torch.tensor([[[query]]]).double(), torch.tensor([[keys]]).double()
    output, weights = scaled_dot_product_attention(q, k, k)
    found = browser.evaluate(f"lessons.hand.weightsOf({state}).weights")
    assert torch.tensor(found, dtype=torch.float64).allclose(weights[0, 0, 0], atol=1e-12)
    there = browser.evaluate(f"lessons.hand.outputOf(lessons.hand.weightsOf({state}).weights, {keys})")
    assert torch.tensor(there, dtype=torch.float64).allclose(output[0, 0, 0], atol=1e-12)
    shown = ", ".join(f"{value:.2f}" for value in output[0, 0, 0].tolist())
    assert text(browser, "[role=status]").startswith(f"The output is at {shown}")


def test_low_temperature_is_argmax_and_strong_positions_look_back(opened):
    browser = opened("hand")
    slide(browser, "temperature", 0.05)
    assert text(browser, "[role=status]").endswith(": key 0 alone, as argmax would have it.")
    slide(browser, "temperature", 1)
    slide(browser, "strength of positions", 12)
    for back, key in ((1, 3), (2, 2)):
        slide(browser, "look back by", back)
        assert f"most of it from key {key}" in text(browser, "[role=status]")


def test_a_high_temperature_brings_the_output_nearer_to_the_middle(opened):
    browser = opened("hand")

    def from_the_middle(temperature: float) -> float:
        slide(browser, "temperature", temperature)
        x, y = browser.evaluate(
            "(({ state }) => lessons.hand.outputOf(lessons.hand.weightsOf(state).weights, state.keys))"
            "(document.querySelector('.lessons-explorable').hand)"
        )
        middle = browser.evaluate("document.querySelector('.lessons-explorable').hand.state.keys")
        return ((torch.tensor([x, y]) - torch.tensor(middle).mean(0)) ** 2).sum().sqrt().item()

    assert from_the_middle(4) < from_the_middle(1) / 2  # “more than half-way there”


def test_points_move_by_keys_and_by_pointer(opened):
    browser = opened("hand")
    label = "document.querySelector('.x-query').getAttribute('aria-label')"
    browser.evaluate("document.querySelector('.x-query').focus()")
    browser.command("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    assert browser.evaluate(label) == "query at 1.25, 0.75"
    places = browser.evaluate("""(() => {
      const box = document.querySelector(".x-plane").getBoundingClientRect();
      const at = (x, y) => [box.left + (x + 3) / 6 * box.width, box.top + (3 - y) / 6 * box.height];
      return [at(1.25, 0.75), at(-1, 2)];
    })()""")
    for kind, (x, y) in zip(
        ("mousePressed", "mouseMoved", "mouseReleased"), (places[0], places[1], places[1]), strict=True
    ):
        browser.command(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )
    x, y = map(float, browser.evaluate(label).removeprefix("query at ").split(", "))
    assert (x, y) == (pytest.approx(-1, abs=0.05), pytest.approx(2, abs=0.05))


# ---- √d_k


@pytest.mark.parametrize(("power", "keys"), [(0, 3), (6, 8), (9, 31)])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_what_a_softmax_makes_of_random_scores(opened, power, keys, is_scaled):
    browser = opened("scale")
    found = browser.evaluate(f"lessons.scale.measured(5, {2**power}, {keys}, {str(is_scaled).lower()})")
    scores = torch.tensor(found["scores"], dtype=torch.float64)
    assert scores.shape == (300, keys)
    weights = scores.softmax(-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    trace = jacobian.diagonal(dim1=1, dim2=2).sum(-1)
    assert found["largest"] == pytest.approx(weights.amax(-1).mean().item())
    assert found["open"] == pytest.approx((trace / (1 - 1 / keys)).mean().item())
    assert found["variance"] == pytest.approx((scores**2).mean().item())
    expected = 1 if is_scaled else 2**power
    assert 0.7 * expected < found["variance"] < 1.4 * expected


@pytest.mark.parametrize("keys", [2, 8, 32])
def test_what_comes_through_of_the_gradient_is_as_the_page_says(opened, keys):
    browser = opened("scale")

    def comes_through(d_k: int, is_scaled: bool) -> float:
        return browser.evaluate(f"lessons.scale.measured(1, {d_k}, {keys}, {json.dumps(is_scaled)}).open")

    assert comes_through(1024, False) == pytest.approx(1 / 20, rel=0.3)  # “about a twentieth”
    divided = [comes_through(2**power, True) for power in range(1, 11)]
    assert max(divided) < 1.1 * min(divided)  # “the picture stays”


def test_its_random_numbers_are_normal(opened):
    browser = opened("scale")
    drawn = browser.evaluate(
        "(() => { const next = lessons.scale.normal(lessons.scale.generator(3));"
        " return Array.from({ length: 20000 }, next); })()"
    )
    values = torch.tensor(drawn, dtype=torch.float64)
    assert abs(values.mean()) < 0.03  # 4 standard errors
    assert abs(values.var() - 1) < 0.04
    normal = torch.distributions.Normal(0.0, 1.0).cdf(values.sort().values)
    assert (normal - torch.arange(1, 20001) / 20000).abs().max() < 0.014  # Kolmogorov and Smirnov at 0.1%


# ---- Heads


@pytest.mark.parametrize(("length", "heads", "width"), [(4, 2, 3), (5, 3, 2), (1, 4, 2), (6, 1, 4)])
def test_numbers_go_where_pytorch_puts_them(opened, length, heads, width):
    browser = opened("heads")
    x = torch.arange(length * heads * width).view(length, heads * width)
    about = json.dumps({"length": length, "heads": heads, "width": width})
    ways = {
        "joined": x[None],
        "right": x.view(length, heads, width).transpose(0, 1),
        "wrong": x.view(heads, length, width),
    }
    for way, expected in ways.items():
        assert browser.evaluate(f"lessons.heads.arranged({about}, {way!r})") == expected.tolist()


def test_the_wrong_order_is_named(opened):
    browser = opened("heads")
    press(browser, "x.view(heads, length, d_k)")
    assert "in 2 of 2 heads rows hold numbers of other positions" in text(browser, "[role=status]")
    browser.evaluate("document.querySelectorAll('.x-cell')[3].focus()")
    assert text(browser, ".x-readout") == (
        "x[0, 3]: position 0, made by the projection of head 1, but it stands in row 1."
    )
    slide(browser, "heads", 1)
    assert text(browser, "[role=status]").startswith("Here both are the same")


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
