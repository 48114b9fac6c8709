"""The live figures of chapters show the package's numbers; keys, mouse and touch operate them."""

import html
import itertools
import json
import math
import re
from functools import partial

import pytest
import torch
import transformers
from live_pages import STATIC, check_fit, each, opening, said
from test_book_chapters import code as cells
from test_book_chapters import outputs, tags

from book import live_data, site
from book.browser import Browser
from book.notebooks import CHAPTERS
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.data import number_words
from transformer_lessons.data.byte_pair import BytePairEncoding
from transformer_lessons.decoding import beam, likeliest, lp
from transformer_lessons.encodings import SinusoidalEncoding
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.masks import causal_mask, combine, padding_mask
from transformer_lessons.norms import LayerNorm
from transformer_lessons.trainer import checkpoints
from transformer_lessons.variants import RMSNorm

FIGURES = sorted({path.stem for path in (STATIC / "live").glob("*.js")} - {"live", "one_page", "whole"})
IDS = torch.tensor([[1, 34, 33, 23, 0]])  # BOS ein und zwanzig PAD
KEYS = [[3, 0], [1, 3], [-3, 2], [-3, -2], [1, -3]]
SOLVED = {
    "one before": [KEYS[0], *KEYS[:4]],
    "mirror": KEYS[::-1],
    "first": 5 * [KEYS[0]],
    "both ends": 5 * [[3, -2]],
}
SLIDER, CELL = "[role=slider]", "[role=checkbox]"
BOX = "one.getBoundingClientRect()"
PANEL = f"one.closest('svg').{BOX[4:]}"


opened = pytest.fixture(scope="module")(opening)


def numbers(words: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", words.replace("−", "-"))]


def press(browser: Browser, key: str, selector: str = ":focus", times: int = 1) -> None:
    for _ in range(times):
        browser.page.press(selector, key)


def click(browser: Browser, words: str) -> None:
    each(browser, "button", f"one.textContent === {words!r} && one.click()")


def drag(browser: Browser, selector: str, *way: float, finger: bool = False) -> None:
    """Drag the element by this many units of the panel."""
    middle = f"((a, b) => [a.x + a.width / 2, a.y + a.height / 2, b.width / 340])({BOX}, {PANEL})"
    x, y, scale = each(browser, selector, middle)[0]
    end = {"x": x + scale * way[0], "y": y + scale * way[1]}
    if finger:
        devtools = browser.page.context.new_cdp_session(browser.page)
        for kind, under in (("Start", [{"x": x, "y": y}]), ("Move", [end]), ("Move", [end]), ("End", [])):
            devtools.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": under})
    else:
        mouse = browser.page.mouse
        mouse.move(x, y)
        mouse.down()
        mouse.move(**end, steps=2)
        mouse.up()


@pytest.mark.parametrize("name", FIGURES)
def test_live_figure_replaces_the_still_and_fits_the_screen(opened, name):
    browser = opened(name)
    parts = each(browser, "#fig-3-2 > *", "one.getAttribute('class')")
    assert parts == ["live-still", "lessons-live", None]
    assert each(browser, "figcaption", "one.textContent")[0].startswith("Figure 3.2. What to see. ")
    assert each(browser, "body", "one.textContent.includes('On the site')") == [False]
    for media, shown in (("print", [True, False]), ("screen", [False, True])):
        browser.page.emulate_media(media=media)
        assert each(browser, ".live-still, .lessons-live", "one.checkVisibility()") == shown
    browser.page.emulate_media(forced_colors="active")  # which take away shadows and colours of borders
    pressed, others = (
        {*each(browser, f"button[aria-pressed={is_}]", "getComputedStyle(one).backgroundColor")}
        for is_ in ("true", "false")
    )
    assert not pressed & others
    browser.page.emulate_media(forced_colors="none")
    assert all(each(browser, "[role]:not([role=status]), [tabindex]", "one.ariaLabel"))
    for width in (320, 1280, 375):
        check_fit(browser, width)
        ends = f"((a, b) => Math.min(a.left - b.left, b.right - a.right))({BOX}, {PANEL})"
        assert min(each(browser, ".live-panels text", ends)) > -1  # nothing is cut
    assert browser.problems == []
    assert all(address.startswith("file:") for address in browser.requests)
    assert numbers(said(browser))


@pytest.mark.parametrize("d_k", [2, 32])
def test_a_moved_query_gets_the_packages_weights(opened, d_k):
    keys, values = torch.tensor([[-1.0, 2], [0, 1], [1, 1]]), torch.tensor([[0.0, 0], [0, 10], [10, 0]])
    q, k = torch.zeros(1, 1, 1, d_k), torch.zeros(1, 1, 3, d_k)
    q[..., :2], k[..., :2] = torch.tensor([1.8, 1.1]), keys * math.sqrt(d_k / 2)
    results = [scaled_dot_product_attention(q * scale, k, values[None, None]) for scale in (1, d_k**0.5)]
    expected = [one.flatten().tolist() for output, weights in results for one in (weights, output)]
    browser = opened("attention")
    click(browser, f"dk = {d_k}")
    press(browser, "ArrowLeft", SLIDER, times=2)
    press(browser, "ArrowUp")
    assert numbers(said(browser)) == pytest.approx([1.8, 1.1, *itertools.chain(*expected)], abs=0.051)
    assert numbers(said(browser))[2:5] == pytest.approx(expected[0], abs=0.006)
    assert each(browser, SLIDER, "one.ariaValueText") == ["1.8, 1.1"]
    shown = each(browser, ".live-panels text", "one.textContent")
    assert {f"{weight:.2f}" for weight in expected[0] + expected[2]} <= set(shown)
    press(browser, "Home")
    assert said(browser).startswith("Query (2.0, 1.0)")
    for way, place in (((-88, -44), "1.0, 1.5"), ((900, 0), "2.1, 1.5")):  # not beyond the panel
        drag(browser, SLIDER, *way, finger=True)
        assert said(browser).startswith(f"Query ({place})")
    drag(browser, SLIDER, -900, 0)
    assert each(browser, SLIDER, "Number(one.ariaValueNow)") == [-1.4]


@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both"])
def test_masks_and_their_weights_are_the_packages(opened, kind):
    browser = opened("masks")
    click(browser, kind)
    names = {"padding_mask": padding_mask, "causal_mask": causal_mask, "combine": combine, "ids": IDS}
    exec(each(browser, "code", "one.textContent")[0], names)  # the figure's own words
    visible = True if names["mask"] is None else names["mask"]
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool) & visible
    assert mask.sum() == {"none": 25, "padding": 20, "causal": 15, "both": 14}[kind]
    assert each(browser, CELL, "one.ariaChecked === 'true'") == mask.flatten().tolist()
    scores = torch.tensor([[browser.page.evaluate("lessons.masks.EXAMPLE.scores")]])
    eye = torch.eye(5)[None, None]
    _, weights = scaled_dot_product_attention(scores * 5**0.5, eye, eye, mask)
    shown = [sum(numbers(label)) for label in each(browser, CELL, "one.ariaLabel")]
    assert shown == pytest.approx(weights.flatten().tolist(), abs=0.0051)
    assert said(browser).startswith(f"{mask.sum()} of 25 scores are left. zwanzig takes ")


