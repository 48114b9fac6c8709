"""The live translator computes what PyTorch computes, in a real browser; mouse and keyboard operate it."""

import json
import re

import pytest
import torch
from live_pages import STATIC, check_fit, each, said
from torch import nn

from book.browser import PHONE, Browser
from book.browser import browser as open_browser
from book.site import EXPLORABLES, TRAINED
from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.data import number_words
from transformer_lessons.data.vocabulary import Vocabulary, pad
from transformer_lessons.decoding import beam, greedy
from transformer_lessons.export.web import exported, script
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.tools import costs
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.trainer.checkpoints import load_model

SCRIPTS = STATIC / "explorables"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>translator</title>
<meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="{style}">
<div class="lessons-explorable" data-explorable="translator" data-model="number_words"></div>
{scripts}</html>"""
NUMBERS = (0, 1, 21, 421, 1_001, 43_001, 101_010, 121_212, 777_777, 999_999)
LONGEST = 24  # tokens, as in the page


@pytest.fixture(scope="module")
def trained():
    return load_model()


@pytest.fixture(scope="module")
def small():
    """A model of another shape: norms come first, more encoder than decoder layers, no tied weights."""
    torch.manual_seed(7)
    sizes = {"d_model": 12, "num_heads": 3, "d_ff": 17, "num_encoder_layers": 3, "num_decoder_layers": 1}
    config = TransformerConfig(11, 13, **sizes, norm_first=True, tie_embeddings=False, max_length=LONGEST)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model, Vocabulary([*"abcdefgh"]), Vocabulary([*"abcdefghij"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory, trained, small, chromium):
    """It translates at once, without a request; `make site-check` says how long a slow phone is busy."""
    folder = tmp_path_factory.mktemp("translator")
    (folder / f"{TRAINED}.js").write_text(script(TRAINED, exported(*trained, "int8")), encoding="utf-8")
    lie = [(folder if name == TRAINED else SCRIPTS) / f"{name}.js" for name in EXPLORABLES["translator"]]
    scripts = "".join(f'<script src="{path.as_uri()}"></script>' for path in lie)
    page = PAGE.format(style=(SCRIPTS / "explorables.css").as_uri(), scripts=scripts)
    (folder / "index.html").write_text(page, encoding="utf-8")
    with open_browser(width=PHONE) as opened:
        opened.open(folder / "index.html")
        assert "which is right" in said(opened)
        assert all(address.startswith("file:") for address in opened.requests)
        for name, model in (("float32", trained), ("small", small)):
            opened.page.add_script_tag(content=script(name, exported(*model, "float32")))
        yield opened
        assert opened.problems == []


def source_ids(number: int, vocabulary: Vocabulary) -> list[int]:
    return vocabulary.encode(number_words.english_tokens(number_words.english(number)))


def in_the_page(browser: Browser, name: str, source: list[int], target: list[int]) -> tuple[list, dict]:
    """The page's logits of all steps for these tokens, and its attention maps by their names in PyTorch."""
    logits, encoder, steps = browser.page.evaluate(f"""(() => {{
      const model = lessons.model({json.dumps(name)});
      const {{ memory, maps }} = model.encode({source});
      let state = model.start(memory);
      const steps = {target}.map((id) => {{
        const step = model.step(state, id);
        state = step.state;
        return step;
      }});
      const logits = steps.map((step) => Array.from(step.logits));
      return [logits, maps, steps.map(({{ self, cross }}) => [self, cross])];
    }})()""")
    found = {f"encoder_layers.{n}.self_attention": torch.Tensor(each) for n, each in enumerate(encoder)}
    for place, kind in enumerate(("self", "cross")):
        for layer in range(len(steps[0][place])):
            rows = [torch.Tensor(step[place][layer]).T for step in steps]  # of each step, for all heads
            maps = nn.utils.rnn.pad_sequence(rows).permute(2, 1, 0)  # weights of later positions are zero
            found[f"decoder_layers.{layer}.{kind}_attention"] = maps
    return logits, found


