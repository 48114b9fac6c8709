"""The training step, and runs that are killed, interrupted, resumed and refused."""

import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import assert_close

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches
from transformer_lessons.fast.kernels import FusedMultiHeadAttention
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import Trainer, TrainingConfig
from transformer_lessons.trainer import trainer as training
from transformer_lessons.trainer.config import PRECISIONS, resolve_precision
from transformer_lessons.trainer.trainer import stop_signal
from transformer_lessons.training import train

SIZES = {"d_model": 21, "num_heads": 3, "d_ff": 17, "num_encoder_layers": 1, "num_decoder_layers": 1}
SMALL = TrainingConfig(steps=60, batch_size=5, training_pairs=101, warmup_steps=7, checkpoint_every=10)


def small_model(**changes) -> Transformer:
    torch.manual_seed(0)
    source, target = number_words.vocabularies()
    return Transformer(TransformerConfig(len(source), len(target), **{"dropout": 0.0, **SIZES, **changes}))


def small_batches() -> Batches:
    return Batches(number_words.pairs(number_words.training_numbers(101, 0)), 5, seed=0)


def new_trainer(directory=None, *, dtype=torch.float32, dropout=0.0, **changes) -> Trainer:
    model = small_model(dropout=dropout).to(dtype)
    return Trainer(model, small_batches(), replace(SMALL, **changes), directory)


def same_weights(one: Trainer, other: Trainer) -> bool:
    """Whether all weights are equal bit for bit."""
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# ---- The step


@pytest.mark.parametrize(("clip_norm", "decay"), [(1.0, 0.01), (None, 0.7)])
def test_steps_are_those_of_the_chapters_loop(clip_norm, decay):
    """`test_training` compares that loop with steps by hand."""
    ours = new_trainer(dtype=torch.float64, clip_norm=clip_norm, weight_decay=decay)
    theirs, batch = small_model().double(), small_batches()[0]
    is_right = (theirs(batch.src, batch.tgt_in).argmax(-1) == batch.tgt_out)[batch.tgt_out != 0]
    how = {"weight_decay": decay, "clip_norm": clip_norm or math.inf}
    batches = [small_batches()[step] for step in range(3)]
    losses = train(theirs, batches, SMALL.learning_rate, 3, **how)
    records = [ours.train_step() for _ in range(3)]
    assert [record["loss"] for record in records] == pytest.approx(losses, rel=1e-9)
    assert records[0]["accuracy"] == pytest.approx(is_right.double().mean().item())
    assert records[0]["gradient_norm"] > 1  # otherwise nothing would be clipped
    assert [one["learning_rate"] for one in records] == [SMALL.learning_rate(step) for step in (1, 2, 3)]
    for a, b in zip(ours.model.parameters(), theirs.parameters(), strict=True):
        assert_close(a, b, tolerance=1e-9)


@pytest.mark.parametrize(
    "changes", [{"accumulate": 3, "recompute": True}, {"accumulate": 5}, {"plain": True}]
)
def test_how_a_step_is_computed_changes_no_result(changes):
    """The five pairs have unequal lengths, so that averaging the averages of parts would be noticed."""
    whole, other = (new_trainer(dtype=torch.float64, **each) for each in ({}, changes))
    for _ in range(5):
        expected, record = whole.train_step(), other.train_step()
        for name in ("step", "accuracy", "learning_rate"):
            assert record[name] == expected[name]
        for name in ("loss", "gradient_norm"):
            assert math.isclose(record[name], expected[name], rel_tol=1e-10)
    for a, b in zip(other.model.parameters(), whole.model.parameters(), strict=True):
        assert_close(a, b, tolerance=1e-9)


def test_plain_is_the_chapters_computation(monkeypatch):
    """No fused kernels, and all logits at once; even if the model was accelerated before."""
    model, asked = new_trainer().model, []
    assert any(isinstance(part, FusedMultiHeadAttention) for part in model.modules())
    loss = lambda *given, **how: asked.append(given[0].shape) or label_smoothed_loss(*given, **how)  # noqa: E731
    monkeypatch.setattr(training, "label_smoothed_loss", loss)
    Trainer(model, small_batches(), replace(SMALL, plain=True)).train_step()
    assert not any(isinstance(part, FusedMultiHeadAttention) for part in model.modules())
    assert asked == [(*small_batches()[0].tgt_in.shape, model.config.target_vocab_size)]


def test_a_model_that_was_evaluated_is_trained_with_dropout_again():
    trainer = new_trainer(dropout=0.3)
    trainer.model.eval()
    trainer.train_step()
    assert trainer.model.training