def test_a_mask_is_drawn_by_hand(opened):
    browser = opened("masks")
    press(browser, " ", CELL)  # BOS may no longer look at itself
    start = "13 of 25 scores are left. "
    assert said(browser) == f"{start}BOS may look at nothing: the weights are zeros, not NaN."
    assert each(browser, "[aria-pressed=true]", "1") == []
    for key, words in (("ArrowDown", "BOS: weight 0.80"), ("ArrowRight", "ein: weight 0.20")):
        press(browser, key)
        assert each(browser, ":focus", "one.ariaLabel") == [f"ein looks at {words}"]
    press(browser, "Enter")
    assert said(browser).startswith("12 of 25 scores are left. ein takes 1.00 of BOS.")
    press(browser, "Control+Enter")
    press(browser, "Alt+ArrowLeft")  # the browser's: back
    assert said(browser).startswith("12 of 25 scores are left. ein takes 1.00 of BOS.")
    assert each(browser, ":focus", "one.ariaLabel") == ["ein looks at ein: hidden"]
    click(browser, "none")
    drag(browser, CELL, 104, 0)  # dragging hides every cell on the way
    assert said(browser).startswith("22 of 25 scores are left. BOS takes ")


def test_the_masks_scores_are_the_trained_translators(opened):
    (model, source, target), found = checkpoints.load_model(), {}

    def attention(query, key, value, mask=None, **options):
        found["scores"] = (query @ key.transpose(-2, -1))[0, 3] / math.sqrt(query.size(-1))
        return scaled_dot_product_attention(query, key, value, mask, **options)

    model.decoder_layers[1].self_attention.attention = attention
    words = source.encode(number_words.english_tokens(number_words.english(21)))
    assert IDS.tolist() == [[1, *target.encode(number_words.german_tokens(21)), 0]]
    with torch.no_grad():
        model(torch.tensor([words]), IDS)
    written = torch.tensor(opened("masks").page.evaluate("lessons.masks.EXAMPLE.scores"))
    torch.testing.assert_close(written, found["scores"], atol=0.0501, rtol=0)


