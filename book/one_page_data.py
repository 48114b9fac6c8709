"""What the live figure of chapter 0 shows, from real runs: the build writes ``_static/live/one_page.data.js``.

It has the layers of the drawing, of which `one_page.js` lays those of a sentence, a step and a row on its base.
"""

import json
import re
from pathlib import Path

import nbformat

from transformer_lessons.data import number_words
from transformer_lessons.tools import one_page
from transformer_lessons.tools.drawing import number

FILE = "one_page.data.js"
RECTANGLE = r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4(?:L\1 \2)?z"
CHAPTERS = Path(__file__).parent / "chapters"
PLACES = {  # of what can be pointed at, beside the boxes: panel, x, y, width, height
    "embed": ((0, 0, 22, 340, 134), (1, 16, 22, 324, 154)),
    "stream": ((0, 2, 376, 92, 152), (1, 246, 376, 92, 152)),
    "memory": ((0, 0, 626, 340, 50),),
    "linear, softmax": ((1, 238, 888, 100, 26),),
    "next token": ((1, 18, 908, 206, 114),),
}
# Of each part: its name, what it does, its shape in the encoder and in the decoder, {m} being the words so far.
LAYER = "5 × 128 → 5 × 128", "{m} × 128 → {m} × 128"
SAID = {
    "embed": (
        "tokens and vectors",
        "Each word has an id, and each id a vector that was learned; a second vector says where the word stands.",
        ("5 ids → 5 × 128", "{m} ids → {m} × 128"),
        ("02", "05"),
    ),
    "layer 1": ("layer 1", "It has the same parts as layer 2, with weights of its own.", LAYER, ("11",)),
    "stream": (
        "residual stream",
        "Each part reads the rows and adds its answer; a norm brings each row back to an even size. "
        "Full cells are far from 0, grey ones below it.",
        ("5 × 128", "{m} × 128"),
        ("10", "09"),
    ),
    "self-attention": (
        "self-attention",
        "Each word looks at the words of its own sentence, and takes something from those that matter to it.",
        tuple(f"4 heads × {n} × {n} weights, {one}" for n, one in zip(("5", "{m}"), LAYER, strict=True)),
        ("03", "07"),
    ),
    "cross-attention": (
        "cross-attention",
        "Each German word looks at the memory; a line is as thick as the weight. Choose a word to see its own.",
        (f"4 heads × {{m}} × 5 weights, {LAYER[1]}",),
        ("07",),
    ),
    "feed-forward": (
        "feed-forward",
        "Each word is worked on alone: widened to 512 numbers, cut off at 0, narrowed again.",
        ("5 × 128 → 5 × 512 → 5 × 128", "{m} × 128 → {m} × 512 → {m} × 128"),
        ("08",),
    ),
    "memory": (
        "memory",
        "The English words, each informed by the others: made once, and asked at every step.",
        ("5 × 128",),
        ("11",),
    ),
    "linear, softmax": (
        "linear, softmax",
        "The last row is compared with each of the 35 tokens, and softmax turns the scores into probabilities.",
        ("1 × 128 → 1 × 35",),
        ("12",),
    ),
    "next token": (
        "the next token",
        "The likeliest token is written, and goes back in as a new row.",
        ("1 × 35 → 1 id",),
        ("14",),
    ),
}
MASKED = (
    "masked self-attention",
    "German words look at themselves and back. What comes later is crossed out: it is not written yet.",
    ("04", "07"),
)


def parts() -> list[dict]:
    """What can be pointed at: where it is, what it is called, does and measures, and who builds it."""
    found = []
    boxes = {
        key: [(panel, *box) for panel, box in enumerate(pair) if box] for key, pair in one_page.BOXES.items()
    }
    for key, places in (PLACES | boxes).items():
        name, does, shapes, chapters = SAID[key]
        for place, shape in zip(places, shapes, strict=True):
            is_masked = place[0] and key == "self-attention"
            name, does, chapters = MASKED if is_masked else (name, does, chapters)
            found.append({"at": place, "name": name, "does": does, "shape": shape, "chapters": chapters})
    return sorted(found, key=lambda part: (part["at"][0], part["at"][2]))


def chapters() -> dict[str, tuple[str, str]]:
    """The page and the title of each chapter that there is, by its number."""
    found = {}
    for path in sorted(CHAPTERS.glob("[0-9]*.ipynb")):
        title = nbformat.read(path, as_version=4).cells[0].source.split("\n")[0]
        found[path.stem[:2]] = (f"{path.stem}.html", title.lstrip("# "))
    return found


def sentence(n: int) -> dict:
    """All that the figure says and shows of one number."""
    one = one_page.run(n)
    words, said = one["words"]
    right, looks, states = [*number_words.german_tokens(n), "EOS"], [], []
    for k, ((word, p), (second, q), *_) in enumerate(one["best"]):
        weight, place = max((w, j) for j, w in enumerate(one["cm"][k].tolist()))
        looks.append(f"The row of “{said[k]}” looks most at “{words[place]}” ({number(weight)}).")
        states.append(f"“{word}” gets {100 * p:.1f}%, “{second}” {100 * q:.1f}%.")
        if word != right[k]:
            states[-1] += (
                f" It should be “{right[k]}”: of 1,000 test numbers, this is the one that goes wrong."
            )
        if word == "EOS":
            states[-1] += f" EOS ends the sentence: {''.join(said[1:])}."
    each = {"rows": one_page.row, "steps": one_page.step, "looks": one_page.look}
    layers = {name: [drawn(draw, one, k) for k in range(one_page.STEPS)] for name, draw in each.items()}
    layers["sentence"] = drawn(one_page.sentence, one)
    told = {"looks": looks, "states": states, "next": [best[0][0] for best in one["best"]]}
    return {"n": n, "words": words, "said": said, "layers": layers} | told


def drawn(draw, *given) -> str | list[str]:
    """What a function draws, as SVG: on the decoder's panel, if it takes one panel only, or on both."""
    both = one_page.panels()
    is_decoders = draw in (one_page.row, one_page.step, one_page.look)
    draw(*(both[1:] if is_decoders else both), *given)
    found = [re.sub(RECTANGLE, r"M\1 \2H\3V\4H\1z", panel.svg()[1]) for panel in both]
    return found[1] if is_decoders else found


def write(outdir: Path) -> None:
    """Write the script into the folder of live figures. Styles that come again and again stand in it once."""
    data = {
        "base": drawn(one_page.base),
        "parts": parts(),
        "chapters": chapters(),
        "runs": [sentence(n) for n in one_page.NUMBERS],
    }
    text, styles = json.dumps(data, ensure_ascii=False, separators=(",", ":")), {}
    text = re.sub(
        r' style=\\"([^"]*)\\"', lambda found: f"~{styles.setdefault(found[1], len(styles))}~", text
    )
    folder = Path(outdir) / "_static" / "live"
    folder.mkdir(parents=True, exist_ok=True)
    script = f"globalThis.lessons = globalThis.lessons || {{}};\nlessons.onePage = {text};\n"
    script += f"lessons.onePage.styles = {json.dumps(list(styles))};\n"
    (folder / FILE).write_text(script, encoding="utf-8")
