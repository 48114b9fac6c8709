"""Checkpoints, as a file and as a folder: whole at any time, of this model, and running nobody's code."""

import pickle
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_training import SMALL, Malicious, assert_goes_on, small_batches, small_model

from transformer_lessons.model import Transformer
from transformer_lessons.trainer import Trainer, checkpoint_folder, resuming
from transformer_lessons.trainer.sharding import is_sharded, whole, whole_model, whole_weights

SHARES = replace(SMALL, shard=True)


def new_trainer(directory: Path, config=SHARES, **changes) -> Trainer:
    return Trainer(small_model(**changes), small_batches(), config, directory)


def stepped(directory: Path, steps: int = 1, **options) -> Trainer:
    trainer = new_trainer(directory, **options)
    for _ in range(steps):
        trainer.history.append(trainer.train_step())
    return trainer


@pytest.mark.parametrize("written", [SMALL, SHARES])
@pytest.mark.parametrize("read", [SMALL, SHARES])
def test_from_a_file_or_a_folder_a_run_goes_on_with_the_same_bits(tmp_path, written, read):
    assert_goes_on(*(new_trainer(tmp_path, config, dropout=0.3) for config in (read, written)))
    (path,) = tmp_path.iterdir()
    assert path == resuming.found(tmp_path)
    assert path.is_dir() == written.shard


@pytest.mark.parametrize("config", [SMALL, SHARES])
def test_before_the_first_step_there_are_no_moments(tmp_path, config):
    """And none must be made up: they would count as a step."""
    trainer = new_trainer(tmp_path, config)
    trainer.save()
    assert not trainer.optimizer.state
    other = stepped(tmp_path, config=config)
    other.restore()
    assert not other.optimizer.state
    assert [other.train_step()["loss"] for _ in range(3)] == [trainer.train_step()["loss"] for _ in range(3)]


def test_a_run_has_one_checkpoint(tmp_path):
    for config, name in ((SMALL, "checkpoint.pt"), (SHARES, "checkpoint"), (SMALL, "checkpoint.pt")):
        new_trainer(tmp_path, config).save()
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_is_lost_whenever_writing_stops(tmp_path, monkeypatch):
    """Each rename and each removal is the last thing that happens, in one try after another."""
    stepped(tmp_path).save()
    before = 1
    for steps in range(2, 60):
        left = (steps - 2) % 11

        def spend():
            nonlocal left
            left -= 1
            if left < 0:
                raise InterruptedError

        with monkeypatch.context() as patch:
            for owner, name in ((shutil, "rmtree"), (Path, "rename"), (Path, "unlink"), (Path, "replace")):
                original = getattr(owner, name)

                def counted(*given, original=original, **options):
                    spend()
                    return original(*given, **options)

                patch.setattr(owner, name, counted)
            trainer = new_trainer(tmp_path, (SHARES, SMALL)[steps % 3 == 0])
            trainer.step = steps
            with suppress(InterruptedError):
                trainer.save()
        resumed = new_trainer(tmp_path)
        resumed.restore()
        assert resumed.step in (before, steps)
        before = resumed.step
    trainer.save()
    assert len(list(tmp_path.iterdir())) == 1


def test_what_another_process_wrote_elsewhere_makes_no_checkpoint(tmp_path, monkeypatch):
    """As on two machines that share no folder: found out when it is written, not when it is needed."""
    stepped(tmp_path, 2).save()
    original = torch.distributed.checkpoint.save

    def elsewhere(*given, **options):
        original(*given, **options)
        (tmp_path / ".checkpoint" / "__0_0.distcp").unlink()

    monkeypatch.setattr(torch.distributed.checkpoint, "save", elsewhere)
    message = (
        r"^checkpoint: expected a folder that all processes see, .*checkpoint lacks __0_0\.distcp of another$"
    )
    with pytest.raises(FileNotFoundError, match=message):
        stepped(tmp_path, 3).save()
    resumed = new_trainer(tmp_path)
    resumed.restore()
    assert resumed.step == 2


