"""The training step, and runs that are killed, interrupted, resumed and refused."""

import io
import json
import math
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace

import pytest
import torch
from conftest import assert_close
from safetensors.torch import load_file

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batch, Batches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import (
    Trainer,
    TrainingConfig,
    average_checkpoints,
    snapshots,
    split,
)
from transformer_lessons.trainer import trainer as training
from transformer_lessons.trainer.config import PRECISIONS, chosen_precision
from transformer_lessons.trainer.interruption import stop_signal

SIZES = {"d_model": 21, "num_heads": 3, "d_ff": 17, "num_encoder_layers": 1, "num_decoder_layers": 1}
SMALL = TrainingConfig(steps=60, batch_size=5, training_pairs=101, warmup_steps=7, checkpoint_every=10)


def small_model(**changes) -> Transformer:
    torch.manual_seed(0)
    source, target = number_words.vocabularies()
    return Transformer(TransformerConfig(len(source), len(target), **{"dropout": 0.0, **SIZES, **changes}))


def small_batches() -> Batches:
    return Batches(number_words.pairs(number_words.training_numbers(101, 0)), 5, seed=0)


def test_a_step_is_adamw_with_clipped_gradients_of_the_mean():
    ours = Trainer(small_model().double(), small_batches(), SMALL)
    theirs = small_model().double()
    optimizer = torch.optim.AdamW(theirs.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    for step in range(1, 4):
        batch = small_batches()[step - 1]
        real = batch.tgt_out != 0
        log_p = theirs(batch.src, batch.tgt_in)[real].log_softmax(-1)
        # The smoothed target written out: ε / (V − 1) everywhere but on padding, and 1 − ε more on the answer.
        q = torch.full_like(log_p, 0.1 / (log_p.size(-1) - 1))
        q[:, 0] = 0.0
        q[range(len(q)), batch.tgt_out[real]] += 0.9
        loss = -(q * log_p).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = SMALL.learning_rate(step)
        optimizer.step()
        record = ours.train_step()
        assert record["step"] == step
        assert record["learning_rate"] == SMALL.learning_rate(step)
        assert math.isclose(record["loss"], loss.item(), rel_tol=1e-9)
        assert math.isclose(record["gradient_norm"], norm.item(), rel_tol=1e-9)
        accuracy = (log_p.argmax(-1) == batch.tgt_out[real]).double().mean().item()
        assert math.isclose(record["accuracy"], accuracy, abs_tol=1e-12)
    for a, b in zip(ours.model.parameters(), theirs.parameters(), strict=True):
        assert_close(a, b, tolerance=1e-9)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_accumulated_gradients_are_those_of_the_whole_batch(parts):
    # Five pairs of unequal length in parts of unequal size: any averaging of averages would show.
    whole = Trainer(small_model().double(), small_batches(), SMALL)
    in_parts = Trainer(small_model().double(), small_batches(), replace(SMALL, accumulate=parts))
    for _ in range(3):
        expected, record = whole.train_step(), in_parts.train_step()
        for name in ("step", "accuracy", "learning_rate"):
            assert record[name] == expected[name]
        for name in ("loss", "gradient_norm"):
            assert math.isclose(record[name], expected[name], rel_tol=1e-12)
        for a, b in zip(in_parts.model.parameters(), whole.model.parameters(), strict=True):
            assert_close(a.grad, b.grad, tolerance=1e-13)
    for a, b in zip(in_parts.model.parameters(), whole.model.parameters(), strict=True):
        assert_close(a, b, tolerance=1e-9)


def test_weight_decay_is_decoupled_from_the_gradient():
    """With decay λ a weight θ ends lr · λ · θ lower (Loshchilov and Hutter 2019)."""
    start = small_model().double()
    plain, decayed = (
        Trainer(small_model().double(), small_batches(), replace(SMALL, weight_decay=decay))
        for decay in (0.0, 0.7)
    )
    rate = plain.train_step()["learning_rate"]
    assert decayed.train_step()["learning_rate"] == rate > 0
    models = (trainer.model.parameters() for trainer in (plain, decayed))
    for before, a, b in zip(start.parameters(), *models, strict=True):
        assert_close(a - b, rate * 0.7 * before)


def test_a_model_that_was_evaluated_is_trained_with_dropout_again():
    trainer = Trainer(small_model(dropout=0.3), small_batches(), SMALL)
    trainer.model.eval()
    trainer.train_step()
    assert trainer.model.training


def test_tokens_are_counted_by_the_second(monkeypatch):
    ticks = iter([1000.0, 1000.25])
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    record = Trainer(small_model(), small_batches(), SMALL).train_step()
    assert record["tokens_per_second"] == 4 * int((small_batches()[0].tgt_out != 0).sum())


@pytest.mark.parametrize(("parts", "sizes"), [(1, [5]), (2, [3, 2]), (3, [2, 2, 1]), (7, [1] * 5)])
def test_split_loses_nothing(parts, sizes):
    batch = small_batches()[0]
    pieces = split(batch, parts)
    assert [len(piece.src) for piece in pieces] == sizes
    for name in batch._fields:
        assert torch.equal(torch.cat([getattr(piece, name) for piece in pieces]), getattr(batch, name))


def test_a_batch_with_a_side_too_short_is_not_split():
    """Or the pairs without a target would be left out without a word."""
    src, tgt_in, tgt_out = small_batches()[0]
    with pytest.raises(ValueError, match="shorter"):
        split(Batch(src, tgt_in[:3], tgt_out[:3]), 5)


def trained(directory, **changes) -> Trainer:
    trainer = Trainer(small_model(), small_batches(), replace(SMALL, **changes), directory)
    assert trainer.run(progress=False)
    return trainer


def test_snapshots_are_the_latest_weights(tmp_path):
    trainer = trained(tmp_path, steps=25, snapshots=2)
    assert [path.name for path in snapshots(tmp_path)] == ["weights-000020.pt", "weights-000025.pt"]
    state = torch.load(snapshots(tmp_path)[-1])
    assert state.keys() == trainer.model.state_dict().keys()
    assert all(torch.equal(state[name], x) for name, x in trainer.model.state_dict().items())


def test_no_snapshots_unless_asked(tmp_path):
    trained(tmp_path, steps=11)
    assert snapshots(tmp_path) == []


def test_the_average_of_checkpoints(tmp_path):
    trainer = trained(tmp_path, steps=30, snapshots=3)
    paths = snapshots(tmp_path)
    states = [torch.load(path) for path in paths]
    mean = average_checkpoints(paths)
    for name, tensor in mean.items():
        stacked = torch.stack([state[name].double() for state in states])
        assert torch.equal(tensor, stacked.mean(0).float())
        assert stacked.std(0).max() > 0
    model = small_model()
    model.load_state_dict(mean)
    assert model.output.weight is model.target_embedding.token.weight
    assert torch.equal(model.output.weight, mean["output.weight"])
    # One checkpoint is its own mean, also in the form that resuming reads.
    alone = average_checkpoints([tmp_path / "checkpoint.pt"])
    assert all(torch.equal(alone[name], x) for name, x in trainer.model.state_dict().items())


def test_the_average_keeps_counters_and_dtypes(tmp_path):
    for number in (1, 2):
        state = {"count": torch.tensor(number), "x": torch.tensor([number, 4.0], dtype=torch.bfloat16)}
        torch.save(state, tmp_path / f"{number}.pt")
    mean = average_checkpoints([tmp_path / "1.pt", tmp_path / "2.pt"])
    assert mean["count"].item() == 2
    assert mean["x"].dtype == torch.bfloat16
    assert mean["x"].tolist() == [1.5, 4.0]


def test_what_cannot_be_averaged(tmp_path):
    torch.save({"x": torch.zeros(2)}, tmp_path / "two.pt")
    torch.save({"x": torch.zeros(3)}, tmp_path / "three.pt")
    torch.save({"y": torch.zeros(2)}, tmp_path / "other.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    torch.save({"step": 3}, tmp_path / "number.pt")
    (tmp_path / "text.pt").write_text("not a checkpoint")
    (tmp_path / "empty.pt").write_bytes(b"")
    with pytest.raises(ValueError, match="paths: expected one checkpoint or more, got none"):
        average_checkpoints([])
    for name in ("list", "number", "text", "empty", "missing"):
        with pytest.raises(ValueError, match=f"paths: expected a checkpoint, got .*{name}.pt"):
            average_checkpoints([tmp_path / f"{name}.pt"])
    for name in ("three", "other"):
        with pytest.raises(ValueError, match=f"paths: expected checkpoints of one model, .*{name}.pt is of"):
            average_checkpoints([tmp_path / "two.pt", tmp_path / f"{name}.pt"])


def test_learning_rate_reaches_its_peak_and_every_step_learns():
    config = TrainingConfig()
    rates = [config.learning_rate(step) for step in range(1, config.steps + 1)]
    assert max(rates) == rates[config.warmup_steps - 1] == config.peak_learning_rate
    assert min(rates) > 0
    assert replace(config, steps=3).learning_rate(1) == config.peak_learning_rate  # warm-up: a third of 3
    assert replace(config, steps=1).learning_rate(1) > 0
    assert config.learning_rate(config.steps + 1) == 0


def test_the_inverse_root_knows_no_last_step():
    config = TrainingConfig(schedule="inverse_sqrt", peak_learning_rate=0.7, warmup_steps=100)
    rates = {step: config.learning_rate(step) for step in (0, 1, 50, 100, 400)}
    assert rates == pytest.approx({0: 0.007, 1: 0.007, 50: 0.35, 100: 0.7, 400: 0.35})
    assert replace(config, steps=3).learning_rate(400) == rates[400]


def test_settings_stay_as_they_were_checked():
    config = TrainingConfig()
    with pytest.raises(FrozenInstanceError):
        config.steps = 0


def test_a_loss_that_is_not_finite_stops_before_it_spoils_the_weights():
    model = small_model()
    trainer = Trainer(model, small_batches(), SMALL)
    trainer.train_step()
    with torch.no_grad():
        model.output.weight[5, 5] = float("nan")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    with pytest.raises(FloatingPointError, match="the loss became nan at step 2"):
        trainer.train_step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) or name.endswith(("output.weight", "token.weight"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": 0}, "steps: expected an integer, 1 or more, got 0"),
        ({"batch_size": 2.5}, "batch_size: expected an integer, 1 or more, got 2.5"),
        ({"peak_learning_rate": -1.0}, "peak_learning_rate: expected a number, 0 or more, got -1.0"),
        ({"clip_norm": math.nan}, "clip_norm: expected a number, 0 or more, got nan"),
        ({"smoothing": 1.0}, "smoothing: expected 0 or more and below 1, got 1.0"),
        ({"seed": "7"}, "seed: expected an integer, 0 or more, got '7'"),
        ({"accumulate": 0}, "accumulate: expected an integer, 1 or more, got 0"),
        ({"accumulate": 65}, "accumulate: expected at most batch_size = 64, got 65"),
        ({"snapshots": -1}, "snapshots: expected an integer, 0 or more, got -1"),
        ({"recompute": 1}, "recompute: expected True or False, got 1"),
        ({"compile": "yes"}, "compile: expected True or False, got 'yes'"),
        ({"snapshots": True}, "snapshots: expected an integer, 0 or more, got True"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_config_refuses(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        TrainingConfig(**change)


def test_resuming_without_a_checkpoint_or_with_another_models(tmp_path):
    with pytest.raises(ValueError, match="resume: expected a checkpoint, found no"):
        Trainer(small_model(), small_batches(), SMALL, tmp_path).restore()
    Trainer(small_model(), small_batches(), SMALL, tmp_path).save()
    with pytest.raises(ValueError, match="expected a checkpoint of this model"):
        Trainer(small_model(d_ff=19), small_batches(), SMALL, tmp_path).restore()


def assert_goes_on(resumed: Trainer, trainer: Trainer) -> None:
    """From a checkpoint of `trainer`, with the same bits as `trainer` itself."""
    for _ in range(3):
        trainer.train_step()
    trainer.save()
    expected = [trainer.train_step()["loss"] for _ in range(2)]
    torch.manual_seed(97)
    resumed.restore()
    assert [resumed.train_step()["loss"] for _ in range(2)] == expected
    for a, b in zip(resumed.model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_resumed_it_goes_on_with_the_same_bits_and_the_same_dropout(tmp_path):
    trainer, resumed = (Trainer(small_model(dropout=0.3), small_batches(), SMALL, tmp_path) for _ in range(2))
    assert_goes_on(resumed, trainer)


@pytest.mark.parametrize("there_now", [0, 1, 2, 3])
@pytest.mark.parametrize("there_before", [0, 2])
def test_a_gpus_random_state_goes_with_the_checkpoint(tmp_path, monkeypatch, there_before, there_now):
    """If a run was begun on a GPU and goes on without one, or the other way round, there is none to restore."""
    states, restored = [torch.tensor(state, dtype=torch.uint8) for state in ([7, 11], [13])], []
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.append)
    trainer = Trainer(small_model(), small_batches(), SMALL, tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_before > 0)
    trainer.save()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_now > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there_now)
    trainer.restore()
    found = [[state.tolist() for state in given] for given in restored]
    assert found == ([[[7, 11], [13]][:there_now]] if there_before and there_now else [])


class Malicious:
    """What a checkpoint from a stranger might unpickle to."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_checkpoint_that_runs_code_is_not_resumed(tmp_path):
    trainer = Trainer(small_model(), small_batches(), SMALL, tmp_path)
    torch.save({"step": 3, "evil": Malicious(tmp_path / "written")}, tmp_path / "checkpoint.pt")
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        trainer.restore()
    assert not (tmp_path / "written").exists()


# ---- What a run shows


class Screen(io.StringIO):
    """Standard error, of a terminal or a file."""

    is_terminal = True

    def isatty(self):
        return self.is_terminal

    def steps(self) -> list[tuple[int, int]]:
        """What a reader saw, one after another: the step, and of how many."""
        return [(int(step), int(of)) for step, of in re.findall(r"(\d+)/(\d+) ", self.getvalue())]


def test_a_bar_shows_how_far_a_run_is_and_how_well_it_goes(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    trainer = Trainer(small_model(), small_batches(), replace(SMALL, steps=7))
    for _ in range(2):
        trainer.history.append(trainer.train_step())
    trainer.run()
    assert screen.steps()[0] == (2, 7)  # a resumed run begins where it was
    assert screen.steps()[-1] == (7, 7)
    last, end = trainer.history[-1], screen.getvalue().split("\r")[-1]
    assert f"loss {last['loss']:.3f}, accuracy {100 * last['accuracy']:.1f}%" in end
    assert re.search(r"step/s|s/step", end)
    assert re.search(r"\d tokens/s", end)


def test_a_run_is_silent_if_asked(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    Trainer(small_model(), small_batches(), replace(SMALL, steps=3)).run(progress=False)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("is_terminal", "seconds", "shown"),
    [(True, 0.125, [*range(32)]), (False, 1.0, [0, 10, 20, 30, 31])],
    ids=["terminal", "file"],
)
def test_a_terminal_gets_a_live_bar_a_file_a_line_every_ten_seconds(monkeypatch, is_terminal, seconds, shown):
    trainer, clock = Trainer(small_model(), small_batches(), replace(SMALL, steps=31)), [time.time()]

    def step() -> dict:
        clock[0] += seconds
        trainer.step += 1
        return {"loss": 3.0, "accuracy": 0.5, "tokens_per_second": 7.0}

    monkeypatch.setattr(sys, "stderr", screen := Screen())
    monkeypatch.setattr(screen, "is_terminal", is_terminal)
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    monkeypatch.setattr(trainer, "train_step", step)
    trainer.run()
    assert sorted({step for step, _ in screen.steps()}) == shown


def test_a_step_is_on_record_as_soon_as_it_is_done(tmp_path, monkeypatch):
    """Whoever watches the file need not wait for a buffer to fill; nor is its rest lost in a crash."""
    trainer, seen = Trainer(small_model(), small_batches(), replace(SMALL, steps=5), tmp_path), []
    train_step = trainer.train_step

    def watched() -> dict:
        seen.append([record["step"] for record in read_metrics(tmp_path)])
        return train_step()

    monkeypatch.setattr(trainer, "train_step", watched)
    trainer.run(progress=False)
    assert seen == [[*range(1, step)] for step in range(1, 6)]


# ---- Ctrl-C


def test_second_interrupt_raises_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    with stop_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# --- whole runs, as a user starts them: another process, without the shape checks ---


def lessons(*arguments, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "transformer_lessons", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A run small enough to repeat, with dropout, so that the random state matters."""
    path = tmp_path_factory.mktemp("recipe") / "config.json"
    training = {"steps": 60, "batch_size": 5, "training_pairs": 101, "checkpoint_every": 10}
    path.write_text(json.dumps({"model": {**SIZES, "dropout": 0.1, "max_length": 32}, "training": training}))
    return path


@pytest.fixture(scope="module")
def uninterrupted(recipe, tmp_path_factory):
    directory = tmp_path_factory.mktemp("uninterrupted")
    code, _, error = finish(lessons("train", "--config", recipe, "--output", directory, "--device", "cpu"))
    assert code == 0, error
    return directory


def start_and_stop(recipe, directory, number, *, after):
    """Send a signal once so many steps are recorded."""
    process = lessons("train", "--config", recipe, "--output", directory, "--device", "cpu")
    metrics = directory / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= after):
        time.sleep(0.005)
    process.send_signal(number)
    return finish(process)


def read_metrics(directory) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(directory, expected):
    ours, theirs = (load_file(d / "weights.safetensors") for d in (directory, expected))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)  # to the bit
    for a, b in zip(read_metrics(directory), read_metrics(expected), strict=True):
        a.pop("tokens_per_second"), b.pop("tokens_per_second")
        assert a == b


def test_killed_and_resumed_ends_with_the_same_bits(recipe, uninterrupted, tmp_path):
    code, _, _ = start_and_stop(recipe, tmp_path, signal.SIGKILL, after=23)
    assert code == -signal.SIGKILL
    code, out, error = finish(lessons("train", "--resume", "--output", tmp_path, "--device", "cpu"))
    assert code == 0, error
    assert "exact match" in out
    assert_same_run(tmp_path, uninterrupted)
    assert [record["step"] for record in read_metrics(tmp_path)] == [*range(1, 61)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_a_checkpoint_and_says_how_to_go_on(recipe, uninterrupted, tmp_path, number):
    code, _, error = start_and_stop(recipe, tmp_path, number, after=13)
    assert code == 130, error
    assert f"lessons train --resume --output {tmp_path}" in error
    assert "Traceback" not in error
    assert not (tmp_path / "record.json").exists()
    done = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"]
    assert 13 <= done < 60
    code, _, error = finish(lessons("train", "--resume", "--output", tmp_path, "--device", "cpu"))
    assert code == 0, error
    assert_same_run(tmp_path, uninterrupted)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in uninterrupted.iterdir()}


def test_trains_on_a_gpu(recipe, tmp_path, request):
    if not torch.cuda.is_available():
        (pytest.fail if request.config.getoption("--full") else pytest.skip)("no CUDA device here")
    code, _, error = finish(lessons("train", "--config", recipe, "--output", tmp_path, "--device", "cuda"))
    assert code == 0, error
    assert read_metrics(tmp_path)[-1]["loss"] < read_metrics(tmp_path)[0]["loss"]


def test_outside_the_main_thread_nothing_stops():
    """There no signal can be caught; a notebook's server may well call from one."""
    seen = []

    def call():
        with stop_signal() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert seen == [False]


@pytest.mark.parametrize(("recipe", "steps"), [((), 250), (("--config", "number-words-150"), 150)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 5))])
def test_number_words_are_learned(recipe, steps, seed, tmp_path):
    options = (*recipe, "--seed", seed, "--output", tmp_path, "--device", "cpu")
    code, _, error = finish(lessons("train", *options))
    assert code == 0, error
    code, out, error = finish(lessons("evaluate", "--model", tmp_path, "--json"))
    assert code == 0, error
    result = json.loads(out)
    assert result["n"] == 1000
    assert result["exact_match"] >= 0.99
    assert json.loads((tmp_path / "record.json").read_text())["steps"] == steps


