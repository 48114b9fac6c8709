"""Models on disk: whole or not at all, and back as they were."""

import json
from pathlib import Path

import pytest
import torch

from transformer_lessons import records
from transformer_lessons.data import number_words
from transformer_lessons.data.files import read_json, replacing, write_json
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.checkpoints import TOKENISER, average_checkpoints, load_model, save_model


@pytest.fixture
def saved(tmp_path):
    source, target = number_words.vocabularies()
    config = TransformerConfig(len(source), len(target), d_model=21, num_heads=3, d_ff=17, norm_first=True)
    model = Transformer(config)
    save_model(tmp_path, model, source, target, task="number-words")
    return tmp_path, model


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_reader_of_the_old_file_keeps_it_whole(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with path.open() as reader:  # opened before, read after: renaming leaves it alone, rewriting would not
        write_json(path, {"a": 2})
        assert json.load(reader) == {"a": 1}
    assert read_json(path) == {"a": 2}


def test_a_model_comes_back_with_its_tied_weights(saved):
    directory, model = saved
    loaded, source, target = load_model(directory)
    assert loaded.config == model.config
    assert not loaded.training
    for (name, a), (_, b) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert loaded.output.weight is loaded.target_embedding.token.weight
    assert (source.tokens, target.tokens) == tuple(v.tokens for v in number_words.vocabularies())


def test_a_folder_forgets_another_models_encoding(saved):
    directory, model = saved
    (directory / TOKENISER).write_text("{}")
    save_model(directory, model, *number_words.vocabularies(), task="number-words")
    assert not (directory / TOKENISER).exists()
    assert load_model(directory)[1].tokens == number_words.vocabularies()[0].tokens


def test_broken_folders_are_refused(saved):
    directory, _ = saved
    with pytest.raises(ValueError, match=r"model: expected a folder with config.json, got .*nowhere"):
        load_model(directory / "nowhere")
    config = read_json(directory / "config.json")
    write_json(directory / "config.json", {**config, "model": {**config["model"], "d_ff": 19}})
    with pytest.raises(ValueError, match="model: expected config and weights that fit"):
        load_model(directory)
    write_json(directory / "config.json", {**config, "model": {**config["model"], "odd": 19}})
    with pytest.raises(ValueError, match="model: expected config and weights that fit"):
        load_model(directory)
    (directory / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json: expected JSON"):
        load_model(directory)
    (directory / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object, got list"):
        load_model(directory)
    write_json(directory / "config.json", config)
    (directory / "weights.safetensors").write_bytes(b"half a file")
    with pytest.raises(ValueError, match="model: expected config and weights that fit"):
        load_model(directory)


def test_the_packaged_model_is_what_its_record_says():
    model, source, target = load_model()
    record = records.read("number_words_seeds")
    assert sum(p.numel() for p in model.parameters()) == 934_656
    assert (len(source), len(target)) == (model.config.source_vocab_size, model.config.target_vocab_size)
    assert {name: runs[0]["steps"] for name, runs in record["runs"].items()} == {
        "default": 250,
        "number-words-150": 150,
    }
    for runs in record["runs"].values():
        assert [run["seed"] for run in runs] == [0, 1, 2, 3, 4]
        assert all(run["exact_match"] >= 0.99 and run["n"] == 1000 for run in runs)


def test_unknown_record():
    known = sorted(path.stem for path in Path(records.__file__).parent.glob("*.json"))
    assert {"multi30k", "number_words_seeds", "table3"} <= set(known)
    with pytest.raises(ValueError, match=f"^name: expected one of {', '.join(known)}, got 'odd'$"):
        records.read("odd")


def test_config_file_is_readable(saved):
    directory, _ = saved
    text = (directory / "config.json").read_text()
    assert json.loads(text)["task"] == "number-words"
    assert '"dreißig"' in text  # not an escape sequence
    assert text.startswith('{\n  "')  # readable: a line for each entry


def test_files_can_be_read_by_others(saved):
    directory, _ = saved
    for path in directory.iterdir():
        assert path.stat().st_mode & 0o777 == 0o644


class Malicious:
    """What a file from a stranger might unpickle to."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_checkpoint_that_runs_code_is_refused_before_it_runs(tmp_path):
    torch.save({"x": torch.zeros(2), "evil": Malicious(tmp_path / "written")}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="paths: expected a checkpoint, got"):
        average_checkpoints([tmp_path / "evil.pt"])
    assert not (tmp_path / "written").exists()


def test_a_file_with_more_than_tensors_is_no_checkpoint(tmp_path):
    torch.save({"weight": torch.zeros(2), "step": 3}, tmp_path / "mixed.pt")
    with pytest.raises(ValueError, match="paths: expected a checkpoint, got"):
        average_checkpoints([tmp_path / "mixed.pt"])
