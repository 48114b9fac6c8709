"""Models and runs on disk: written whole or not at all, restored exactly, and executing no code."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from test_trainer import SMALL, new_trainer, small_batches, small_model

from transformer_lessons.data import number_words
from transformer_lessons.data.files import read_json, replacing, write_json
from transformer_lessons.trainer import Trainer, average_checkpoints, snapshots
from transformer_lessons.trainer.checkpoints import TOKENISER, load_model, save_model, save_snapshot


@pytest.fixture
def saved(tmp_path):
    model = small_model(norm_first=True)
    save_model(tmp_path, model, *number_words.vocabularies(), task="number-words")
    return tmp_path, model


# ---- Files


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    full = pytest.raises(
        OSError, match=r"config\.json: could not be written; is the disk full\? unexpected pos"
    )
    with full, replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("unexpected pos 317120 vs 317012")  # what torch says
    with suppress(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_file_is_open_for_writing_when_it_is_flushed(tmp_path, monkeypatch):
    """On Windows flushing a read-only file fails, just as writing nothing to it does here."""
    monkeypatch.setattr(os, "fsync", lambda number: os.write(number, b""))
    write_json(tmp_path / "config.json", {"a": 1})
    assert read_json(tmp_path / "config.json") == {"a": 1}


# ---- Models


def test_a_model_comes_back_with_its_tied_weights(saved):
    directory, model = saved
    loaded, source, target = load_model(directory)
    assert loaded.config == model.config
    assert not loaded.training
    for (name, a), (_, b) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert loaded.output.weight is loaded.target_embedding.token.weight
    assert (source.tokens, target.tokens) == tuple(v.tokens for v in number_words.vocabularies())
    assert '"dreißig"' in (directory / "config.json").read_text()  # not an escape sequence
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in directory.iterdir())


def test_a_folder_forgets_another_models_encoding(saved):
    directory, model = saved
    (directory / TOKENISER).write_text("{}")
    save_model(directory, model, *number_words.vocabularies(), task="number-words")
    assert not (directory / TOKENISER).exists()


def test_broken_folders_are_refused(saved):
    directory, _ = saved
    with pytest.raises(ValueError, match=r"model: expected a folder with config.json, got .*nowhere"):
        load_model(directory / "nowhere")
    config = read_json(directory / "config.json")
    for odd in ({"d_ff": 19}, {"odd": 19}):
        write_json(directory / "config.json", {**config, "model": {**config["model"], **odd}})
        with pytest.raises(ValueError, match="model: expected matching files"):
            load_model(directory)
    (directory / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json: expected JSON, got "):
        load_model(directory)
    write_json(directory / "config.json", {**config, "source_tokens": ["one"]})
    with pytest.raises(
        ValueError, match=r"tokens: expected \(\d+, \d+\) of source and target, as in its config"
    ):
        load_model(directory)
    write_json(directory / "config.json", config)
    (directory / "weights.safetensors").write_bytes(b"half a file")
    with pytest.raises(ValueError, match="model: expected matching files"):
        load_model(directory)


# ---- Checkpoints


class Malicious:
    """What a file from a stranger might unpickle to."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def stepped(directory: Path, **sizes) -> Trainer:
    trainer = Trainer(small_model(**sizes), small_batches(), SMALL, directory)
    trainer.history.append(trainer.train_step())
    return trainer


REFUSED = r"^resume: expected a checkpoint that fits, got .*checkpoint\.pt: .*(layers\.|norm)"


@pytest.mark.parametrize("sizes", [{"d_ff": 19}, {"num_encoder_layers": 2}])
def test_a_checkpoint_of_another_model_is_refused(tmp_path, sizes):
    stepped(tmp_path).save()
    with pytest.raises(ValueError, match=REFUSED):
        stepped(tmp_path, **sizes).restore()
    stepped(tmp_path, **sizes).save()
    with pytest.raises(ValueError, match=REFUSED):
        stepped(tmp_path).restore()


@pytest.mark.parametrize("content", ["nothing", "never a checkpoint", "code", "half"])
def test_an_invalid_checkpoint_is_refused_and_runs_no_code(tmp_path, content):
    trainer, path = stepped(tmp_path), tmp_path / "checkpoint.pt"
    trainer.save()
    if content == "nothing":
        path.unlink()
    elif content == "code":
        torch.save({"model": Malicious(tmp_path / "written")}, path)
    else:
        path.write_bytes(path.read_bytes()[:5000] if content == "half" else content.encode())
    with pytest.raises(ValueError, match=r"^resume: expected a checkpoint.*checkpoint\.pt"):
        trainer.restore()
    assert not (tmp_path / "written").exists()


def test_snapshots_are_the_latest_weights_and_their_mean_is_a_model(tmp_path):
    trainer = new_trainer(tmp_path, steps=35, snapshots=3)
    while trainer.step < 33:
        trainer.train_step()
        trainer.save()  # as if it were interrupted, which must not change the mean
    assert trainer.run(progress=False)
    paths = snapshots(tmp_path)
    assert [path.name for path in paths] == [f"weights-0000{step}.pt" for step in (20, 30, 35)]
    states, mean = [torch.load(path) for path in paths], average_checkpoints(iter(paths))
    for name, tensor in mean.items():
        stacked = torch.stack([state[name].double() for state in states])
        assert torch.equal(tensor, stacked.mean(0).float())
        assert stacked.std(0).max() > 0
    model = small_model()
    model.load_state_dict(mean)
    assert model.output.weight is model.target_embedding.token.weight
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, states[-1][name])
    save_snapshot(tmp_path, 1_000_000, mean, keep=2)
    assert [path.name for path in snapshots(tmp_path)] == ["weights-000035.pt", "weights-1000000.pt"]


def test_the_mean_of_no_checkpoints_is_refused(tmp_path):
    with pytest.raises(ValueError, match="paths: expected one checkpoint or more, got none"):
        average_checkpoints(snapshots(tmp_path))
