"""What the live figures of chapters 0 and 7 show, from real runs of the packaged model.

`one_page` has the layers of the drawing, of which `one_page.js` lays those of a sentence, a step and a row on its
base; its words stand in `one_page.toml`. The build writes them into ``_static/live``.
"""

import json
import re
import tomllib
from pathlib import Path

import nbformat
import torch

from book.notebooks import chapters
from transformer_lessons.data import number_words
from transformer_lessons.tools import one_page
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.tools.drawing import number
from transformer_lessons.trainer import checkpoints

RECTANGLE = r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4(?:L\1 \2)?z"
NUMBERS = 421, 121, 987, 1021, 43001  # five English words and six German tokens each
KINDS = {
    "cross": "decoder_layers.{}.cross_attention",
    "encoder": "encoder_layers.{}.self_attention",
    "decoder": "decoder_layers.{}.self_attention",
}


def heads(n: int) -> dict:
    """The words of a number, and where all heads look, in percent, while the right German words come in."""
    model, source, target = checkpoints.load_model()
    english = number_words.english_tokens(number_words.english(n))
    german = number_words.german_tokens(n)
    tgt = torch.tensor([[model.config.bos_id, *target.encode(german)]])
    weights = attention_maps(model, torch.tensor([source.encode(english)]), tgt)
    maps = {
        kind: [(100 * weights[name.format(layer)][0]).round().int().tolist() for layer in (0, 1)]
        for kind, name in KINDS.items()
    }
    return {"n": n, "english": english, "german": ["BOS", *german], "maps": maps}


def parts() -> list[dict]:
    """What can be pointed at: where it is, what it is called, does and measures, and who builds it."""
    found = []
    for name, part in tomllib.loads(Path(__file__).with_name("one_page.toml").read_text("utf-8")).items():
        for panel, (box, shape) in enumerate(zip(part["boxes"], part["shapes"], strict=True)):
            if box:
                box = one_page.BOXES[box][panel] if isinstance(box, str) else box
                about = {"does": part["does"], "shape": shape, "chapters": part["chapters"]}
                found.append({"at": (panel, *box), "name": name, **about})
    return sorted(found, key=lambda part: (part["at"][0], part["at"][2]))


def pages() -> dict[str, tuple[str, str]]:
    """The page and the title of each chapter, by its number."""
    titles = {
        path.stem: nbformat.read(path, as_version=4).cells[0].source.split("\n")[0]
        for path in chapters()
        if path.stem[0].isdigit()
    }
    return {stem[:2]: (f"{stem}.html", title.lstrip("# ")) for stem, title in titles.items()}


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
    layers = {name: [decoder(draw, one, k) for k in range(one_page.STEPS)] for name, draw in each.items()}
    layers["sentence"] = both(one_page.sentence, one)
    told = {"looks": looks, "states": states, "next": [best[0][0] for best in one["best"]]}
    return {"n": n, "words": words, "said": said, "layers": layers} | told


def both(draw, *given) -> list[str]:
    """What a function draws on both panels, as SVG."""
    panels = one_page.panels()
    draw(*panels, *given)
    return list(map(svg, panels))


def decoder(draw, *given) -> str:
    """What a function draws on the decoder's panel."""
    _, panel = one_page.panels()
    draw(panel, *given)
    return svg(panel)


def svg(panel: one_page.Panel) -> str:
    """With rectangles shortened, of which there are thousands."""
    return re.sub(RECTANGLE, r"M\1 \2H\3V\4H\1z", panel.svg()[1])


def one_page_script() -> str:
    """Of chapter 0."""
    runs = [sentence(n) for n in one_page.NUMBERS]
    data = {"base": both(one_page.base), "parts": parts(), "chapters": pages(), "runs": runs}
    return f"lessons.onePage = {dumps(data)};\n"


def heads_script() -> str:
    """Of chapter 7."""
    return f"lessons.headsData = {dumps([heads(n) for n in NUMBERS])};\n"


SCRIPTS = {"one_page": one_page_script, "heads": heads_script}


def write(folder: Path, name: str) -> None:
    """Write what one live figure shows, as a script beside its own."""
    start = "globalThis.lessons = globalThis.lessons || {};\n"
    (folder / f"{name}.data.js").write_text(start + SCRIPTS[name](), encoding="utf-8")


def dumps(data) -> str:
    """JSON without spaces."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