def test_layers_until_a_word_is_known_are_those_of_matrix_powers(opened):
    browser = opened("reach")

    def check(kind: str, scores: int, end: str) -> None:
        click(browser, kind)
        seen = each(browser, CELL, "one.ariaChecked === 'true'")
        mask = torch.tensor(seen).view(9, 9)
        powers = [torch.linalg.matrix_power(mask + torch.eye(9), n) > 0 for n in range(9)]
        reached = torch.stack(powers).flatten(1)
        first, is_ever = reached.int().argmax(0).tolist(), reached[-1].tolist()
        after = [str(n) * ever for n, ever in zip(first, is_ever, strict=True)]
        assert each(browser, "[aria-label='After how many layers'] g text", "one.textContent") == after
        assert said(browser).startswith(f"{scores} of 81 scores: {end}. Counting itself, word ")

    check("one neighbour", 25, "all know of all after 8 layers")
    check("two neighbours", 39, "all know of all after 4 layers")
    check("the last three", 24, "36 cells stay crossed out at any depth")
    assert said(browser).endswith("Counting itself, word 1 knows 1 after one layer, then 1, 1, 1.")
    check("causal", 45, "36 cells stay crossed out at any depth")
    check("nobody", 0, "72 cells stay crossed out at any depth")
    each(browser, CELL, "/Word 5 |word 5$/.test(one.ariaLabel) && one.onclick()")
    check("", 17, "all know of all after 2 layers")  # the chapter's answer
    press(browser, "ArrowRight", CELL)
    press(browser, " ")
    check("", 18, "all know of all after 2 layers")
    assert said(browser).endswith("Counting itself, word 1 knows 3 after one layer, then 9.")


def test_suspects_left_are_those_that_fit_all_answers(opened):
    shown = [one.get("data", {}).get("text/html", "") for one in outputs(CHAPTERS / "21_bug_clinic.ipynb")]
    about = json.loads(html.unescape(re.search('"clinic".*data-about="(.*?)"', "".join(shown))[1]))
    browser, found = opened("clinic", about=json.dumps(about)), about["found"]
    titles = [" ".join(words.split()) for words in about["questions"]]
    names, verdict = [*found], {"0": "passes", "1": "fails", "?": "can’t be compared"}
    for turn in range(len(names)):  # everybody's
        place, told, left = (10 + 7 * turn) % len(names), [], names
        assert said(browser) == f"A new patient. {len(names)} of {len(names)} suspects are left."
        for j, title in enumerate(titles):
            click(browser, title)
            answer = found[names[place]][j]
            told.append(f"{title}: {verdict[answer]}")
            left = [name for name in left if "?" in (answer, found[name][j]) or found[name][j] == answer]
            assert said(browser).startswith(f"{'; '.join(told)}. {len(left)} of {len(names)} suspects ")
            seen = each(browser, ".live-panels g", "one.style.opacity === '1'")
            assert [name for name, is_left in zip(names, seen, strict=True) if is_left] == left
        click(browser, "Who is it?")
        assert said(browser).endswith(f" It is “{names[place]}”.")
        click(browser, "Next patient")


def test_angles_of_clock_hands_and_the_dot_product_are_the_packages(opened):
    browser, encoding = opened("clocks"), SinusoidalEncoding(128, 31)(torch.zeros(1, 31, 128))[0].double()
    hands = torch.complex(encoding[:, 1::2], encoding[:, ::2])

    def check(a: int, b: int) -> None:
        assert said(browser).startswith(f"twenty at {a}, one at {b}: distance {abs(b - a)}. The hands of")
        *angles, product = numbers(said(browser))[3:]
        turned = (hands[b] / hands[a])[[0, 4, 8, 16]].angle()
        assert (turned - torch.tensor(angles).deg2rad()).cos().min() > math.cos(math.radians(0.51))
        assert product == pytest.approx((encoding[a] @ encoding[b]).item(), abs=0.051)

    check(3, 4)
    press(browser, "ArrowRight", "[aria-label=one]")
    press(browser, "ArrowLeft", "[aria-label=twenty]")
    check(2, 5)
    before = said(browser).split(":")[1]
    click(browser, "Move both on")  # without motion: one step
    check(3, 6)
    assert said(browser).split(":")[1] == before
    drag(browser, "[aria-label=one]", -50, 0, finger=True)
    check(3, 1)


def test_merges_are_those_of_byte_pair_encoding(opened):
    browser = opened("merges")
    words = browser.page.evaluate("lessons.merges.EXAMPLE.words")
    found = browser.page.evaluate(f"lessons.merges.learn({words}, [1, 10, 1, 1, 1, 1], 9)")
    encoding = BytePairEncoding.train([*words, *9 * [words[1]]], 259 + 9)
    assert [step["made"] for step in found[1:]] == [token.decode() for token in encoding.tokens[-9:]]
    assert ["".join(pieces) for pieces in found[-1]["words"]] == words
    click(browser, "Merge")
    assert "en" in said(browser)


MODEL, SOURCE, TARGET = checkpoints.load_model()
NAMES = ["PAD", "BOS", "EOS", *TARGET.tokens[3:]]
SRC = torch.tensor([SOURCE.encode(number_words.english_tokens(number_words.english(800_048)))])


@torch.no_grad()
def logits_after(words: list[str]) -> torch.Tensor:
    """The trained translator's logits for 800,048 at BOS and after each of these words."""
    return MODEL(SRC, torch.tensor([[1, *TARGET.encode(words)]]))[0]


