"""Tasks: what the command line learns, saves, judges and translates; captions stand in for Multi30k's."""

import gzip
import hashlib
import io
import json
import random
import sys
from dataclasses import asdict
from importlib.resources import files

import pooch
import pytest
import sacrebleu
import torch

from benchmarks.settings import complete
from transformer_lessons import records
from transformer_lessons.data import multi30k
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.tools import cli
from transformer_lessons.trainer import average_checkpoints, configs, snapshots, tasks, text_tasks
from transformer_lessons.trainer.checkpoints import load_model, load_tokenisers, save_model
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_bleu, translate
from transformer_lessons.trainer.tasks import TASKS, Multi30k, NumberWords, Task, batches, new_model, task_of

# ---- Captions that stand in for those of Multi30k, which are not ours to bring

NOUNS = {"dog": "Hund", "man": "Mann", "tree": "Baum", "ball": "Ball", "bird": "Vogel"}
VERBS = {"sees": "sieht", "finds": "findet", "paints": "malt"}


def caption(source: random.Random) -> tuple[str, str]:
    (a, b), verb = source.sample(sorted(NOUNS), 2), source.choice(sorted(VERBS))
    return f"A {a} {verb} a {b}.", f"Ein {NOUNS[a]} {VERBS[verb]} einen {NOUNS[b]}."