@torch.no_grad()
def compare(browser: Browser, name: str, model: Transformer, source: list[int], target: list[int]) -> None:
    """Compare the page's attention maps and logits with PyTorch's."""
    src, tgt = torch.tensor([source]), torch.tensor([target])
    logits, found = in_the_page(browser, name, source, target)
    expected = {name: each[0] for name, each in attention_maps(model, src, tgt).items()}
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(logits), model(src, tgt)[0], atol=1e-4, rtol=0)


# ---- The numbers


def test_scores_and_maps_are_pytorchs(browser, trained):
    model, source, target = trained
    for number in NUMBERS:
        german = [model.config.bos_id, *target.encode(number_words.german_tokens(number))]
        compare(browser, "float32", model, source_ids(number, source), german)


def test_scores_and_maps_of_another_architecture_are_pytorchs(browser, small):
    compare(browser, "small", small[0], [3, 10, 4, 4, 7], [1, 12, 3, 3, 11, 5, 9])


@pytest.mark.full
@torch.no_grad()
def test_with_8_bits_the_held_out_numbers_are_translated_the_same(browser, trained):
    model, source, target = trained
    numbers = number_words.held_out()
    ids = [source_ids(number, source) for number in numbers]
    translate = 'lessons.translate(lessons.model("number_words"), ids).tokens'
    found = browser.page.evaluate(f"{ids}.map((ids) => {translate})")
    expected = greedy(model, pad(ids, model.config.pad_id), max_length=LONGEST).tolist()
    assert len(numbers) == 1000
    # The page's example is the only one that goes wrong, in the page and in PyTorch.
    right = [target.encode(number_words.german_tokens(number)) for number in numbers]
    for answers in (found, expected):
        said = map(target.decode, answers)
        wrong = [n for n, a, b in zip(numbers, said, right, strict=True) if a != target.decode(b)]
        assert wrong == [43_001]


@torch.no_grad()
def test_beam_search_is_the_packages(browser, small):
    model = small[0]
    for beams in (2, 3, 5):
        for ids in ([3, 4, 5], [10, 9, 8, 7, 6], [4]):
            found = browser.page.evaluate(
                f'lessons.beam(lessons.model("small"), {ids}, {{ beams: {beams}, maxLength: 7 }}).tokens'
            )
            expected = beam(model, torch.tensor([ids]), beam_size=beams, max_length=7)[0]
            assert found == expected[: len(found)].tolist()
            assert not expected[len(found) :].any()  # padding


@torch.no_grad()
def test_a_head_that_is_off_gives_nothing_to_the_output(browser, trained):
    """In PyTorch the columns of W_o that read the head are set to zero."""
    model, source, target = trained
    ids, german = source_ids(43_001, source), [1, *target.encode(number_words.german_tokens(43_001))]
    places = {
        "encoder.1.2": model.encoder_layers[1].self_attention,
        "self.0.3": model.decoder_layers[0].self_attention,
        "cross.1.0": model.decoder_layers[1].cross_attention,
    }
    whole = model(torch.tensor([ids]), torch.tensor([german]))
    for place, attention in places.items():
        columns = attention.W_o.weight.chunk(model.config.num_heads, dim=1)[int(place[-1])]
        before = columns.clone()
        browser.page.evaluate(f'lessons.model("float32").off.add("{place}")')
        columns.zero_()
        compare(browser, "float32", model, ids, german)
        assert (model(torch.tensor([ids]), torch.tensor([german])) - whole).abs().max() > 1e-2
        columns.copy_(before)
        browser.page.evaluate('lessons.model("float32").off.clear()')