def test_the_knobs_leave_the_packages_chances(opened):
    browser = opened("sampling")
    example = browser.page.evaluate("lessons.sampling.EXAMPLE")
    assert example["logits"] == pytest.approx(logits_after(["acht", "hundert"])[-1].tolist(), abs=0.0051)
    assert example["words"] == NAMES
    knobs = {"temperature": 1.0, "top_k": 35, "top_p": 1.0}
    for name, key, times, value in (
        ("temperature", "ArrowLeft", 3, 0.7),
        ("top_p", "ArrowDown", 5, 0.75),
        ("temperature", "ArrowUp", 12, 1.9),
        ("top_k", "ArrowLeft", 31, 4),
    ):
        knobs[name] = value
        press(browser, key, f"[aria-label={name.replace('_', '-')}]", times)
        given = torch.tensor(example["logits"]) / knobs["temperature"]
        p = likeliest(given, knobs["top_k"], knobs["top_p"]).softmax(-1)
        found = browser.page.evaluate(f"lessons.sampling.chances(lessons.sampling.EXAMPLE.logits, {knobs})")
        assert found == pytest.approx(p.tolist(), abs=1e-6)
        assert said(browser).startswith(f"{(p > 0).sum()} of 35 tokens can be drawn: acht {p.max():.2f}, ")
    for presses, drawn in ((1, 5), (99, 500), (1, 5)):  # and anew
        each(browser, "button", f"[...Array({presses})].forEach(() => one.click())")
        assert said(browser).endswith(f". Drawn: {drawn}.")
    browser.page.emulate_media(reduced_motion="no-preference")
    for button, voice in (("Draw", "off"), ("Pause", None)):  # while it draws, nothing is read aloud
        click(browser, button)
        assert each(browser, "[role=status]", "one.ariaLive") == [voice]
    browser.page.emulate_media(reduced_motion="reduce")
    press(browser, "Home", "[aria-label=top-k]")  # what was drawn with other knobs is forgotten
    assert not re.search("Drawn", said(browser))
    drag(browser, "[aria-label=temperature]", -37, 0)
    assert each(browser, "[aria-label=temperature]", "one.ariaValueNow") == ["1.4"]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_search_is_the_packages(opened, k):
    browser = opened("beam")
    for words, told in browser.page.evaluate("lessons.beam.EXAMPLE.next").items():
        log_p, places = logits_after(words.split())[-1].log_softmax(-1).topk(6)
        assert re.findall(r"[^\W\d]+", told) == [NAMES[place] for place in places]
        assert numbers(told) == pytest.approx(log_p.tolist(), abs=0.0002)
    ids = beam(MODEL, SRC, beam_size=k, length_penalty=0.6, max_length=24)[0]
    words = TARGET.decode(ids.tolist())
    answer, log_p = "".join(words), logits_after(words).log_softmax(-1)
    score = log_p.gather(1, ids[:, None]).sum().item() / lp(len(ids), 0.6)
    click(browser, f"{k} beam{'s' if k > 1 else ''}")
    for n in range(8):
        assert said(browser).startswith(f"Step {n}: " if n else "Only BOS is there, with log p = 0.")
        click(browser, "Step")
    is_right = answer == browser.page.evaluate("lessons.beam.EXAMPLE.right")
    assert is_right == (k > 1)
    verdict = "right" if is_right else "not achthunderttausendachtundvierzig"
    end = f"Step 8: nothing can beat {score:.2f} any more. {answer} is {verdict}."
    assert said(browser) == end.replace("-", "−")
    click(browser, "Again")
    assert said(browser) == "Only BOS is there, with log p = 0."


def test_a_letter_is_handed_on_in_a_loop_and_looked_up_by_attention(opened):
    browser = opened("recall")
    knobs = {"letters after": 3, "kept": 0.5, "score of C": 2.0}
    for name, key, times, value in (
        ("letters after", "ArrowRight", 4, 7),
        ("kept", "ArrowUp", 60, 1.1),  # the state grows
        ("score of C", "ArrowRight", 14, 3.4),
    ):
        press(browser, key, f"[aria-label='{name}']", times)
        knobs[name] = value
        after, kept, score = knobs.values()
        inputs, state = torch.tensor([8.0] + after * [0.0]), 0.0
        for one in inputs:
            state = kept * state + one
        keys, values = (inputs > 0).float()[None, None, :, None], inputs[None, None, :, None]
        answer, weights = scaled_dot_product_attention(torch.full((1, 1, 1, 1), score), keys, values)
        found = [after, state, 8, weights[..., 0].item(), answer.item()]
        assert numbers(said(browser)) == pytest.approx(list(map(float, found)), abs=0.051)
        shown = each(browser, "[aria-label^='The weights'] text", "one.textContent")
        assert shown.count(f"{weights[..., -1].item():.2f}") == after