@pytest.fixture
def captions(tmp_path, monkeypatch):
    """A folder with captions of our own, named by the variable, whose sums are the expected ones."""
    drawn, sums = random.Random(0), {}
    folder = tmp_path / "captions"
    folder.mkdir()
    for split, count in (("train", 120), ("val", 5), ("test_2016_flickr", 7)):
        pairs = [caption(drawn) for _ in range(count)]
        for side, language in enumerate(("en", "de")):
            path = folder / f"{split}.{language}.gz"
            path.write_bytes(gzip.compress("".join(f"{pair[side]}\n" for pair in pairs).encode()))
            sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    news = tmp_path / "captions" / "wmt14"
    news.mkdir()
    for split, count in (("train", 120), ("validation", 5), ("test", 7)):
        pairs = [caption(drawn) for _ in range(count)]
        for side, language in enumerate(("en", "de")):
            (news / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    monkeypatch.setattr(pooch, "os_cache", lambda name: str(tmp_path / "cache" / name))
    monkeypatch.setattr(multi30k, "SHA256", sums)
    monkeypatch.setenv(multi30k.VARIABLE, str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def small(captions, tmp_path):
    """A config.json with which a run is short."""
    sizes = {"d_model": 32, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
    training = {"steps": 300, "tokens": 300, "warmup_steps": 20, "checkpoint_every": 100, "snapshots": 2}
    path = tmp_path / "small.json"
    path.write_text(
        json.dumps({"task": "multi30k", "model": {**sizes, "dropout": 0.0}, "training": training})
    )
    return path


def lessons(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    return code, *capsys.readouterr()


def test_captions_from_the_first_step_to_a_translation(small, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "runs" / "multi30k"
    code, out, _ = lessons(capsys, "train", "--config", str(small), "--device", "cpu")
    assert code == 0
    assert "BLEU" in out
    record = json.loads((folder / "record.json").read_text())
    assert record["bleu"] > 60  # 60 captions are possible, most of which it has seen
    assert (record["n"], record["direction"], record["steps"]) == (7, "en-de", 300)
    assert record["signature"].startswith("nrefs:1|case:mixed|")
    assert record["signature_lowercase"].startswith("nrefs:1|case:lc|")
    assert json.loads((folder / "config.json").read_text())["task"] == "multi30k"

    code, out, _ = lessons(capsys, "translate", "--model", str(folder), "A dog finds a ball.")
    assert (code, out) == (0, "Ein Hund findet einen Ball.\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("A man sees a tree.\n\nA bird paints a dog.\n"))
    code, out, error = lessons(capsys, "translate", "--model", str(folder), "--beam", "2")
    assert code == 2
    assert out == "Ein Mann sieht einen Baum.\n\nEin Vogel malt einen Hund.\n"
    assert "line 2: text: expected a sentence, got nothing" in error

    code, out, _ = lessons(capsys, "evaluate", "--model", str(folder))
    assert out.startswith(f"BLEU {record['bleu']:.1f} on 7 captions never trained on, en-de\n")
    assert record["signature"] in out
    assert (
        json.loads(lessons(capsys, "evaluate", "--model", str(folder), "--json")[1])["bleu"] == record["bleu"]
    )

    # The model is the mean of the snapshots, not the last of them.
    model, source, target = load_model(folder)
    assert source is target
    kept = snapshots(folder)
    assert [path.name for path in kept] == ["weights-000200.pt", "weights-000300.pt"]
    mean = average_checkpoints(kept)
    assert all(abs(mean[name] - tensor).max() < 1e-7 for name, tensor in model.state_dict().items())


def test_a_run_is_resumed_with_its_own_task_and_encoding(small, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "runs" / "multi30k"
    stop = [*("train", "--config", str(small), "--device", "cpu")]
    with monkeypatch.context() as patch:
        patch.setattr(
            "transformer_lessons.trainer.trainer.Trainer.run", lambda self: bool(self.save())
        )  # stops at once
        code, _, error = lessons(capsys, *stop)
    assert code == 130
    assert "to go on: lessons train --resume --task multi30k" in error
    with monkeypatch.context() as patch:
        patch.setattr(Multi30k, "tokenisers", lambda self: pytest.fail("learned anew"))
        code, _, _ = lessons(capsys, "train", "--resume", "--task", "multi30k", "--device", "cpu")
    assert code == 0
    assert (folder / "record.json").exists()


def test_a_new_run_discards_what_an_old_one_left(small, tmp_path, capsys):
    folder = tmp_path / "runs" / "multi30k"
    train = ["train", "--config", str(small), "--device", "cpu"]
    assert lessons(capsys, *train, "--steps", "4")[0] == 0
    record = json.loads((folder / "record.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert (record["last_loss"], record["last_accuracy"]) == (lines[-1]["loss"], lines[-1]["accuracy"])
    assert record["seed"] == 0
    (folder / "weights-000999.pt").write_bytes(b"old")
    first = load_model(folder)[0].state_dict()

    assert lessons(capsys, *train, "--steps", "4", "--overwrite")[0] == 0
    assert [path.name for path in snapshots(folder)] == ["weights-000004.pt"]
    assert all(torch.equal(first[name], again) for name, again in load_model(folder)[0].state_dict().items())
    assert lessons(capsys, *train, "--steps", "4", "--overwrite", "--seed", "1")[0] == 0
    assert not torch.equal(first["output.weight"], load_model(folder)[0].output.weight)


def test_a_run_that_is_cut_off_has_its_config(small, tmp_path, capsys, monkeypatch):
    def killed(self):
        raise OSError("the power went")

    monkeypatch.setattr("transformer_lessons.trainer.trainer.Trainer.run", killed)
    code, _, error = lessons(capsys, "train", "--config", str(small), "--device", "cpu")
    assert (code, error) == (2, "lessons train: the power went\n")
    folder = tmp_path / "runs" / "multi30k"
    assert {"config.json", "tokenizer.json", "weights.safetensors"} <= {
        path.name for path in folder.iterdir()
    }
    saved = json.loads((folder / "config.json").read_text())
    assert saved["training"]["steps"] == 300
    code, _, error = lessons(capsys, "train", "--config", str(small), "--device", "cpu")
    assert code == 2
    assert error.startswith("lessons train: output: runs/multi30k holds a run; --resume goes on with it")


def test_number_words_are_trained_as_the_model_in_the_package_was():
    config = json.loads((files("transformer_lessons") / "pretrained/number_words/config.json").read_text())
    assert NumberWords.sizes.items() <= config["model"].items()
    assert NumberWords.training == TrainingConfig(**config["training"])


def test_fewer_steps_are_for_the_same_model_on_the_same_pairs_once():
    settings = json.loads(configs.find("number-words-150").read_text())
    training = TrainingConfig(**settings["training"])
    assert settings["task"] == NumberWords.name
    assert settings["model"] == NumberWords.sizes
    assert training.training_pairs == NumberWords.training.training_pairs
    assert training.steps * training.batch_size <= training.training_pairs


def test_captions_are_trained_on_as_the_record_in_the_package_says():
    """Chapter 16 shows it, as what ``lessons train --task multi30k`` does."""
    entries = records.read("multi30k")["entries"]
    settings = {"model": Multi30k.sizes, "training": asdict(Multi30k.training)}
    own = [entry["data"]["vocabulary"] for entry in entries if complete(entry["settings"]) == settings]
    assert own[0] == Multi30k.vocab_size


def test_the_folder_of_another_task_becomes_this_ones(small, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "runs" / "multi30k"
    train = ["train", "--device", "cpu", "--output", str(folder), "--steps", "2"]
    assert lessons(capsys, *train, "--config", str(small))[0] == 0
    monkeypatch.setattr("transformer_lessons.trainer.tasks.number_words.held_out", lambda: [7, 421])
    assert lessons(capsys, *train, "--task", "number-words", "--overwrite")[0] == 0
    assert not (folder / "tokenizer.json").exists()
    _, source, _ = load_model(folder)
    assert source.encode(["seven"])
    assert lessons(capsys, "evaluate", "--model", str(folder))[1].startswith("0.0% exact match on 2 numbers")


def test_a_missing_library_is_said_in_one_line(captions, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    code, _, error = lessons(capsys, "train", "--task", "multi30k")
    assert code == 2
    assert error.startswith("lessons train: tokenizers: expected an installed library, got none: pip install")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["train", "--task", "multi30k", "--config", "words.json"],
            "task: words.json is of number-words, got multi30k",
        ),
        (
            ["train", "--config", "chess.json"],
            "chess.json: task: expected one of number-words, multi30k, wmt14, got 'chess'",
        ),
        (
            ["train", "--task", "multi30k", "--resume"],
            "resume: expected a run, found no runs/multi30k/config.json",
        ),
    ],
)
def test_contradictions(captions, capsys, arguments, complaint):
    for name, task in (("words", "number-words"), ("chess", "chess")):
        (captions.parent / f"{name}.json").write_text(json.dumps({"task": task}))
    code, _, error = lessons(capsys, *arguments)
    assert code == 2
    assert error == f"lessons train: {complaint}\n"


def test_without_captions(captions, capsys):
    (captions / "train.de.gz").unlink()
    code, _, error = lessons(capsys, "train", "--task", "multi30k")
    assert code == 2
    assert "TRANSFORMER_LESSONS_DATA: expected a folder with train.de.gz" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_is_whole(task, captions):
    assert isinstance(task, Task)
    source, target = task.tokenisers()
    model = new_model({**task.sizes, "num_encoder_layers": 1, "num_decoder_layers": 1}, source, target)
    assert model.config.d_model == task.sizes["d_model"]
    config = TrainingConfig(training_pairs=100, tokens=task.training.tokens and 200)
    pairs = task.pairs(source, target, config)
    assert len(pairs) == 100
    data = batches(pairs, model.config.max_length, config)
    assert type(data) is (Batches if task.training.tokens is None else TokenBatches)
    assert data.seed == config.seed
    with pytest.raises(ValueError, match="expected"):
        task.read(" \n")


def test_what_is_read_and_written():
    assert NumberWords().read("twenty one") == ["twenty", "one"]
    assert NumberWords().write(["ein", "und", "zwanzig"]) == "einundzwanzig"
    assert Multi30k().read(" Two dogs. \n") == "Two dogs."
    assert Multi30k().write("Zwei\nHunde. ") == "Zwei Hunde."


def test_a_config_that_names_no_task_is_of_number_words(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert task_of(tmp_path / "config.json").name == "number-words"


# ---- BLEU and the encoding on disk


@pytest.fixture
def joint(captions) -> Subwords:
    return Multi30k().tokenisers()[0]


def test_bleu_is_sacrebleus_of_translations_in_their_order(joint, monkeypatch):
    model = new_model({**Multi30k.sizes, "num_encoder_layers": 1, "num_decoder_layers": 1}, joint, joint)
    pairs = [("A dog. " * n, f"Ein Hund Nummer {n} rennt durch den Schnee. " * n) for n in (3, 1, 4, 2, 5)]
    asked = []

    def known(model, source, target, texts, *, beam_size, extra_tokens):
        asked.append((len(texts), beam_size, extra_tokens))
        numbers = [text.count("dog") for text in texts]
        assert numbers == sorted(numbers)  # like lengths together
        return [f"ein Hund Nummer {n} rennt durch den Schnee. " * n for n in numbers]

    monkeypatch.setattr("transformer_lessons.trainer.evaluation.translate", known)
    result = evaluate_bleu(model, joint, joint, pairs, beam_size=3, batch_size=2, extra_tokens=7)
    assert asked == [(2, 3, 7), (2, 3, 7), (1, 3, 7)]
    got, expected = [german.replace("Ein", "ein") for _, german in pairs], [german for _, german in pairs]
    assert result["bleu"] == sacrebleu.corpus_bleu(got, [expected]).score < 95
    assert result["bleu_lowercase"] == sacrebleu.corpus_bleu(got, [expected], lowercase=True).score
    assert result["bleu_lowercase"] == pytest.approx(100)
    assert (result["n"], result["beam_size"]) == (5, 3)
    assert result["examples"] == [
        {"source": e, "expected": d, "got": g} for (e, d), g in zip(pairs, got, strict=True)
    ]
    with pytest.raises(ValueError, match="pairs: expected one or more, got none"):
        evaluate_bleu(model, joint, joint, [])


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_a_task_is_judged_with_the_beam_that_was_asked_for(task, captions, monkeypatch):
    for module, name in ((text_tasks, "evaluate_bleu"), (tasks, "evaluate_number_words")):
        monkeypatch.setattr(module, name, lambda *_, beam_size=1, **more: {"beam_size": beam_size})
    model, source, target = load_model()
    assert task.evaluate(model, source, target, 3)["beam_size"] == 3


def test_bleu_without_the_library(joint, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match=r"sacrebleu: expected an installed library, got none: pip install"):
        evaluate_bleu(load_model()[0], joint, joint, [("a", "b")])


def test_a_model_is_saved_with_its_encoding(joint, tmp_path):
    model = new_model({**Multi30k.sizes, "num_encoder_layers": 1, "num_decoder_layers": 1}, joint, joint)
    save_model(tmp_path / "model", model, joint, joint, task="multi30k")
    loaded, source, target = load_model(tmp_path / "model")
    assert source is target
    text = "A dog sees a Straße."
    assert source.encode(text) == joint.encode(text)
    before, after = (translate(m, joint, joint, [text]) for m in (model.eval(), loaded))
    assert before == after
    other = Subwords.train(["something else"], 300)
    with pytest.raises(
        ValueError, match=r"^target: expected the encoding that is also the source's, got another$"
    ):
        save_model(tmp_path / "model", model, joint, other)
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(
        ValueError, match=r"^model: expected a folder with tokenizer\.json, or tokens in its config"
    ):
        load_tokenisers(tmp_path / "model")
