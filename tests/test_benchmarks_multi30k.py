"""The benchmark on captions, at a tiny size: what its record says, and what it keeps."""

import json
import math

import pytest
from test_tasks import captions as captions  # fixtures, asked for by name
from test_tasks import folder as folder

from benchmarks import multi30k as benchmark
from transformer_lessons import records
from transformer_lessons.data.batches import Batches
from transformer_lessons.trainer.tasks import Multi30k

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.fixture
def run(request, tmp_path):
    """The command with a small model, its output in a folder of its own; returns the record."""
    request.getfixturevalue("captions")

    def command(steps: int, *more: str, expected: int = 0) -> dict:
        config, output = tmp_path / "small.json", tmp_path / "record.json"
        training = {"tokens": 300, "warmup_steps": 5, "steps": steps}
        config.write_text(json.dumps({"task": "multi30k", "model": SIZES, "training": training}))
        given = ["--config", str(config), "--output", str(output), "--runs", str(tmp_path / "runs")]
        assert benchmark.main([*given, "--device", "cpu", *more]) == expected
        return json.loads(output.read_text())

    return command


def test_a_record_says_what_was_measured_and_where(run, capsys):
    record = run(60, "--seeds", "2")
    (entry,) = record["entries"]
    assert {"device", "torch", "threads"} <= set(entry["made_with"])
    assert entry["settings"]["model"]["d_model"] == 16
    assert entry["data"]["pairs"] == 120
    assert 0 <= entry["data"]["padding"] < 1
    assert 0 <= entry["data"]["padding_of_64_shuffled_pairs"] < 1
    assert [one["seed"] for one in entry["runs"]] == [0, 1]
    for one in entry["runs"]:
        assert set(one["results"]) == {"greedy", "beam of 5"}
        assert [found["beam_size"] for found in one["results"].values()] == [1, 5]
        assert one["seconds"]["training"] > 0
        assert [point["step"] for point in one["curve"]] == [*range(1, 61)]
        assert one["curve"][-1]["loss"] < one["curve"][0]["loss"]
    assert capsys.readouterr().out.count("BLEU greedy") == 2

    # What is there is not measured again, unless that is asked for; other settings make another entry.
    assert run(60, "--seeds", "2") == record
    assert [one["seed"] for one in run(60, "--again")["entries"][0]["runs"]] == [0]
    assert [entry["settings"]["training"]["steps"] for entry in run(61)["entries"]] == [60, 61]


def test_what_was_interrupted_goes_on(run, monkeypatch):
    measure, measured = benchmark.measure, []

    def interrupted(task, tokenisers, sizes, config, device, directory):
        if len(measured) == 1:
            raise KeyboardInterrupt
        measured.append(config.seed)
        return measure(task, tokenisers, sizes, config, device, directory)

    monkeypatch.setattr(benchmark, "measure", interrupted)
    first = run(7, "--seeds", "3", expected=130)["entries"][0]["runs"]
    assert [one["seed"] for one in first] == [0]
    monkeypatch.setattr(benchmark, "measure", measure)
    (entry,) = run(7, "--seeds", "3")["entries"]
    assert [one["seed"] for one in entry["runs"]] == [0, 1, 2]
    assert entry["runs"][0] == first[0]


def test_a_long_curve_is_thinned():
    history = [{"step": n, "loss": float(n), "accuracy": n / 1000} for n in range(1, 121)]
    found = benchmark.curve(history)
    assert [point["step"] for point in found] == [*range(2, 121, 2)]
    assert math.isclose(found[0]["loss"], 1.5)


def test_padding_by_hand():
    """Two pairs of 3 + 1 and 1 + 2 tokens, with end marks 9 in all, of 2 · 3 + 2 · 3 places."""
    batches = Batches([([5, 6, 7], [8]), ([5], [8, 9])], 2, seed=0)
    assert benchmark.padding(batches) == 0.25


def test_the_record_is_of_the_tasks_own_settings():
    """What chapter 16 shows is what `lessons train --task multi30k` does."""
    entry = records.read("multi30k")["entries"][0]
    task = Multi30k()
    assert entry["settings"]["model"] == task.sizes
    assert entry["settings"]["training"]["steps"] == task.training.steps
    assert entry["settings"]["training"]["tokens"] == task.training.tokens
    assert entry["data"]["pairs"] == 29_000