@pytest.mark.parametrize(
    "kinds", [("x + {}",) * 3, ("without {}", "x + {}", "{} alone"), ("{} alone", "without {}", "x + {}")]
)
def test_what_is_left_of_eight_paths_is_the_stream(opened, kinds):
    browser, stream = opened("paths"), 24.0
    for kind, name, share in zip(kinds, ("f₁", "f₂", "f₃"), (2, 3, 4), strict=True):
        click(browser, kind.format(name))
        stream = stream * ("alone" not in kind) + stream / share * ("without" not in kind)
    left = 2 ** sum("+" in kind for kind in kinds)
    assert f": {left} of 8 paths are left, " in said(browser)
    *paths, total = numbers(said(browser).split("left, ")[1])
    assert len(paths) == left
    assert sum(paths) == pytest.approx(total, abs=0.3)
    assert total == pytest.approx(stream, abs=0.051)
    assert numbers(each(browser, "[aria-label='The stream'] text", "one.textContent")[-1]) == [total]


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_what_is_left_is_what_the_packages_norms_leave(opened, kind):
    browser, x = opened("norm"), torch.tensor([1.0, 3, 3, 9])
    click(browser, kind.__name__)
    for name, changed in (
        ("Add 2 to all", lambda x: x + 2),
        ("Flip all signs", lambda x: -x),
        ("Back", lambda x: torch.tensor([1.0, 3, 3, 9])),
        ("Double all", lambda x: 2 * x),
        ("Double all", lambda x: x),  # 36 does not fit
    ):
        click(browser, name)
        x = changed(x)
        given, left = said(browser).split(". What is left: ")
        mean = x.mean() if kind is LayerNorm else torch.tensor(0.0)
        sizes = [mean, (x - mean).square().mean().sqrt()][kind is RMSNorm :]
        assert numbers(given) == pytest.approx([*x.tolist(), *map(float, sizes)], abs=0.006)
        assert numbers(left)[:4] == pytest.approx(kind(4)(x).tolist(), abs=0.006)
    assert said(browser).endswith("More than ±20 does not fit here.")
    press(browser, "ArrowDown", "[aria-label='number 4']")
    assert said(browser).startswith(f"{kind.__name__} of 2, 6, 6, 17: ")


@pytest.mark.parametrize("block", [1, 2, 3])
def test_running_sums_of_tiles_are_the_softmax_of_what_was_read(opened, block):
    browser = opened("tiles")
    assert said(browser) == "Tile 1 of 2: the sums begin; o/l is 5.33."  # as in the chapter's drawing
    scores = torch.tensor([1, 2, 5, 1, 10, 4]).double().log()
    v = torch.tensor([8.0, 4, 16, 2, 6, 10]).double()
    steps = browser.page.evaluate(f"lessons.tiles.online({scores.tolist()}, {v.tolist()}, {block})")
    assert [step["seen"] for step in steps] == [*range(0, 7, block)]
    for step in steps[1:]:
        read = scores[: step["seen"]]
        assert step["m"] == pytest.approx(read.max().item())
        assert step["l"] == pytest.approx((read - read.max()).exp().sum().item())
        assert step["o"] / step["l"] == pytest.approx((read.softmax(0) @ v[: len(read)]).item())
    corrections = [step["correction"] for step in steps[2:]]
    assert block != 2 or corrections == pytest.approx([2 / 5, 5 / 10])  # the chapter's answer: both shrink
    click(browser, "6 keys")
    click(browser, f"{block} in a tile")
    for _ in steps[2:]:
        click(browser, "Next tile")
    whole = f"{(scores.softmax(0) @ v).item():.2f}"
    assert said(browser).endswith(f"o/l is {whole}. The softmax of all scores at once gives {whole}.")


@pytest.mark.parametrize(
    ("rule", "alpha", "delta"), [("Sum", 1, 0), ("Decay, α = ½", 0.5, 0), ("Delta rule", 1, 1)]
)
def test_a_table_answers_as_its_rule_says(opened, rule, alpha, delta):
    browser, table, key = opened("memory"), torch.zeros(2, 2), torch.tensor([[0.6, 0.8]])
    click(browser, rule)
    for presses, written in ((0, "AB"), (3, ""), (0, "A"), (12, ""), (0, "A")):
        press(browser, "ArrowUp", SLIDER, presses)
        if presses:
            angle = math.radians(float(each(browser, SLIDER, "one.ariaValueNow")[0]))
            key = torch.tensor([[math.cos(angle), math.sin(angle)]])
        for value in written:
            table = alpha * table
            table = table + key.mT @ (torch.eye(2)["AB".index(value)] - delta * key @ table)
        if written == "A":  # A and B are there from the start
            click(browser, "Write A")
        found = numbers(said(browser).split(". ", 1)[1])
        assert found == pytest.approx([*key[0].tolist(), *(key @ table)[0].tolist()], abs=0.006)
    click(browser, "Empty")
    assert said(browser).startswith(f"{rule}; written: nothing.")
    for value in "ABBA":
        click(browser, f"Write {value}")
    assert each(browser, "svg:first-child > g text", "one.textContent") == ["A", "B", "+2"]  # all fit


