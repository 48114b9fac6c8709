"""Table 3 of the paper as ablations on number words: ``python -m benchmarks.table3``.

Each row changes one thing about the course's number-words model, in the proportions of the paper's rows where
a model this small has room for them. All rows train equally long, but for those that say "250 steps": that is the
course's own recipe, after which nearly all are nearly perfect. As in the paper's equation 3, the learning rate
goes with ``d_model^(−1/2)``. The rows "length" are about §3.5's remark on longer sequences; "no positions" is a
control.

Writes ``transformer_lessons/records/table3.json``, which the page "The paper, checked" shows, after every run;
when it is called again, it goes on with the runs that are missing.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.settings import complete
from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches, make_batch
from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.decoding import evaluating
from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.feed_forward import linear
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import Trainer, TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_number_words, in_chunks
from transformer_lessons.trainer.runs import NUMBER_WORDS_MODEL, versions
from transformer_lessons.variants import rotary_attention

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "table3.json"
SHORT = 9  # English tokens; the longest numbers have twelve
LONGER = {"steps": 250}  # the course's own recipe


@dataclass(frozen=True)
class Row:
    """One line of the table: what it changes, and what it is about."""

    group: str
    change: str
    model: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    d_k: int | None = None
    has_positions: bool = True
    is_rotary: bool = False
    position_scale: float = 1.0
    only_short: bool = False


def _heads(h: int) -> Row:
    return Row("A", f"h = {h}, d_k = {128 // h}", {"num_heads": h})


def _longer(row: Row) -> Row:
    return replace(row, change=f"{row.change}, {LONGER['steps']} steps", training={**row.training, **LONGER})


def _layers(n: int) -> Row:
    return Row("C", f"N = {n}", {"num_encoder_layers": n, "num_decoder_layers": n})


def _few(dropout: float) -> Row:
    return Row("D", f"1,000 pairs, dropout = {dropout}", {"dropout": dropout}, {"training_pairs": 1000})


def _short(position: str) -> Row:
    model = {} if position == "rotary" else {"position": position}
    row = Row("length", f"only short numbers, {position} positions", model, only_short=True)
    return _longer(replace(row, is_rotary=position == "rotary"))


BASE = Row("base", "base")
DROPOUT = Row("D", "dropout = 0.1", {"dropout": 0.1})
LEARNED = Row("E", "learned positions", {"position": "learned"})
NO_POSITIONS = Row("E", "no positions", has_positions=False)


ROWS = (
    BASE,
    *(_heads(h) for h in (1, 2, 8, 16, 32)),
    *(Row("B", f"d_k = {d_k}", d_k=d_k) for d_k in (4, 8, 16)),
    *(_layers(n) for n in (1, 4)),
    Row("C", "d_model = 64, d_k = 16", {"d_model": 64}),
    Row("C", "d_model = 256, d_k = 64", {"d_model": 256}),
    *(Row("C", f"d_ff = {d_ff}", {"d_ff": d_ff}) for d_ff in (128, 256, 1024)),
    DROPOUT,
    Row("D", "dropout = 0.2", {"dropout": 0.2}),
    *(Row("D", f"smoothing = {epsilon}", training={"smoothing": epsilon}) for epsilon in (0.0, 0.2)),
    LEARNED,
    # The package's start at N(0, 0.02²); 35 times that is the sinusoids' size, 1/√2 in the mean square.
    replace(LEARNED, change="learned positions, started large", position_scale=35.0),
    NO_POSITIONS,
    # Does a row end up worse, or does it only take longer?
    *(_longer(row) for row in (BASE, LEARNED, _layers(4), NO_POSITIONS)),
    *(_short(position) for position in ("sinusoidal", "learned", "rotary")),
    *(_longer(row) for row in (_layers(1), DROPOUT)),
    # Dropout is against overfitting: it gets its chance with data so few that they come sixteen times.
    *(_longer(row) for row in (_few(0.0), _few(0.1))),
)


class NarrowKeys(MultiHeadAttention):
    """Queries and keys of another width than values."""

    def __init__(self, d_model: int, num_heads: int, d_k: int):
        super().__init__(d_model, num_heads)
        self.num_heads = num_heads
        self.W_q, self.W_k = linear(d_model, num_heads * d_k), linear(d_model, num_heads * d_k)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Into heads, however wide."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def new_model(row: Row) -> Transformer:
    """An untrained model of that row, drawn from torch's current random state."""
    source, target = number_words.vocabularies()
    model = Transformer(TransformerConfig(len(source), len(target), **{**NUMBER_WORDS_MODEL, **row.model}))
    config = model.config
    for layer in [*model.encoder_layers, *model.decoder_layers]:
        for name in sorted({"self_attention", "cross_attention"} & dict(layer.named_children()).keys()):
            if row.d_k is not None:
                setattr(layer, name, NarrowKeys(config.d_model, config.num_heads, row.d_k))
        if row.is_rotary:
            layer.self_attention.attention = rotary_attention
    for embedding in (model.source_embedding, model.target_embedding):
        if row.position_scale != 1.0:
            embedding.position.table.data *= row.position_scale
        if not row.has_positions or row.is_rotary:
            embedding.position = None
    return model


