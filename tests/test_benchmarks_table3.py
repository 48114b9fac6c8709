"""The ablations of Table 3 at a tiny size: every row can be built, and an interrupted table goes on."""

import json

import pytest
import torch

from benchmarks import table3
from benchmarks.table3 import ROWS, SHORT, Row, by_length, new_model, table, words
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import make_batch
from transformer_lessons.trainer.config import TrainingConfig

TINY = TrainingConfig(steps=2, batch_size=4, training_pairs=64, warmup_steps=1)
SIZES = {"d_model": 32, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1, "max_length": 13}
SMALL, OTHER = Row("C", "small", SIZES), Row("E", "other", {**SIZES, "position": "learned"})


def row(change: str) -> Row:
    return next(row for row in ROWS if row.change == change)


def parameters(change: str) -> int:
    return sum(p.numel() for p in new_model(row(change)).parameters())


def test_rows_have_different_names():
    assert len({row.change for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.change)
def test_every_row_builds_and_computes(row):
    batch = make_batch(number_words.pairs([7, 987_654]))
    logits = new_model(row)(batch.src, batch.tgt_in)
    assert logits.shape == (2, 12, 35)
    assert torch.isfinite(logits).all()


def test_a_row_changes_what_it_says():
    base = parameters("base")
    assert {parameters(f"h = {h}, d_k = {128 // h}") for h in (1, 2, 8, 16, 32)} == {base}
    # d_k narrows queries and keys alone, in six attentions, 128 + 1 numbers for each of h · (32 − d_k) outputs.
    assert base - parameters("d_k = 8") == 6 * 2 * 4 * (32 - 8) * 129
    assert parameters("learned positions") - base == 2 * 64 * 128
    assert new_model(row("dropout = 0.2")).config.dropout == 0.2
    large = new_model(row("learned positions, started large")).target_embedding.position.table
    sinusoids = new_model(row("base")).target_embedding.position.table
    assert large.norm().item() == pytest.approx(sinusoids.norm().item(), rel=0.05)
    assert row("N = 4, 250 steps").training == {"steps": 250}


def test_without_positions_the_order_of_the_source_is_lost():
    src, tgt = torch.tensor([[3, 4, 5]]), torch.tensor([[1]])
    turned = src.flip(1)
    for change, is_lost in (("no positions", True), ("base", False)):
        model = new_model(row(change)).eval()
        assert torch.allclose(model(src, tgt), model(turned, tgt), atol=1e-5) == is_lost


def test_the_committed_record_is_whole():
    record = json.loads(table3.RECORD.read_text())
    runs = sorted((entry["change"], entry["seed"]) for entry in record["runs"])
    assert runs == sorted((row.change, seed) for row in ROWS for seed in range(record["settings"]["seeds"]))


def test_words_counts_commas():
    assert [words(n) for n in (7, 421, 987_654)] == [1, 5, 12]


def test_lengths_are_those_beyond_training():
    found = by_length(new_model(SMALL), count=2)
    assert list(found) == [str(length) for length in range(SHORT, 13)]
    assert set(found.values()) <= {0.0, 0.5, 1.0}


def test_an_interrupted_table_goes_on(tmp_path, monkeypatch, capsys):
    path, trained, run = tmp_path / "table3.json", [], table3.run

    def counted(row, config, numbers):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append((row.change, config.seed))
        return run(row, config, numbers)

    monkeypatch.setattr(table3, "run", counted)
    with pytest.raises(KeyboardInterrupt):
        table(path, TINY, 2, 5, (OTHER, SMALL))
    assert len(json.loads(path.read_text())["runs"]) == 3

    trained.pop(), trained.pop(), trained.pop()
    record = table(path, TINY, 2, 5, (OTHER, SMALL))
    assert trained == [("small", 1)]  # the one that was missing
    assert record == json.loads(path.read_text())
    assert {(entry["change"], entry["seed"]) for entry in record["runs"]} == {
        (change, seed) for change in ("other", "small") for seed in (0, 1)
    }
    assert record["settings"]["training"]["steps"] == 2
    assert {"torch", "device"} <= set(record["made_with"])
    for entry in record["runs"]:
        assert 0 <= entry["exact_match"] <= 1 < entry["perplexity"]

    # The same run gives the same numbers; other settings belong into another table.
    again = table(tmp_path / "again.json", TINY, 1, 5, (SMALL,))["runs"][0]
    assert again["perplexity"] == pytest.approx(record["runs"][1]["perplexity"], rel=1e-3)
    trained.clear()
    assert [entry["change"] for entry in table(path, TINY, 2, 5, (OTHER,))["runs"]] == ["other"] * 2
    assert trained == []  # what is no row any more is left out
    record = json.loads(path.read_text())
    del record["settings"]["training"][
        "recompute"
    ]  # as if it had been measured before there was such a setting
    path.write_text(json.dumps(record))
    table(path, TINY, 2, 5, (OTHER,))
    assert trained == []
    assert len(table(path, TINY, 1, 7, (SMALL,))["runs"]) == 1
    assert trained == [("small", 0)]


def test_a_row_is_trained_as_it_says(monkeypatch):
    seen = []

    class Recorded(table3.Trainer):
        def __init__(self, model, batches, config):
            super().__init__(model, batches, config)
            seen.append((config, max(len(source) for source, _ in batches.pairs)))

    monkeypatch.setattr(table3, "Trainer", Recorded)
    short = Row("length", "short", SMALL.model, {"smoothing": 0.2}, only_short=True)
    entry = table3.run(short, TINY, number_words.held_out()[:3])
    ((config, longest),) = seen
    assert (config.smoothing, longest) == (0.2, SHORT)
    assert config.peak_learning_rate == TINY.peak_learning_rate * 2  # a quarter of the base's width
    assert "by_length" in entry


def test_the_command(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(table3, "table", lambda *arguments, **named: calls.append((arguments, named)))
    path = tmp_path / "table3.json"
    assert table3.main(["--steps", "7", "--seeds", "2", "--output", str(path)]) == 0
    assert calls == [((path, TrainingConfig(steps=7), 2), {"count": 500})]

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(table3, "table", interrupted)
    assert table3.main([]) == 130


@pytest.mark.full
def test_the_committed_record_can_be_measured_again(tmp_path):
    """All runs anew, three quarters of an hour: rows end where the record says, but for scatter."""
    record = json.loads(table3.RECORD.read_text())
    again = table(tmp_path / "table3.json", TrainingConfig(**record["settings"]["training"]), 3, count=500)
    for change in {entry["change"] for entry in record["runs"]}:
        means = [
            sum(entry["exact_match"] for entry in runs if entry["change"] == change) / 3
            for runs in (record["runs"], again["runs"])
        ]
        assert means[0] == pytest.approx(means[1], abs=0.15), change