@torch.no_grad()
def test_readings_of_the_lens_are_the_models():
    """Sub-layer after sub-layer, with the output layer after each."""
    for run in live_data.lens():
        german, src = run["german"][1:], torch.tensor([SOURCE.encode(run["english"])])
        memory = MODEL.encode(src, mask := padding_mask(src, SOURCE.pad_id))
        x = [MODEL.target_embedding(torch.tensor([[1, *TARGET.encode(german)]]))]
        for layer in MODEL.decoder_layers:
            x.append(layer.add_norm_self(x[-1], partial(layer.self_attention, is_causal=True)))
            x.append(layer.add_norm_cross(x[-1], partial(layer.cross_attention, key=memory, mask=mask)))
            x.append(layer.add_norm_feed_forward(x[-1], layer.feed_forward))
        expected = MODEL.output(torch.cat(x)).softmax(-1).transpose(0, 1)
        shown = torch.tensor(run["chances"]) / 1e4
        for row, (words, right) in enumerate(zip(run["words"], [*german, "EOS"], strict=True)):
            assert right in words
            of_words = expected[row][:, [NAMES.index(word) for word in words]]
            torch.testing.assert_close(shown[row], of_words, atol=6e-5, rtol=0)
            # Likeliest first; the sentence with a comma has the order of the one with "and".
            assert "," in run["english"] or (of_words[-1].diff() <= 0).all()
        likeliest = shown.amax(-1), expected.amax(-1)  # no other word is likelier
        torch.testing.assert_close(*likeliest, atol=6e-5, rtol=0)


READ = "svg:first-child > g > g[style^=cursor]"  # the cells of the map
MAPPED = "[one.textContent, one.querySelectorAll('rect[fill=\"var(--value)\"]').length]"


def test_the_map_and_the_bars_of_the_lens_show_its_readings(opened):
    browser, runs = opened("lens"), live_data.lens()
    *now, names = *runs[1]["chances"][2][4], [*runs[1]["words"][2], "others"]
    shares = [share / 1e4 for share in (*now, 1e4 - sum(now))]
    told = [
        f"{share:.2f}" + " right" * (name == "tausend") for name, share in zip(names, shares, strict=True)
    ]
    words = each(browser, "svg:last-child > g text", "one.textContent")
    assert (words[::2], words[1::2]) == (names, told)
    bars = each(browser, "svg:last-child > g > rect", "Number(one.getAttribute('width'))")
    assert bars == pytest.approx([204 * share for share in shares])
    for button, run in zip(("421", "300,009", "300,009, comma", "800,059", "68,001"), runs, strict=True):
        click(browser, button)
        cells = each(browser, READ, MAPPED)
        for right, words, row in zip([*run["german"][1:], "EOS"], run["words"], run["chances"], strict=True):
            leads = [words[one.index(max(one))] for one in row]
            assert [cells.pop(0) for _ in row] == [[word, int(word == right)] for word in leads]