@pytest.mark.full
@torch.no_grad()
def test_any_one_head_can_go_as_the_page_says(trained):
    model, source, _ = trained
    ids = pad([source_ids(number, source) for number in number_words.held_out()[:150]], model.config.pad_id)

    def words() -> torch.Tensor:
        found = greedy(model, ids, max_length=LONGEST)
        return nn.functional.pad(found, (0, LONGEST - found.size(1)))

    whole, left = words(), {}
    for name, attention in model.named_modules():
        if isinstance(attention, MultiHeadAttention):
            for head, columns in enumerate(attention.W_o.weight.chunk(model.config.num_heads, dim=1)):
                before = columns.clone()
                columns.zero_()
                left[name, head + 1] = (words() == whole).all(1).float().mean().item()
                columns.copy_(before)
    assert len(left) == 24
    assert min(left.values()) >= 0.9
    assert min(left, key=left.get) == ("decoder_layers.1.cross_attention", 1)


def test_page_describes_the_model_correctly(trained):
    words = (SCRIPTS.parents[1] / "explorables" / "translator.md").read_text(encoding="utf-8")
    lines = (SCRIPTS / "model.js").read_text(encoding="utf-8").count("\n")
    assert f"{costs.parameters(trained[0].config):,} numbers" in words
    assert f"{round(lines, -1)} lines" in words


def test_drawing_at_a_temperature(browser):
    """Probabilities are softmax(scores / T), and the draws follow them."""
    scores, temperature = [1.0, 2.0, -1.0, 0.5], 0.7
    expected = (torch.tensor(scores) / temperature).softmax(-1)
    draws = browser.page.evaluate(f"""(() => {{
      const counts = [0, 0, 0, 0];
      for (let i = 0; i < 1000; i++) counts[lessons.sampler({temperature}, () => (i + 0.5) / 1000)({scores})]++;
      return counts;
    }})()""")
    assert draws == pytest.approx([1000 * p for p in expected.tolist()], abs=1)
    assert browser.page.evaluate(f"lessons.sampler(0)({scores})") == 1


def test_number_words_are_the_packages(browser):
    numbers = [*range(1200), *range(0, number_words.LIMIT, 997), 999_999]
    found = browser.page.evaluate(f"""(({{ english, germanTokens, parse }}) =>
      {numbers}.map((n) => [english(n), germanTokens(n), parse(english(n))]))(lessons.numbers)""")
    assert found == [[number_words.english(n), number_words.german_tokens(n), n] for n in numbers]


READABLE = ("1,234", "−0", "+17", "Four hundred five", "twenty one", " 7 ", "one thousand one")
REFUSED = ("", "x", "-1", "1000000", "12,34", "a hundred", "twelve hundred", "one million", "1e3")


def test_page_reads_and_refuses_the_same_numbers_as_the_package(browser):
    parse = (
        "(text) => { try { return lessons.numbers.parse(text); } catch (error) { return String(error); } }"
    )
    for text in READABLE:
        assert browser.page.evaluate(parse, text) == number_words.parse(text)
    for text in REFUSED:
        with pytest.raises(ValueError, match="number"):
            number_words.parse(text)
        assert re.match("Error: .{15}", str(browser.page.evaluate(parse, text))), text


# ---- The page


def ask(browser: Browser, text: str) -> str:
    browser.page.fill("#translator-number", text)
    browser.page.press("#translator-number", "Enter")
    return said(browser)


def test_an_answer_is_called_right_or_wrong(browser, trained):
    assert ask(browser, "four hundred twenty one").startswith(
        "It says vierhunderteinundzwanzig for 421, which is right"
    )
    ids = torch.tensor([source_ids(43_001, trained[1])])
    got = "".join(trained[2].decode(greedy(trained[0], ids, max_length=LONGEST)[0].tolist()))
    assert got != number_words.german(43_001)  # otherwise the page needs another example
    assert f"{got} for 43,001, but it should be {number_words.german(43_001)}" in ask(browser, "43001")


COMPLAINTS = {
    "bread": "“bread” is neither",
    "17 18": "Type one number at a time",
    "12,34": "write 1,234",
    "1.5": "whole",
}


