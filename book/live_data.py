"""The data of the live figures in chapters 0, 7 and 15, from real runs of the packaged model.

`one_page` has the layers of the drawing; `one_page.js` puts those of a sentence, a step and a row on top of
the base. Its texts are in `one_page.toml`. The build writes the data into ``_static/live``.
"""

import json
import re
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch

from book.notebooks import chapters, prose
from transformer_lessons.data import number_words
from transformer_lessons.model import Transformer
from transformer_lessons.tools import one_page
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.tools.drawing import number
from transformer_lessons.trainer import checkpoints

RECTANGLE = r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4(?:L\1 \2)?z"
DECODER = slice(1, 2)  # of the two panels
NUMBERS = 421, 121, 987, 1021, 43001  # five English words and six German tokens each
KINDS = {
    "cross": "decoder_layers.{}.cross_attention",
    "encoder": "encoder_layers.{}.self_attention",
    "decoder": "decoder_layers.{}.self_attention",
}
STREAM = re.compile(r"target_embedding|decoder_layers\.\d\.add_norm_\w+")  # whose outputs are the stream
READ = (421, "and"), (300_009, "and"), (300_009, ","), (800_059, "and"), (68_001, "and")
SHOWN = 6  # words of a row


def pair(n: int, joint: str = "and") -> tuple[dict, Transformer, torch.Tensor, torch.Tensor]:
    """A number's English words, with this one for "and", and right German ones; the model, and both as ids."""
    model, source, target = checkpoints.load_model()
    said, german = number_words.english_tokens(number_words.english(n)), number_words.german_tokens(n)
    english = [joint if word == "and" else word for word in said]
    ids = [source.encode(english)], [[model.config.bos_id, *target.encode(german)]]
    return {"n": n, "english": english, "german": ["BOS", *german]}, model, *map(torch.tensor, ids)


def heads() -> list[dict]:
    """Chapter 7's figure: the words of each number, and all heads' weights in percent for the right words."""
    found = []
    for about, *given in map(pair, NUMBERS):
        weights, maps = attention_maps(*given), {}
        for kind, name in KINDS.items():
            maps[kind] = [(100 * weights[name.format(layer)][0]).round().int().tolist() for layer in (0, 1)]
        found.append(about | {"maps": maps})
    return found


def lens() -> list[dict]:
    """Chapter 15's figure: what the output layer reads after each part of the decoder, in ten-thousandths.

    The German so far is right. A row's words are those that come farthest anywhere, by their chances at the
    end; two sentences of one number, one after the other, share them.
    """
    found, names = [], ["PAD", "BOS", "EOS", *number_words.vocabularies()[1].tokens[3:]]
    for n, joint in READ:
        about, *given = pair(n, joint)
        read = readings(*given)
        if not found or found[-1]["n"] != n:
            far = [(p, p.amax(0).topk(SHOWN).indices) for p in read]
            shown = [row[p[-1, row].argsort(descending=True)].tolist() for p, row in far]
        words = [[names[token] for token in row] for row in shown]
        chances = [(10_000 * p[:, row]).round().int().tolist() for p, row in zip(read, shown, strict=True)]
        found.append(about | {"words": words, "chances": chances})
    return found


@torch.no_grad()
def readings(model: Transformer, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
    """The chances of all tokens, by row of the target and by part of the decoder."""
    states = []
    with ExitStack() as hooks:
        for part in [part for name, part in model.named_modules() if STREAM.fullmatch(name)]:
            hook = part.register_forward_hook(lambda *given: states.append(given[2]))
            hooks.callback(hook.remove)
        model(src, tgt)
    return model.output(torch.cat(states)).softmax(-1).transpose(0, 1)


def parts() -> list[dict]:
    """The parts to point at: each one's place, name, purpose and shape, and the chapters that build it."""
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
    titles = {path.stem: prose(path).split("\n")[0] for path in chapters("[0-9]*")}
    return {stem[:2]: (f"{stem}.html", title.lstrip("# ")) for stem, title in titles.items()}


def sentence(n: int) -> dict:
    """Everything that the figure says and shows about one number."""
    one = one_page.run(n)
    english, german = one["words"]
    right, looks, states = [*number_words.german_tokens(n), "EOS"], [], []
    for k, ((word, p), (second, q), *_) in enumerate(one["best"]):
        weight, place = max((w, j) for j, w in enumerate(one["cm"][k].tolist()))
        where = f" (word {place + 1})" if english.count(english[place]) > 1 else ""
        looks.append(f"The row of “{german[k]}” looks most at “{english[place]}”{where} ({number(weight)}).")
        state = f"“{word}” gets {100 * p:.1f}%, “{second}” {100 * q:.1f}%."
        if word != right[k]:
            state += f" It should be “{right[k]}”: of 1,000 test numbers, the model gets only this one wrong."
        if word == "EOS":
            said, wanted = "".join(german[1:]), "".join(right[:-1])
            state += f" EOS ends the sentence: {said}." + f" Right is {wanted}." * (said != wanted)
        states.append(state)
    each = {"rows": one_page.row, "steps": one_page.step, "looks": one_page.look}
    layers = {}
    for name, draw in each.items():
        layers[name] = [drawn(draw, one, k, on=DECODER)[0] for k in range(one_page.STEPS)]
    layers["sentence"] = drawn(one_page.sentence, one)
    told = {"looks": looks, "states": states, "next": [best[0][0] for best in one["best"]]}
    return {"n": n, "words": english, "said": german, "layers": layers} | told


def drawn(draw: Callable, *given: object, on: slice = slice(None)) -> list[str]:
    """What a function draws on these panels, as SVG, with its thousands of rectangles shortened."""
    panels = [one_page.Panel(height) for height in one_page.HEIGHTS[on]]
    draw(*panels, *given)
    return [re.sub(RECTANGLE, r"M\1 \2H\3V\4H\1z", panel.svg()[1]) for panel in panels]


def whole() -> dict:
    """Chapter 0's figure."""
    runs = [sentence(n) for n in one_page.NUMBERS]
    return {"base": drawn(one_page.base), "parts": parts(), "chapters": pages(), "runs": runs}


# By the figure's name: the variable that its script reads, and the function that makes the data.
DATA = {"one_page": ("onePage", whole), "heads": ("headsData", heads), "lens": ("lensData", lens)}


def script(name: str) -> str:
    """The data of one live figure, as a script of its own."""
    variable, data = DATA[name]
    text = json.dumps(data(), ensure_ascii=False, separators=(",", ":"))
    return f"globalThis.lessons = globalThis.lessons || {{}};\nlessons.{variable} = {text};\n"