def test_a_reading_is_chosen_with_keys_pointer_and_button(opened):
    browser, row = opened("lens"), "[aria-label=row]"

    def check(sentence: str) -> None:
        assert said(browser) == f"Row {sentence}."

    start = (
        "hundert, after layer 2’s self-attention: tausend 0.32 (before: 0.12). The right word takes the lead"
    )
    check(start)
    for part, reading in (
        (
            "layer 2’s cross-attention",
            "neun 0.27, tausend 0.20 (before: 0.32). The right word loses the lead",
        ),
        ("layer 2’s feed-forward", "neun 0.43, tausend 0.23 (before: 0.20). Right is tausend"),
        ("the embedding", "hundert 1.00, tausend 0.00. An echo: right is tausend"),
    ):
        click(browser, "Walk")  # without motion: one step
        check(f"hundert, after {part}: {reading}")
    drag(browser, row, 0, 500, finger=True)  # not beyond the last
    check("neun, after the embedding: neun 1.00, EOS 0.00. An echo: right is EOS")
    drag(browser, "[aria-label=part]", 900, 0)
    check("neun, after layer 2’s feed-forward: EOS 0.92 (before: 0.67). The right word leads")
    browser.page.locator(READ).nth(8).click()
    assert said(browser).startswith("Row drei, after layer 1’s self-attention: ")
    press(browser, "Home", row)
    check(start)
    click(browser, "800,059")
    press(browser, "ArrowDown", row, times=4)
    click(browser, "421")  # has a row less
    values = "['now', 'max', 'text'].map((one_) => one.getAttribute(`aria-value${one_}`))"
    assert each(browser, row, values) == [["6", "6", "zwanzig"]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_a_smoothed_loss_and_its_gradient_are_the_packages(opened, smoothing):
    browser = opened("smoothing")
    click(browser, f"ε = {smoothing:g}")
    z = torch.tensor([[1, 1, 4, 1, 1]]).double().log().requires_grad_()
    for n in range(3):
        loss, _ = label_smoothed_loss(z, torch.tensor([2]), pad_id=0, smoothing=smoothing)
        assert numbers(said(browser))[0] == pytest.approx(loss.item(), abs=0.006)
        z = (z - torch.autograd.grad(loss, z)[0]).detach().requires_grad_()
        click(browser, "One step" if n < 1 else "Learn")  # without motion: one step
    press(browser, "Home", "[aria-label='what the model gives to token 2']")
    press(browser, "ArrowRight", ":focus")
    assert each(browser, ":focus", "one.ariaValueText") == ["0.520"]


@pytest.mark.parametrize(("q", "p"), [(0.9, 0.5), (0.2, 0.75), (0.4, 0.4)])
def test_speculation_writes_the_models_words(opened, q, p):
    browser = opened("speculation")
    for name, start, wanted in (("draft: q", 0.9, q), ("model: p", 0.5, p)):
        key = "ArrowRight" if wanted > start else "ArrowLeft"
        press(browser, key, f"[aria-label='{name}']", round(abs(wanted - start) / 0.05))
    kept = min(p, q) + min(1 - p, 1 - q)
    expected = [q, p, kept, 1 - kept, p]  # between them stands “word 1”, twice
    found = numbers(said(browser).replace("word 1", ""))
    assert found == pytest.approx(expected, abs=0.006)
    grid = "[...Array(100).keys()].map((n) => (n + 0.5) / 100)"
    one = f"lessons.speculation.write([{q}, {1 - q}], [{p}, {1 - p}], a, b)"
    written = browser.page.evaluate(f"{grid}.flatMap((a) => {grid}.map((b) => {one}))")
    shares = [sum(one["word"] == 0 for one in written), sum(one["isKept"] for one in written)]
    assert shares == pytest.approx([len(written) * p, len(written) * kept], rel=0.02)
    for presses, drawn in ((1, 5), (99, 500), (1, 5)):  # and anew
        each(browser, "button", f"[...Array({presses})].forEach(() => one.click())")
        assert said(browser).endswith(f" Drawn: {drawn}.")


def test_caches_are_those_of_the_models_configurations(opened):
    names = "DeepseekV3", "GptOss", "SmolLM3", "Qwen3Next"
    deepseek, gpt, smol, qwen = (getattr(transformers, f"{name}Config")() for name in names)
    state = qwen.linear_num_value_heads * qwen.linear_key_head_dim * qwen.linear_value_head_dim
    browser = opened("caches")

    def check(n: int, how: str, *numbers_kept: float) -> None:
        """Compare the bytes that each model's layers keep, two a number."""
        one = f"lessons.caches.bytes(model, {n}, '{how}').reduce((a, b) => a + b)"
        found = browser.page.evaluate(f"Object.values(lessons.caches.MODELS).map((model) => {one})")
        assert found == [2 * count for count in numbers_kept]

    for n in (2**7, 2**17):
        windows = [n if "full" in kind else min(n, gpt.sliding_window) for kind in gpt.layer_types]
        check(
            *(n, "released"),
            deepseek.num_hidden_layers * (deepseek.kv_lora_rank + deepseek.qk_rope_head_dim) * n,
            2 * gpt.num_key_value_heads * gpt.head_dim * sum(windows),
            2 * 256 * (22 * min(n, 512) + 4 * n),  # Gemma 3
            smol.num_hidden_layers * 2 * smol.num_key_value_heads * 128 * n,
            sum(2 * 2 * 256 * n if "full" in kind else state for kind in qwen.layer_types),
        )
    check(
        *(1, "own"),
        61 * deepseek.num_attention_heads * (deepseek.qk_nope_head_dim + deepseek.v_head_dim),
        36 * 2 * gpt.num_attention_heads * gpt.head_dim,
        26 * 2 * 4 * 256,
        36 * 2 * smol.hidden_size,
        48 * 2 * qwen.num_attention_heads * qwen.head_dim,
    )
    assert "131,072 tokens leaves 9.2 GB in DeepSeek-V3, 4.8 GB in gpt-oss-120b, 548 MB in" in said(browser)
    click(browser, "… and keys for each head")
    assert "77 GB in gpt-oss-120b" in said(browser)  # the chapter's answer
    press(browser, "ArrowRight", SLIDER, times=3)
    assert "1,048,576 tokens leaves 4.2 TB in DeepSeek-V3, 618 GB in gpt-oss" in said(browser)
    press(browser, "ArrowLeft", SLIDER, times=14)  # not beyond 128
    assert "A text of 128 tokens " in said(browser)


def test_bits_and_stored_numbers_are_those_of_torch(opened):
    browser = opened("formats")
    given = [x * 2.0**e for x in (1 / 3, 0.1, 1.0, 1.001, math.pi, 1.8125) for e in range(-40, 30)]
    call = f"lessons.formats.FORMATS.map((one) => {given}.map((x) => lessons.formats.stored(x, one)))"
    found = browser.page.evaluate(call)
    dtypes = torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn
    for dtype, ours in zip(dtypes, found, strict=True):
        x, size = torch.tensor(given).to(dtype), torch.finfo(dtype).bits
        assert [one["value"] for one in ours] == x.float().tolist()
        bits = [f"{n % 2**size:0{size}b}" for n in x.view(getattr(torch, f"int{size}")).tolist()]
        assert [one["bits"] for one in ours] == bits
    click(browser, "1")
    press(browser, "ArrowRight", SLIDER, times=16)
    assert said(browser).endswith("float32 65536; bfloat16 65536; float16 ∞; float8, e4m3 448.")


SETTINGS = {  # how often each number is pressed, from w = 1, −1, b = 0, 0, v = 1, 1, c = 0
    "0, 1, 0": (0, 0, 0, 0, -2, -2, 1),
    "0, 0, 1": (0, 0, 0, 0, 2, 1, -1),
    "−1, 0, 1": (0, 0, 0, 0, 0, -1, 0),
}


def test_two_units_are_the_packages_layer_and_meet_all_points(opened):
    browser, layer = opened("units"), FeedForward(1, 2)
    given = {"w": [2, -1], "b": [1, -2], "v": [-1, 2], "c": [1]}
    for parameter, value in zip(layer.parameters(), given.values(), strict=True):
        parameter.data = torch.tensor(value, dtype=torch.float32).view_as(parameter)
    for x in (-2.0, -0.5, 0.0, 1.5):
        found = browser.page.evaluate(f"lessons.units.computed({given}, {x}, true)")
        assert found["y"] == pytest.approx(layer(torch.tensor([x])).item())
    assert said(browser) == "Solved (wanted: 1, 0, 1). −1, 0, 1 turn into 1, 0, 1."
    click(browser, "without")
    assert said(browser) == "1 of 3 points is met (wanted: 1, 0, 1). −1, 0, 1 turn into 0, 0, 0."
    click(browser, "with ReLU")
    for goal, presses in SETTINGS.items():
        click(browser, goal)
        for i, times in enumerate(presses):
            press(browser, "+" if times > 0 else "-", f".live-cell >> nth={i}", abs(times))
        assert said(browser).startswith(f"Solved (wanted: {goal}).")
    press(browser, "Control+-", ".live-cell >> nth=0")  # the browser's: smaller
    assert said(browser).startswith("Solved (wanted: −1, 0, 1).")
    browser.page.locator(".live-cell").nth(0).click()
    assert said(browser).startswith("2 of 3 points")


def test_puzzles_can_be_solved_with_keys_and_pointer(opened):
    browser = opened("hand")
    cells = browser.page.locator(".live-cell")
    assert said(browser).startswith("Solved (itself). b gives 0.97 to b, ")
    for goal, queries in SOLVED.items():
        click(browser, goal)
        assert said(browser).startswith(f"0 of 5 rows are right ({goal}).")
        for i, times in enumerate(itertools.chain(*queries)):
            modifiers = ["Shift"] if times < 0 else []
            cells.nth(i).click(click_count=abs(times), modifiers=modifiers) if times else None
        assert said(browser).startswith(f"Solved ({goal}).")
    for key, selector, focused in (
        ("+", ".live-cell", "b, first number: -3"),  # 3 becomes −3
        ("ArrowDown", ":focus", "a, first number: 3"),
        ("-", ":focus", "a, first number: 2"),
    ):
        press(browser, key, selector)
        assert each(browser, ":focus", "one.ariaLabel") == [f"query of {focused}"]


BOXES = """[...document.querySelectorAll(".live-panels [role=button]")].map((box) => {
  box.focus();
  const around = box.getBoundingClientRect();
  const inside = [...document.querySelectorAll(".live-panels text")].filter((text) => {
    const { x, y, width, height } = text.getBoundingClientRect();
    const [middle, centre] = [x + width / 2, y + height / 2];
    return middle > around.left && middle < around.right && centre > around.top && centre < around.bottom;
  });
  return {
    name: box.ariaLabel,
    inside: inside.map((text) => text.textContent),
    said: document.querySelector("[role=status]").textContent,
    marked: [...document.querySelectorAll(".live-line")].map((line) => line.style.background !== ""),
    code: document.querySelector(".live-code").textContent,
  };
})"""


def test_a_box_of_the_whole_model_lights_up_the_lines_that_the_drawing_names(opened):
    chapter = CHAPTERS / "12_the_whole_model.ipynb"
    [code] = [one.source for one in cells(chapter) if "canon:model.Transformer" in tags(one)]
    cell = f'<div class="highlight"><pre>{html.escape(code)}</pre></div>'
    browser = opened("whole", still=cell + site.drawing(str(chapter), "fig-12-2"))
    boxes, lines = browser.page.evaluate(BOXES), code.split("\n")
    assert len(boxes) == 9
    for box in boxes:
        lit = [number for number, is_lit in enumerate(box["marked"], start=1) if is_lit]
        assert box["said"] == f"{box['name']}: line{'s' * (len(lit) > 1)} {', '.join(map(str, lit))}."
        assert box["code"].split("\n")[0].endswith(lines[lit[0] - 1].strip())
        assert box["name"] in box["inside"]
        # Such as "lines 14–15, 41 · chapter 11".
        named = [words.split("·")[0] for words in box["inside"] if words.startswith("line")]
        drawn = {int(number) for number in re.findall(r"\d+", " ".join(named))}
        assert drawn
        assert drawn <= {*lit}, box["name"]
    norm = next(i for i, line in enumerate(lines) if "self.encoder_norm =" in line)
    browser.page.locator(".live-line").nth(norm).click()
    assert said(browser).startswith("encoder_norm: ")
    assert browser.problems == []