INFINITE = {
    "the loss was nan": lambda bias: bias.data.fill_(math.nan),
    "the gradient was (nan|inf)": lambda bias: bias.register_hook(lambda gradient: gradient * math.inf),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("complaint", INFINITE)
def test_a_loss_or_gradient_that_is_not_finite_stops_before_weights_change(complaint, precision):
    """Clipping would make the whole gradient NaN; in float16 such a step is skipped instead."""
    trainer = new_trainer(precision=precision)
    INFINITE[complaint](trainer.model.encoder_layers[0].feed_forward.W_2.bias)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    with pytest.raises(FloatingPointError, match=f"step 1: {complaint}; lower"):
        trainer.train_step()
    torch.testing.assert_close(trainer.model.state_dict(), before, rtol=0, atol=0, equal_nan=True)


# ---- Settings


def test_learning_rate_reaches_its_peak_and_every_step_learns():
    config = TrainingConfig()
    rates = [config.learning_rate(step) for step in range(1, config.steps + 1)]
    assert max(rates) == rates[config.warmup_steps - 1] == config.peak_learning_rate
    assert min(rates) > 0
    half = config.warmup_steps + (config.steps + 1 - config.warmup_steps) // 2
    assert rates[half - 1] == pytest.approx(config.peak_learning_rate / 2, rel=0.02)  # by a cosine
    assert replace(config, steps=3).learning_rate(1) == config.peak_learning_rate  # warm-up: a third of 3
    assert replace(config, steps=1).learning_rate(1) > 0
    assert config.learning_rate(config.steps + 1) == 0


def test_the_inverse_root_does_not_depend_on_the_last_step():
    config = TrainingConfig(schedule="inverse_sqrt", peak_learning_rate=0.7, warmup_steps=100)
    rates = {step: config.learning_rate(step) for step in (0, 1, 50, 100, 400)}
    assert rates == pytest.approx({0: 0.007, 1: 0.007, 50: 0.35, 100: 0.7, 400: 0.35})
    assert replace(config, steps=3).learning_rate(400) == rates[400]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"steps": 0}, "steps: expected 1 or more, got 0"),
        ({"seed": -1}, "seed: expected 0 or more, got -1"),
        ({"seed": 2**32}, "seed: expected below 4,294,967,296, got 4294967296"),
        ({"tokens": "9"}, "tokens: expected int, got '9'"),
        ({"clip_norm": math.nan}, "clip_norm: expected 0 or more, got nan"),
        ({"smoothing": 1}, "smoothing: expected below 1, got 1"),
        ({"compile": "yes"}, "compile: expected bool, got 'yes'"),
        ({"precision": "half"}, "precision: expected one of auto, float32, bfloat16, float16, got 'half'"),
        ({"schedule": "inverse_sqrt", "warmup_steps": 0}, "warmup_steps: expected 1 or more with"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_settings_are_refused_in_one_line(changes, complaint):
    with pytest.raises(ValueError, match="^" + complaint):
        TrainingConfig(**changes)


# ---- Resuming


def assert_goes_on(resumed: Trainer, trainer: Trainer) -> None:
    """`resumed` goes on from a checkpoint of `trainer` as `trainer` itself does, bit for bit."""
    for _ in range(3):
        trainer.train_step()
    trainer.save()
    expected = [trainer.train_step()["loss"] for _ in range(2)]
    torch.manual_seed(97)
    resumed.restore()
    assert [resumed.train_step()["loss"] for _ in range(2)] == expected
    assert same_weights(resumed, trainer)


@pytest.mark.parametrize("changes", [{}, {"recompute": True}, {"shard": True}])
def test_a_resumed_trainer_goes_on_with_the_same_bits_and_dropout(tmp_path, changes):
    assert_goes_on(new_trainer(tmp_path, dropout=0.3, **changes), new_trainer(tmp_path, dropout=0.3))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from test_trainer import new_trainer
new_trainer(Path(sys.argv[1]), dropout=0.1).run(progress=False)
"""


def written(directory) -> str:
    path = directory / "metrics.jsonl"
    return path.read_text() if path.exists() else ""


def read_metrics(directory) -> list[dict]:
    return [json.loads(line) for line in written(directory).splitlines()]


def test_killed_and_resumed_a_run_ends_with_the_same_bits(tmp_path, repetition):
    (here := tmp_path / "killed").mkdir()
    with subprocess.Popen([sys.executable, "-c", KILLED, str(here)]) as process:
        # Only complete lines: the last one may be half written.
        while written(here).count("\n") < 23 + repetition % 30:
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    resumed = new_trainer(here, dropout=0.1)
    resumed.restore()
    assert resumed.step >= 20
    assert resumed.step % 10 == 0
    assert resumed.run(progress=False)
    expected = new_trainer(dropout=0.1)
    assert expected.run(progress=False)
    assert same_weights(resumed, expected)
    assert [record["step"] for record in read_metrics(here)] == [*range(1, 61)]
    for a, b in zip(read_metrics(here), expected.history, strict=True):
        assert {**a, "tokens_per_second": 0} == {**b, "tokens_per_second": 0}


def test_a_second_interrupt_raises_and_outside_the_main_thread_nothing_stops():
    with stop_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    seen = []

    def call():  # as a notebook's server may
        with stop_signal() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_run_is_the_same_as_step_by_step_and_its_batches_come_from_a_thread():
    ahead, one_by_one = (new_trainer(dropout=0.3, steps=7) for _ in "ab")
    names, make = [], ahead.prepare
    ahead.prepare = lambda step: names.append(threading.current_thread().name) or make(step)
    torch.manual_seed(3)
    assert ahead.run(progress=False)
    torch.manual_seed(3)
    losses = [one_by_one.train_step()["loss"] for _ in range(7)]
    assert [record["loss"] for record in ahead.history] == losses  # to the bit
    assert same_weights(ahead, one_by_one)
    assert len(names) == 8  # the last one is not used
    assert all(name.startswith("next batch") for name in names)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("next batch")]


def test_on_a_gpu_a_run_learns_in_every_precision(request):
    if not torch.cuda.is_available():
        (pytest.fail if request.config.getoption("--full") else pytest.skip)("no CUDA device here")
    for precision in PRECISIONS:
        trainer = Trainer(small_model().cuda(), small_batches(), replace(SMALL, precision=precision))
        assert all(ids.is_pinned() for part in trainer.prepare(0)[1] for ids in part)
        assert trainer.run(progress=False)
        assert trainer.history[-1]["loss"] < 0.9 * trainer.history[0]["loss"]


def test_the_progress_bar_shows_steps_loss_and_speed(capsys):
    trainer = new_trainer(steps=7)
    trainer.history = [trainer.train_step() for _ in range(2)]
    trainer.run()
    first, *_, last = capsys.readouterr().err.split("\r")[1:]
    assert " 2/7 " in first  # a resumed run begins where it was
    assert " 7/7 " in last
    assert "loss {loss:.3f}, accuracy {accuracy:.1%}".format(**trainer.history[-1]) in last
    assert re.search(r"(step/s|s/step).*\d tokens/s", last)
    new_trainer(steps=3).run(progress=False)
    assert capsys.readouterr().err == ""


# ---- Precision and compilation


@pytest.mark.parametrize(("precision", "close"), [("bfloat16", 0.03), ("float16", 0.005)])
def test_lower_precision_computes_the_same_gradients_roughly(precision, close):
    exact, lower, seen = new_trainer(), new_trainer(precision=precision), []
    lower.model.encoder_layers[0].feed_forward.register_forward_hook(
        lambda *given: seen.append(given[-1].dtype)
    )
    expected, record = exact.train_step(), lower.train_step()
    assert seen == [getattr(torch, precision)]
    assert math.isclose(record["loss"], expected["loss"], rel_tol=close)
    assert math.isclose(record["gradient_norm"], expected["gradient_norm"], rel_tol=close)
    assert {parameter.dtype for parameter in lower.model.parameters()} == {torch.float32}


def test_a_step_that_overflows_is_skipped_and_the_scale_halved_also_when_resumed(tmp_path):
    trainer, resumed = (new_trainer(tmp_path, precision="float16") for _ in "ab")
    trainer.train_step()
    trainer.scaler.update(2.0**60)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    record = trainer.train_step()
    assert record["gradient_norm"] is None
    assert math.isfinite(record["loss"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())
    assert trainer.scaler.get_scale() == 2.0**59
    trainer.save()
    resumed.restore()
    assert resumed.scaler.get_scale() == 2.0**59


@pytest.mark.parametrize(
    ("device", "capability", "dtype"),
    [
        ("cuda", (8, 0), torch.bfloat16),
        ("cuda", (7, 5), torch.float16),  # a T4
        ("cpu", None, torch.float32),
    ],
)
def test_automatic_precision_depends_on_the_device(monkeypatch, device, capability, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve_precision("auto", torch.device(device)) == dtype
    assert resolve_precision("float16", torch.device(device)) == torch.float16
    assert resolve_precision("float32", torch.device(device)) == torch.float32


# ---- Whole runs


def trained(folder: Path, *options: str) -> dict:
    command = ["-m", "transformer_lessons", "train", "--device", "cpu", "--output", str(folder), *options]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return json.loads((folder / "record.json").read_text())


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_number_words_are_learned(seed, tmp_path):
    record = trained(tmp_path, "--seed", str(seed))
    assert record["steps"] == TrainingConfig().steps
    assert record["n"] == 1000
    assert record["exact_match"] >= 0.99