def words(n: int) -> int:
    """How many English tokens a number has."""
    return len(number_words.english_tokens(number_words.english(n)))


def run(row: Row, config: TrainingConfig, numbers: Sequence[int]) -> dict:
    """Train one row from one seed, and measure it on numbers that it was not trained on."""
    config = replace(config, **row.training)
    torch.manual_seed(config.seed)
    model = new_model(row)
    rate = config.peak_learning_rate * (NUMBER_WORDS_MODEL["d_model"] / model.config.d_model) ** 0.5
    training = number_words.training_numbers(config.training_pairs, config.seed)
    if row.only_short:
        training = [n for n in training if words(n) <= SHORT]
    batches = Batches(number_words.pairs(training), config.batch_size, seed=config.seed)
    if not Trainer(model, batches, replace(config, peak_learning_rate=rate)).run(progress=False):
        raise KeyboardInterrupt
    return {
        "group": row.group,
        "change": row.change,
        "seed": config.seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        **measure(model, numbers),
        **({"by_length": by_length(model)} if row.only_short else {}),
    }


def measure(model: Transformer, numbers: Sequence[int]) -> dict:
    """Exact match of greedy translations, and perplexity per token (of the target's parts) of the right ones."""
    loss, tokens, right = 0.0, 0, 0
    with torch.no_grad(), evaluating(model):
        for chunk in in_chunks(numbers, 250):
            part = batch_loss(model, make_batch(number_words.pairs(chunk)), smoothing=0.0)
            loss, tokens, right = loss + part[0].item(), tokens + int(part[1]), right + int(part[2])
    return {
        "exact_match": exact_match(model, numbers),
        "perplexity": math.exp(loss / tokens),
        "token_accuracy": right / tokens,
    }


def exact_match(model: Transformer, numbers: Sequence[int]) -> float:
    """Of greedy translations."""
    return evaluate_number_words(model, *number_words.vocabularies(), numbers)["exact_match"]


def by_length(model: Transformer, count: int = 100) -> dict[str, float]:
    """Exact match on held-out numbers of each length in English tokens, from the longest trained on upwards."""
    of = {length: [n for n in number_words.held_out() if words(n) == length] for length in range(SHORT, 13)}
    return {str(length): exact_match(model, numbers[:count]) for length, numbers in of.items()}


def table(path: Path, config: TrainingConfig, seeds: int, count: int, rows: Sequence[Row] = ROWS) -> dict:
    """All runs: those that the record at `path` has already, and the others, each written when it is done."""
    settings = {"training": asdict(config), "seeds": seeds, "numbers": count}
    record = {"made_with": versions(torch.device("cpu")), "settings": settings, "runs": []}
    if path.exists():
        found = read_json(path)
        # Measured otherwise, or elsewhere, they could not stand in one table.
        if found["made_with"] == record["made_with"] and complete(found["settings"]) == settings:
            record = found
    done = {(entry["change"], entry["seed"]) for entry in record["runs"]}
    numbers = number_words.held_out()[:count]
    todo = [(row, seed) for seed in range(seeds) for row in rows if (row.change, seed) not in done]
    for row, seed in tqdm(todo, unit="run"):
        record["runs"].append(run(row, replace(config, seed=seed), numbers))
        write_json(path, record)
    return record


if __name__ == "__main__":
    table(RECORD, TrainingConfig(steps=100), seeds=3, count=500)