# ---- Precision and compilation


@pytest.mark.parametrize(("precision", "close"), [("bfloat16", 0.03), ("float16", 0.005)])
def test_lower_precision_computes_the_same_gradients_roughly(precision, close):
    exact = Trainer(small_model(), small_batches(), SMALL)
    lower = Trainer(small_model(), small_batches(), replace(SMALL, precision=precision))
    seen = []
    lower.model.output.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    expected, record = exact.train_step(), lower.train_step()
    assert seen == [getattr(torch, precision)]
    assert math.isclose(record["loss"], expected["loss"], rel_tol=close)
    assert math.isclose(record["gradient_norm"], expected["gradient_norm"], rel_tol=close)
    for (name, a), b in zip(lower.model.named_parameters(), exact.model.parameters(), strict=True):
        assert a.dtype == torch.float32
        # The keys' bias changes no weights: its gradient is what rounding leaves of zero.
        assert name.endswith("W_k.bias") or (a.grad - b.grad).norm() <= 3 * close * b.grad.norm(), name
    assert not torch.equal(lower.model.output.weight.grad, exact.model.output.weight.grad)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_only_float16_needs_its_loss_scaled(precision):
    """Elsewhere no gradient can get lost, and no step be left out."""
    trainer = Trainer(small_model(), small_batches(), replace(SMALL, precision=precision))
    assert (trainer.scaler.get_scale() > 1) == (precision == "float16")