def test_invalid_number_is_reported_and_hides_the_old_answer(browser):
    field, results = browser.page.locator("#translator-number"), browser.page.locator(".x-results")
    for text, complaint in COMPLAINTS.items():
        assert "which is right" in ask(browser, "421")
        assert (field.get_attribute("aria-invalid"), results.is_visible()) == (None, True)
        assert complaint in ask(browser, text)
        assert (field.get_attribute("aria-invalid"), results.is_visible()) == ("true", False)
    assert len(ask(browser, 10_000 * "x")) < 200


def test_answer_is_hidden_until_it_is_written(browser):
    browser.page.emulate_media(reduced_motion="no-preference")
    try:
        assert ask(browser, "212,212") == "Writing …"
        seen = ".x-part", "getComputedStyle(one).visibility"
        assert set(each(browser, *seen)) == {"hidden"}
        browser.page.wait_for_selector(".x-writing", state="detached")
        assert "which is right" in said(browser)
        assert set(each(browser, *seen)) == {"visible"}
    finally:
        browser.page.emulate_media(reduced_motion="reduce")


def test_the_sentence_stays_in_sight_while_heads_are_switched(browser):
    ask(browser, "421")
    each(browser, ".x-small input", "one.scrollIntoView({ block: 'end' })")
    place = ".x-tokens", "((box) => [box.top + 1, box.bottom])(one.getBoundingClientRect())"
    [seen] = each(browser, *place)
    assert 0 <= seen[0] < seen[1] < 800
    browser.page.set_viewport_size({"width": PHONE, "height": 300})  # too low to give so much room away
    assert each(browser, *place)[0][1] < 0
    browser.page.set_viewport_size({"width": PHONE, "height": 800})


def test_the_arrow_keys_walk_through_a_map(browser):
    ask(browser, "421")
    cell = browser.page.locator(".x-map td[tabindex='0']")
    cell.focus()
    assert browser.page.text_content(".x-readout").startswith("“vier” looks at “four” with weight ")
    for key, row, column in (
        ("ArrowRight", "vier", "hundred"),
        ("Alt+ArrowLeft", "vier", "hundred"),  # the browser's: back
        ("ArrowDown", "hundert", "hundred"),
    ):
        browser.page.keyboard.press(key)
        words = f"“{row}” looks at “{column}” with weight "
        assert browser.page.text_content(".x-readout").startswith(words)
    assert cell.count() == 1
    assert browser.page.locator(".x-tokens [aria-pressed=true]").count() == 1


def test_without_any_head_no_beam_ends(browser):
    off = 'lessons.model("number_words").off'
    all_heads = "[0, 1].flatMap((layer) => [0, 1, 2, 3].map((head) => `${place}.${layer}.${head}`))"
    browser.page.evaluate(
        f'["encoder", "self", "cross"].flatMap((place) => {all_heads}).map((one) => {off}.add(one))'
    )
    assert "with 24 of its heads off" in ask(browser, "421")
    browser.page.wait_for_function("document.querySelector('.x-tree p').textContent.includes('None')")
    assert browser.page.text_content(".x-tree p").startswith("None ended; the best beginning: einundund")
    browser.page.evaluate(f"{off}.clear()")


def test_heads_are_switched_off_and_on_and_weights_shown_are_the_weights(browser, trained):
    model, source, target = trained
    ask(browser, "421")
    for words in ("with 1 of its heads off", "which is right"):
        browser.page.click('[data-key="cross.1.0"]')
        assert words in said(browser)
    shown = each(browser, ".x-map tbody td", "Number(one.style.getPropertyValue('--weight'))")
    tgt = [1, *target.encode(number_words.german_tokens(421))]
    with torch.no_grad():
        maps = attention_maps(model, torch.tensor([source_ids(421, source)]), torch.tensor([tgt]))
    expected = maps["decoder_layers.1.cross_attention"][0, 0].flatten().tolist()
    assert shown == pytest.approx(expected, abs=0.02)  # 8 bits


@pytest.mark.parametrize("width", [320, 375, 1280])
def test_nothing_is_wider_than_the_screen(browser, width):
    ask(browser, "777777")
    check_fit(browser, width)
    browser.page.set_viewport_size({"width": PHONE, "height": 800})
