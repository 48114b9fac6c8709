"""Chapter 0's drawing shows the model's numbers, each step run by itself, and keys can operate it."""

import gzip
import json
import re

import pytest
import torch
from live_pages import check_fit, each, opening, said

from book import live_data
from transformer_lessons.tools import one_page
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.trainer import checkpoints

CLASHES = """[...document.querySelectorAll(".choose button")].flatMap((number) => {
  number.click();
  return [...Array(5).fill("button"), ...Array(5).fill(".next")].flatMap((one) => {
    document.querySelector(`.dock ${one}`).click();
    return [...document.querySelectorAll(".live-panels svg")].flatMap((panel) => {
      const edge = panel.getBoundingClientRect();
      const all = [...panel.querySelectorAll("text")].map((a) => [a.getBoundingClientRect(), a.textContent]);
      const isCut = (a) => a.left < edge.left - 1.5 || a.right > edge.right + 1.5;
      const meets = (a) => ([b]) => a !== b && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4.5;
      return all.filter(([a]) => isCut(a) || all.some(meets(a))).map(([, word]) => word);
    });
  });
})"""


opened = pytest.fixture(scope="module")(opening)


@pytest.fixture
def browser(opened):
    still = one_page.figure(421, at=2, number="0.1", caption="What to see.", alt="A still.")._repr_html_()
    browser = opened("one_page", still=still)
    yield browser
    assert browser.problems == []


@pytest.mark.parametrize("n", one_page.NUMBERS)
@torch.no_grad()
def test_a_row_is_what_the_model_computes_when_it_is_the_last(n):
    (model, _, target), one = checkpoints.load_model(), one_page.run(n)
    names, src = ["PAD", "BOS", "EOS", *target.tokens[3:]], torch.tensor([one["ids"][0]])
    for k in range(one_page.STEPS):
        tgt = torch.tensor([one["ids"][1][: k + 1]])
        chances = model(src, tgt)[0, -1].softmax(-1).tolist()
        assert dict(one["best"][k]) == pytest.approx(dict(zip(names, chances, strict=True)), abs=1e-5)
        maps = attention_maps(model, src, tgt)
        for name, kind in (("dm", "self"), ("cm", "cross")):
            weights = maps[f"decoder_layers.1.{kind}_attention"][0].mean(0)[-1]
            torch.testing.assert_close(one[name][k, : len(weights)], weights, atol=1e-5, rtol=1e-4)


def test_the_page_shows_these_numbers_and_is_light():
    script = live_data.script("one_page")
    assert len(gzip.compress(script.encode())) < 60_000
    for run in json.loads(re.search(r"lessons.onePage = (.*);", script)[1])["runs"]:
        one = one_page.run(run["n"])
        for k, best in enumerate(one["best"]):
            shown = {
                name: {*re.findall(">([^<>]+)</text>", run["layers"][name][k])} for name in ("steps", "looks")
            }
            assert {word for word, _ in best[:5]} | {f"{100 * p:.1f}%" for _, p in best[:5]} <= shown["steps"]
            assert {f"{weight:.2f}" for weight in one["cm"][k].tolist()} <= shown["looks"]
            assert run["states"][k].startswith(f"“{best[0][0]}” gets {100 * best[0][1]:.1f}%")
            assert ("the model gets only this one wrong" in run["states"][k]) == ((run["n"], k) == (43001, 4))


def test_keys_step_through_it(browser):
    def press(key, selector=":focus"):
        browser.page.press(selector, key)
        return said(browser)

    assert said(browser).startswith("Step 3 of 6. The row of “hundert” looks most at “one” (0.95).")
    assert press("ArrowRight", ".choose button").startswith("Step 4 of 6. The row of “ein” looks most")
    assert browser.page.text_content(".dock b") == "vier hundert ein"
    assert press("ArrowLeft").startswith("Step 3 of 6. The row of “hundert”")
    press("ArrowDown", ".hot")
    part = said(browser)
    assert press("Control+ArrowDown") == part  # not the figure's
    assert "Shape: 5 × 128 → 5 × 128. Chapter 11" in press("Enter")
    assert press("ArrowRight").startswith("Step 4 of 6.")  # and no longer of the part
    press("ArrowLeft")
    press("ArrowUp", ".row[aria-pressed=true]")
    assert press("Enter") == "Step 3 of 6. The row of “vier” looks most at “and” (0.53)."
    press("ArrowDown")
    assert press("ArrowLeft").startswith("Step 2 of 6.")  # a row that had the focus hides, and hands it on
    assert each(browser, ":focus", "one.ariaLabel.split(' looks')[0]") == ["The row of “vier”"]
    for button, times, last in ((".next", 5, "EOS: done"), (".dock button", 6, "← Back")):
        browser.page.focus(button)
        for _ in range(times):
            press("Enter")
        assert each(browser, ":focus", "[one.textContent, one.ariaDisabled]") == [[last, "true"]]


@pytest.mark.parametrize("width", [320, 375, 1280])
def test_in_no_state_is_a_word_cut_or_hidden(browser, width):
    check_fit(browser, width, "button, .hot, .chip rect", least=23.99 if width > 320 else 19.99)
    assert browser.page.evaluate(CLASHES) == []
    browser.page.set_viewport_size({"width": width, "height": 300})
    assert each(browser, ".dock", "one.getBoundingClientRect().top")[0] > 300  # hides nothing
    browser.page.evaluate("document.documentElement.style.fontSize = '24px'")
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= width
