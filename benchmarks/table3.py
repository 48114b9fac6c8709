"""Table 3 of the paper as ablations on number words: ``python -m benchmarks.table3``.

Each row changes one thing about the course's number-words model, in the proportions of the paper's rows where
a model this small has room for them. All rows train equally long, except those labelled "250 steps": the
model that comes with the package was trained that long, and then nearly all are nearly perfect. As in the
paper's equation 3, the learning rate is proportional to ``d_model^(−1/2)``. The rows "length" test §3.5's
remark on longer sequences; "no positions" is a control.

Writes ``transformer_lessons/records/table3.json``, which the page "The paper, checked" shows; half an hour.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product

import torch

from benchmarks.experiments import run_all
from benchmarks.measuring import program, write
from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches, make_batch
from transformer_lessons.decoding import evaluating
from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.feed_forward import linear
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import Trainer, TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_number_words
from transformer_lessons.trainer.tasks import NumberWords
from transformer_lessons.variants import rotary_attention

SHORT = 9  # English tokens; the longest numbers have twelve
CONFIG, SEEDS, NUMBERS = TrainingConfig(steps=100, batch_size=64, warmup_steps=80), 3, 500


@dataclass(frozen=True)
class Row:
    """One row of the table: its group, its label, and what it changes."""

    group: str
    change: str
    model: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    d_k: int | None = None
    position: str | None = "sinusoidal"  # or "learned", "rotary", None
    position_scale: float = 1.0
    only_short: bool = False


AS_LONG = (
    Row("base", "base"),
    *(Row("A", f"h = {h}, d_k = {128 // h}", {"num_heads": h}) for h in (1, 2, 8, 16, 32)),
    *(Row("B", f"d_k = {d_k}", d_k=d_k) for d_k in (4, 8, 16)),
    *(Row("C", f"N = {n}", {"num_encoder_layers": n, "num_decoder_layers": n}) for n in (1, 4)),
    *(Row("C", f"d_model = {width}, d_k = {width // 4}", {"d_model": width}) for width in (64, 256)),
    *(Row("C", f"d_ff = {d_ff}", {"d_ff": d_ff}) for d_ff in (128, 256, 1024)),
    *(Row("D", f"dropout = {p}", {"dropout": p}) for p in (0.1, 0.2)),
    *(Row("D", f"smoothing = {epsilon}", training={"smoothing": epsilon}) for epsilon in (0.0, 0.2)),
    Row("E", "learned positions", position="learned"),
    # The package's start from N(0, 0.02²); 35 times that is the sinusoids' size, a root mean square of 1/√2.
    Row("E", "learned positions, started large", position="learned", position_scale=35.0),
    Row("E", "no positions", position=None),
)
LONG = {"steps": 250}  # as the packaged model: does a row end up worse, or does it only take longer?
AGAIN = ("base", "learned positions", "N = 1", "N = 4", "no positions", "dropout = 0.1")
ROWS = (
    *AS_LONG,
    *(replace(x, change=f"{x.change}, 250 steps", training=LONG) for x in AS_LONG if x.change in AGAIN),
    *(
        Row("length", f"only short numbers, {x} positions, 250 steps", {}, LONG, position=x, only_short=True)
        for x in ("sinusoidal", "learned", "rotary")
    ),
    # Dropout works against overfitting: it gets its chance with so few pairs that each is seen 16 times.
    *(
        Row("D", f"1,000 pairs, dropout = {p}, 250 steps", {"dropout": p}, {"training_pairs": 1000, **LONG})
        for p in (0.0, 0.1)
    ),
)


class NarrowKeys(MultiHeadAttention):
    """An attention whose queries and keys have another width than its values."""

    def __init__(self, d_model: int, num_heads: int, d_k: int):
        super().__init__(d_model, num_heads)
        self.num_heads = num_heads
        self.W_q, self.W_k = linear(d_model, num_heads * d_k), linear(d_model, num_heads * d_k)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """The input, split into heads of any width."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def new_model(row: Row) -> Transformer:
    """An untrained model for a row, initialised from torch's current random state."""
    vocabularies, is_learned = map(len, number_words.vocabularies()), row.position == "learned"
    changed = {**row.model, "position": "learned"} if is_learned else row.model
    model = Transformer(TransformerConfig(*vocabularies, **{**NumberWords.sizes, **changed}))
    config = model.config
    for layer in [*model.encoder_layers, *model.decoder_layers]:
        for name in ("cross_attention", "self_attention"):
            if row.d_k and hasattr(layer, name):
                setattr(layer, name, NarrowKeys(config.d_model, config.num_heads, row.d_k))
        if row.position == "rotary":
            layer.self_attention.attention = rotary_attention
    for embedding in (model.source_embedding, model.target_embedding):
        if is_learned:
            embedding.position.table.data *= row.position_scale
        elif row.position != "sinusoidal":
            embedding.position = None
    return model


def words(n: int) -> int:
    """The number of English tokens of a number."""
    return len(number_words.english_tokens(number_words.english(n)))


def run(number: int, seed: int) -> dict:
    """Train one row from one seed, and measure it on numbers that it was not trained on."""
    row = ROWS[number]
    config = replace(CONFIG, **row.training, seed=seed)
    torch.manual_seed(seed)
    model = new_model(row)
    rate = config.peak_learning_rate * (NumberWords.sizes["d_model"] / model.config.d_model) ** 0.5
    training = number_words.training_numbers(config.training_pairs, seed)
    if row.only_short:
        training = [n for n in training if words(n) <= SHORT]
    batches = Batches(number_words.pairs(training), config.batch_size, seed=seed)
    Trainer(model, batches, replace(config, peak_learning_rate=rate)).run(progress=False)
    numbers = number_words.held_out()[:NUMBERS]
    with torch.no_grad(), evaluating(model):
        loss, tokens, _ = batch_loss(model, make_batch(number_words.pairs(numbers)), smoothing=0.0)
    return {
        "group": row.group,
        "change": row.change,
        "seed": seed,
        "exact_match": exact_match(model, numbers),
        "perplexity": math.exp(loss / tokens),  # per token, which is a part of a word
        **({"by_length": by_length(model)} if row.only_short else {}),
    }


def exact_match(model: Transformer, numbers: Sequence[int]) -> float:
    """The exact match of greedy translations."""
    return evaluate_number_words(model, *number_words.vocabularies(), numbers)["exact_match"]


def by_length(model: Transformer) -> dict[str, float]:
    """The exact match on 100 held-out numbers by length in English tokens, from the longest trained on up."""
    of = {length: [n for n in number_words.held_out() if words(n) == length] for length in range(SHORT, 13)}
    return {str(length): exact_match(model, numbers[:100]) for length, numbers in of.items()}


if __name__ == "__main__":
    program("table3", __doc__).parse_args()
    found = run_all(run, product(range(len(ROWS)), range(SEEDS)))
    settings = {"training": asdict(CONFIG), "seeds": SEEDS, "numbers": NUMBERS}
    write("table3", settings=settings, runs=[entry for runs in found.values() for entry in runs])