def test_between_two_renames_the_old_one_counts(tmp_path):
    stepped(tmp_path, 2).save()
    checkpoint_folder.set_aside(tmp_path)
    resumed = new_trainer(tmp_path)
    resumed.restore()
    assert resumed.step == 2
    resumed.save()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("config", [SMALL, SHARES])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"d_ff": 19}, r"feed_forward.W_1.bias: expected \(19,\), got \(17,\)$"),
        ({"num_encoder_layers": 2}, r"encoder_layers.1.* expected \(21,\), got nothing$"),
        ({"num_decoder_layers": 2}, r"decoder_layers.1.* expected \(21,\), got nothing$"),
        ({"norm": "rms"}, r"norm.bias: expected nothing, got \(21,\)$"),
    ],
)
def test_a_checkpoint_of_another_model(tmp_path, config, change, complaint):
    stepped(tmp_path, config=config).save()
    with pytest.raises(ValueError, match=f"^resume: expected a checkpoint of this model, .*{complaint}"):
        new_trainer(tmp_path, config, **change).restore()


def test_a_checkpoint_of_fewer_layers_than_are_saved(tmp_path):
    """Torch would read the layers that there are, and forget the others."""
    stepped(tmp_path, num_encoder_layers=2).save()
    with pytest.raises(ValueError, match=r"encoder_layers.1.* expected nothing, got \(21,\)$"):
        new_trainer(tmp_path).restore()


@pytest.mark.parametrize("name", ["progress.pt", ".metadata", "__0_0.distcp"])
@pytest.mark.parametrize("damage", ["missing", "empty", "text"])
def test_a_damaged_folder(tmp_path, name, damage):
    stepped(tmp_path).save()
    path = tmp_path / "checkpoint" / name
    assert path.stat().st_size > 0
    path.unlink()
    if damage != "missing":
        path.write_text("" if damage == "empty" else "this was never a checkpoint")
    with pytest.raises(ValueError, match=r"^resume: expected a checkpoint, got ."):
        new_trainer(tmp_path).restore()


@pytest.mark.parametrize("name", ["progress.pt", ".metadata"])
def test_a_folder_that_runs_code_is_not_resumed(tmp_path, name):
    stepped(tmp_path).save()
    content = {"step": 3, "evil": Malicious(tmp_path / "written")}
    path = tmp_path / "checkpoint" / name
    if name == ".metadata":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=r"^resume: expected a checkpoint, got ."):
        new_trainer(tmp_path).restore()
    assert not (tmp_path / "written").exists()


def test_what_is_listed_as_no_tensor_is_not_unpickled(tmp_path):
    """Torch reads such entries with pickle, whoever may have written them."""
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    stepped(tmp_path).save()
    path = tmp_path / "checkpoint" / ".metadata"
    content = pickle.loads(path.read_bytes())
    content.state_dict_metadata["model.output.weight"] = BytesStorageMetadata()
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"asks for torch\.distributed\.checkpoint\.metadata\.BytesStorage"):
        new_trainer(tmp_path).restore()


def test_a_model_of_one_process_is_whole():
    model = small_model()
    assert not is_sharded(model)
    assert whole_model(model) is model
    assert whole(model.output.weight) is model.output.weight
    assert whole_weights(model).keys() == model.state_dict().keys()


def test_discarding_leaves_nothing_to_go_on_from(tmp_path):
    for name in ("checkpoint", "checkpoint.old", ".checkpoint"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.pt").write_text("old")
    (tmp_path / "checkpoint.pt").write_text("old")
    (tmp_path / "config.json").write_text("{}")
    resuming.discard(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert resuming.found(tmp_path) is None


@pytest.mark.parametrize("kept", ["checkpoint", "checkpoint.old", "checkpoint.pt"])
def test_one_checkpoint_may_be_kept(tmp_path, kept):
    for name in ("checkpoint", "checkpoint.old", ".checkpoint"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint.pt").write_text("old")
    resuming.discard(tmp_path, but=tmp_path / kept)
    assert [path.name for path in tmp_path.iterdir()] == [kept]


def test_a_model_is_trained_on_the_device_that_is_named():
    trainer = Trainer(small_model(), small_batches(), SMALL, device=torch.device("meta"))
    assert trainer.device == torch.device("meta")
    assert all(parameter.is_meta for parameter in trainer.model.parameters())
    assert all(parameter.is_meta for group in trainer.optimizer.param_groups for parameter in group["params"])
    assert isinstance(trainer.model, Transformer)
