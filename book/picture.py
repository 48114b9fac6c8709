"""The README's picture: where the packaged model looks while it translates (``python -m book.picture``)."""

from pathlib import Path

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import make_batch
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.tools.drawing import Canvas
from transformer_lessons.tools.svg import PALETTE
from transformer_lessons.trainer.checkpoints import load_model

PICTURE = Path(__file__).parent / "_static" / "cross_attention.svg"
NUMBER = 421
LIGHT, DARK = ("".join(f"--{role}:{colours[mode]};" for role, colours in PALETTE.items()) for mode in (0, 1))
STYLE = f"svg{{{LIGHT}background:var(--paper);fill:var(--ink);font-family:system-ui,sans-serif}}"
STYLE += f"@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}"


def main() -> None:
    """Draw the last decoder layer's cross-attention for one number, averaged over heads."""
    model, _, _ = load_model()
    maps = attention_maps(model, *make_batch(number_words.pairs([NUMBER]))[:2])
    weights = maps[f"decoder_layers.{model.config.num_decoder_layers - 1}.cross_attention"][0].mean(dim=0)
    german = number_words.german_tokens(NUMBER)
    english = number_words.english_tokens(number_words.english(NUMBER))
    canvas = Canvas(190)
    cells = weights[:-1].tolist()
    shape = canvas.matrix(84, 56, cells, weights=True, cell=(50, 24), digits=2)
    canvas.label(shape, german, english, ("decoder", "encoder"), ("writes", "reads"))
    view, content = canvas.svg("map")
    size = f'viewBox="{view}" width="{1.5 * canvas.width:g}" height="{1.5 * canvas.height:g}"'
    xmlns = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    PICTURE.write_text(f"<svg {xmlns} {size}><style>{STYLE}</style>{content}</svg>\n", encoding="utf-8")


if __name__ == "__main__":
    main()
