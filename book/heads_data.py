"""What the live figure of chapter 7 shows: the build writes ``_static/live/heads.data.js``."""

import json
from pathlib import Path

import torch

from transformer_lessons.data import number_words
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.trainer import checkpoints

FILE = "heads.data.js"
NUMBERS = 421, 121, 987, 1021, 43001  # five English words and six German tokens each
KINDS = {
    "cross": "decoder_layers.{}.cross_attention",
    "encoder": "encoder_layers.{}.self_attention",
    "decoder": "decoder_layers.{}.self_attention",
}


def run(n: int) -> dict:
    """The words of a number, and where all heads look, in percent, while the right German words come in."""
    model, source, target = checkpoints.load_model()
    english = number_words.english_tokens(number_words.english(n))
    german = number_words.german_tokens(n)
    src = torch.tensor([source.encode(english)])
    tgt = torch.tensor([[model.config.bos_id, *target.encode(german)]])
    found = attention_maps(model, src, tgt)
    maps = {
        kind: [(100 * found[name.format(layer)][0]).round().int().tolist() for layer in (0, 1)]
        for kind, name in KINDS.items()
    }
    return {"n": n, "english": english, "german": ["BOS", *german], "maps": maps}


def write(outdir: Path) -> None:
    """Write the script into the folder of live figures."""
    text = json.dumps([run(n) for n in NUMBERS], separators=(",", ":"), ensure_ascii=False)
    folder = Path(outdir) / "_static" / "live"
    folder.mkdir(parents=True, exist_ok=True)
    script = f"globalThis.lessons = globalThis.lessons || {{}};\nlessons.headsData = {text};\n"
    (folder / FILE).write_text(script, encoding="utf-8")