def test_a_step_that_overflows_is_left_out_and_the_next_scaled_less():
    trainer = Trainer(small_model(), small_batches(), replace(SMALL, precision="float16"))
    trainer.train_step()
    trainer.scaler.update(2.0**60)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    record = trainer.train_step()
    assert record["gradient_norm"] is None
    assert math.isfinite(record["loss"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())
    assert trainer.scaler.get_scale() == 2.0**59


def test_the_scale_of_a_loss_goes_on_in_a_resumed_run(tmp_path):
    config = replace(SMALL, precision="float16")
    trainer = Trainer(small_model(), small_batches(), config, tmp_path)
    trainer.train_step()
    trainer.scaler.update(2.0**11)
    trainer.save()
    resumed = Trainer(small_model(), small_batches(), config, tmp_path)
    resumed.restore()
    assert resumed.scaler.get_scale() == 2.0**11
    assert resumed.train_step()["loss"] == trainer.train_step()["loss"]


@pytest.mark.parametrize(
    ("device", "capability", "dtype"),
    [
        ("cuda", (9, 0), torch.bfloat16),
        ("cuda", (8, 0), torch.bfloat16),
        ("cuda", (7, 5), torch.float16),  # a T4
        ("cpu", None, torch.float32),
        ("mps", None, torch.float32),
    ],
)
def test_what_a_device_is_fast_at(monkeypatch, device, capability, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert chosen_precision("auto", torch.device(device)) == dtype
    assert chosen_precision("float16", torch.device(device)) == torch.float16
    assert chosen_precision("float32", torch.device(device)) == torch.float32


def test_compiling_asks_for_graphs_that_fit_batches_of_any_shape(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda loss, **options: asked.append(options) or loss)
    for is_compiled in (False, True):
        Trainer(small_model(), small_batches(), replace(SMALL, compile=is_compiled)).train_step()
    assert asked == [{"dynamic": True}]


COMPILED = """
import functools, json
import torch
from dataclasses import replace
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import TokenBatches
from transformer_lessons.data.packing import PackedBatches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import Trainer, TrainingConfig

torch.compile = functools.partial(torch.compile, backend="BACKEND")
source, target = number_words.vocabularies()
sizes = dict(d_model=15, num_heads=3, d_ff=17, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
pairs = number_words.pairs(number_words.training_numbers(307, 0))
config, losses = TrainingConfig(steps=60, tokens=211, recompute=RECOMPUTE), []
batches = PackedBatches(pairs, 211, 31, seed=0) if PACKED else TokenBatches(pairs, 211, seed=0)
for is_compiled in (False, True):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(len(source), len(target), **sizes)).double()
    trainer = Trainer(model, batches, replace(config, compile=is_compiled))
    losses.append([trainer.train_step()["loss"] for _ in range(20)])
graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
print(json.dumps({"losses": losses, "graphs": graphs, "names": list(model.state_dict())[:1]}))
"""


@pytest.mark.parametrize("how", ["plain", "recompute and packed"])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.full)])
def test_a_compiled_step_is_the_same_step(backend, how):
    """Twenty batches of different shapes, in few graphs; in a process without the hook that checks shapes."""
    script = COMPILED.replace("BACKEND", backend)
    for name in ("recompute", "packed"):
        script = script.replace(name.upper(), str(name in how))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    plain, compiled = result["losses"]
    assert plain[-1] < plain[0]
    assert max(abs(a - b) for a, b in zip(plain, compiled, strict=True)) <= 1e-10
    assert 1 <= result["graphs"] <= 8
    assert result["names"] == ["source_embedding.token.weight"]  # as without compilation
