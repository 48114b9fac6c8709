"""The README's picture: where the packaged model looks while it translates (``python -m book.picture``)."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import make_batch
from transformer_lessons.tools import plotting
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.trainer.checkpoints import load_model

PICTURE = Path(__file__).parent / "_static" / "cross_attention.svg"
NUMBER = 421


def main() -> None:
    """Draw the last decoder layer's cross-attention for one number, averaged over heads."""
    model, _, _ = load_model()
    batch = make_batch(number_words.pairs([NUMBER]))
    maps = attention_maps(model, batch.src, batch.tgt_in)
    weights = maps[f"decoder_layers.{model.config.num_decoder_layers - 1}.cross_attention"][0].mean(dim=0)
    plotting.use_style()
    plotting.attention_map(
        weights[:-1],
        number_words.german_tokens(NUMBER),
        number_words.english_tokens(number_words.english(NUMBER)),
        digits=2,
    )
    figure = plotting.plt.gcf()
    figure.set_size_inches(5, 4)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
