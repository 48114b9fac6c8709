"""Tasks to train on, from the user's own files or by name, and their evaluation."""

import gzip
import hashlib
import io
import json
import random
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pooch
import pytest
import sacrebleu
import torch

from transformer_lessons import records
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import multi30k
from transformer_lessons.data.number_words import english, english_tokens, german, german_tokens
from transformer_lessons.fast import decoding as fast_decoding
from transformer_lessons.schedule import warmup_inverse_sqrt
from transformer_lessons.trainer import (
    TrainingConfig,
    average_checkpoints,
    configs,
    evaluation,
    snapshots,
    tasks,
)
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.runs import apply_settings
from transformer_lessons.trainer.tasks import MULTI30K, TASKS, WMT14, NumberWords

SIZES = {"d_model": 32, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
TRAINING = {"steps": 6, "tokens": 300, "warmup_steps": 2, "checkpoint_every": 2}


def write(path: Path, lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, the settings of a short run, and number words as a.en.gz and a.de, t.en and t.de."""
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.chdir(tmp_path)
    numbers = random.Random(0).sample(range(1000), 330)
    for name, some in (("a.en.gz", numbers[30:]), ("t.en", numbers[:30])):
        write(tmp_path / name, [english(n) for n in some])
        write(tmp_path / name.replace("en", "de").removesuffix(".gz"), [german(n) for n in some])
    settings = {"task": "text", "model": SIZES, "training": TRAINING, "data": {"vocab_size": 300}}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.fixture
def lessons(lessons):
    """The command line, which trains on the CPU."""
    return lambda what, *more: lessons(what, *(["--device", "cpu"] if what == "train" else []), *more)


OWN = ("--config", "small.json", "--source", "a.en.gz", "--target", "a.de")

# ---- The user's own files


def test_training_evaluation_and_translation_with_own_files(folder, lessons, monkeypatch):
    code, out, _ = lessons("train", *OWN, *"--steps 250 --vocab-size 330 --output run".split())
    assert code == 0
    assert re.fullmatch(r"run: BLEU \d+\.\d on 15 pairs held out of a\.en\.gz, en-de\n", out)
    config = json.loads((folder / "run/config.json").read_text())
    assert config["task"] == "text"
    assert config["data"]["source"] == str(folder / "a.en.gz")
    assert config["data"]["vocab_size"] == 330 >= config["model"]["source_vocab_size"]
    monkeypatch.chdir("/")  # from any folder, without naming files
    run = str(folder / "run")
    result = json.loads(lessons("evaluate", "--model", run, "--json")[1])
    assert (result["n"], result["on"]) == (15, "pairs held out of a.en.gz")
    assert result["bleu"] == json.loads((folder / "run/record.json").read_text())["bleu"]
    assert json.loads(lessons("evaluate", "--model", run, "--json", "--plain")[1])["bleu"] == result["bleu"]
    others = ("--source", str(folder / "t.en"), "--target", str(folder / "t.de"))
    _, out, _ = lessons("evaluate", "--model", run, *others)
    assert re.match(r"BLEU .* on 30 pairs of t\.en and t\.de, en-de\n", out)
    ways = ((), ("--plain",), ("--beam", "2"))
    words = [lessons("translate", "--model", run, *how, english(7))[1] for how in ways]
    assert words[0] == words[1]
    assert all(len(word.splitlines()) == 1 for word in words)
    for text, complaint in ((" ", "a sentence, got nothing"), ("\udcff", "UTF-8, got '\\udcff'")):
        assert lessons("translate", "--model", run, text)[2].endswith(f"text: expected {complaint}\n")
    (folder / "run/tokenizer.json").rename(folder / "run/elsewhere")
    missing = f"train: model: expected a folder with tokenizer.json, got '{run}'\n"
    assert lessons("train", "--resume", "--output", run)[2].endswith(missing)
    (folder / "run/elsewhere").rename(folder / "run/tokenizer.json")
    write(folder / "a.de", ["etwas"] * 300)  # other pairs would be held out
    assert lessons("evaluate", "--model", run)[2].endswith("a.de have changed since the run began\n")
    assert lessons("translate", "--model", run, english(7))[1] == words[0]


def test_a_run_on_own_files_is_resumed_and_evaluated_on_other_files(folder, lessons, monkeypatch):
    two = ("--validation", "t.en", "t.de", "--test", "t.de", "t.en")
    assert lessons("train", *OWN, *two, "--output", "whole")[1].startswith("whole: BLEU ")
    with monkeypatch.context() as patch:
        patch.setattr("transformer_lessons.trainer.trainer.Trainer.run", lambda self: bool(self.save()))
        code, _, error = lessons("train", *OWN, *two)
    assert code == 130
    assert error.endswith("stopped after step 0; to continue: lessons train --resume --task text\n")
    (folder / "runs/text/checkpoint.pt").unlink()  # as if it was killed before
    code, out, _ = lessons("train", "--resume-or-start", "--output", "runs/text")
    assert code == 0
    assert out.endswith(" on 30 pairs of t.en and t.de, en-de\n")
    _, out, _ = lessons("evaluate", "--model", "runs/text")
    assert out.splitlines()[0].endswith("pairs of t.de and t.en, en-de")
    ours, theirs = (load_model(folder / name)[0].state_dict() for name in ("runs/text", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    # The same files may be given again; other files are refused, and so are changed ones.
    assert lessons("train", "--resume", *OWN)[0] == 0
    _, _, error = lessons("train", "--resume", "--task", "text", "--source", "t.en")
    assert error.endswith(f": expected {folder}/a.en.gz, as in runs/text/config.json, got '{folder}/t.en'\n")
    write(folder / "a.de", ["etwas"] * 300)
    code, _, error = lessons("train", "--resume", "--task", "text")
    assert code == 2
    assert error.endswith("a.de have changed since the run began\n")
    # A new run with the same settings may use the changed files.
    assert lessons("train", "--config", "runs/text/config.json", "--output", "other", "--steps", "1")[0] == 0


EMPTY = ["", "x"]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("", "source: expected a file with one sentence per line, got none"),
        ("--source a.en.gz", "target: expected a file with one sentence per line, got none"),
        ("--source a.en.gz --target t.de", "t.de: expected as many lines as in a.en.gz, got 30"),
        ("--source a.en.gz --target no.de", r"\[Errno 2\] No such file or directory: 'no.de'"),
        ("--source t.en --target latin.de", "latin.de: expected UTF-8, got the byte 0xe4 in line 2"),
        ("--source cut.en.gz --target a.de", "cut.en.gz: expected a whole gzip file, got: .*"),
        ("--source e.en --target e.de", "e.en: expected sentences, got none"),
        ("--source t.en --target t.de --test t.en a.de", "t.en: expected as many lines as in a.de, got 30"),
        ("--source t.en --target t.de --validation e.en e.de", "e.en: expected sentences, got none"),
        ("--source t.en --target t.de --vocab-size 258", "vocab_size: expected 259 or more, .*, got 258"),
        ("--source one.en --target one.en", "source: expected more pairs than are held out, got 0"),
        ("--source long.en --target long.en", "pairs: expected some with at most 256 tokens per side, .*"),
        (
            "--task number-words --config no.json --source t.en",
            "source: expected --task text, got number-words",
        ),
        ("--config one.json", r"test: expected two files, got \['.*one.en'\]"),
        ("--config five.json", "source: expected a file, got 5"),
        ("--config captions.json --target t.en", "target: expected --task text, got multi30k"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_invalid_files_get_one_line_and_create_no_run(folder, lessons, given, complaint):
    write(folder / "one.en", ["one"])  # which is held out
    for name, side in (("e.en", EMPTY), ("e.de", EMPTY[::-1]), ("long.en", ["1 2 " * 999, "3 4 " * 999])):
        write(folder / name, side)
    (folder / "latin.de").write_bytes(b"one\nz\xe4h\n")
    (folder / "cut.en.gz").write_bytes((folder / "a.en.gz").read_bytes()[:99])
    (folder / "no.json").write_text("{}")
    (folder / "captions.json").write_text('{"task": "multi30k"}')
    (folder / "one.json").write_text('{"task": "text", "data": {"test": ["one.en"]}}')
    (folder / "five.json").write_text('{"task": "text", "data": {"source": 5}}')
    code, out, error = lessons("train", "--config", "small.json", "--output", "run", *given.split())
    assert (code, out) == (2, "")
    assert re.fullmatch(f"lessons train: {complaint}", error.splitlines()[-1].replace(f"{folder}/", ""))
    assert not (folder / "run").exists()


def test_a_missing_library_for_the_evaluation_is_missed_before_the_training(folder, lessons, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    code, _, error = lessons("train", *OWN, "--output", "run")
    assert (code, 'pip install "transformer-lessons[text]"' in error) == (2, True)
    assert not (folder / "run").exists()


def test_sentences_too_long_for_the_model_are_left_out(folder, lessons, monkeypatch):
    settings = json.loads((folder / "small.json").read_text())
    (folder / "small.json").write_text(json.dumps(settings | {"model": {**SIZES, "max_length": 99}}))
    write(folder / "t.en", [*map(english, range(29)), "long " * 100])
    files = ("--source", "t.en", "--target", "t.de", "--validation", "t.en", "t.de", "--output", "run")
    code, out, error = lessons("train", *OWN[:2], *files)
    assert (code, out[-37:]) == (0, " on 29 pairs of t.en and t.de, en-de\n")
    assert "left out 1 of 28 pairs, which are longer than 99 tokens\n" in error  # two more are held out
    assert error.endswith("left out 1 of 30 pairs, which are longer than 99 tokens\n")
    assert json.loads((folder / "run/record.json").read_text())["n"] == 29
    lines = ["seven", "long " * 100, "seven"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    code, out, error = lessons("translate", "--model", "run")
    assert (code, len(out.split("\n")), out.split("\n")[1]) == (2, 4, "")
    assert re.search(r"line 2: text: expected at most 99 tokens, got \d{3}\n", error)
    code, _, error = lessons("translate", "--model", "run", lines[1])
    assert (code, "text: expected at most 99 tokens, got " in error) == (2, True)


# ---- The tasks that are known by name


@pytest.fixture
def captions(folder, monkeypatch):
    """The folder that the variable names, with number words in place of captions and news."""
    (folder / "wmt14").mkdir()
    sums = {}
    for split, name in multi30k.SPLITS.items():
        for language, say in (("en", english), ("de", german)):
            path = folder / f"{name}.{language}.gz"
            lines = [say(n) for n in random.Random(split).sample(range(1000), 120 if split == "train" else 7)]
            write(path, lines)
            write(folder / "wmt14" / f"{split}.{language}", lines)
            sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(multi30k, "SHA256", sums)
    monkeypatch.setenv(multi30k.DATA_VARIABLE, str(folder))
    return folder


@pytest.mark.parametrize("task", ["multi30k", "wmt14"])
def test_training_evaluation_and_translation_of_a_named_task(captions, lessons, monkeypatch, task):
    settings = {"model": SIZES, "training": {**TRAINING, "snapshots": 2}, "task": task}
    (captions / "small.json").write_text(json.dumps(settings))
    asked, greedy = [], fast_decoding.greedy

    def noted(model, src, *, max_length):
        asked.append((src.size(1), max_length))
        return greedy(model, src, max_length=max_length)

    monkeypatch.setattr(fast_decoding, "greedy", noted)
    code, out, _ = lessons("train", "--config", "small.json")
    assert code == 0
    assert re.search(r" on 7 pairs of val\S* and val\S*, en-de\n$", out)
    model, source, target = load_model(captions / "runs" / task)
    assert source is target
    mean = average_checkpoints(snapshots(captions / "runs" / task))  # §6.1
    assert all(torch.equal(mean[name], tensor) for name, tensor in model.state_dict().items())
    assert re.search(
        r" on 7 pairs of test\S* and test\S*, en-de\n", lessons("evaluate", "--model", f"runs/{task}")[1]
    )
    assert lessons("translate", "--model", f"runs/{task}", "seven")[0] == 0
    most = [width + 50 if task == "wmt14" else 128 for width, _ in asked]  # §6.1
    assert [length for _, length in asked] == most
    for path in (*captions.glob("test*.de.gz"), *captions.glob("wmt14/test.de")):
        path.unlink()
    # Missing test files are reported before hours of training.
    code, _, error = lessons("train", "--config", "small.json", "--output", "run")
    assert code == 2
    assert re.search(r"TRANSFORMER_LESSONS_DATA: expected a folder with (wmt14/)?test.*\.de\.gz, got ", error)
    assert not (captions / "run").exists()


def test_settings_are_those_of_records_and_of_the_paper():
    for seed, run in enumerate(records.read("number_words_seeds")["runs"]):
        assert (run["seed"], run["steps"], run["n"]) == (seed, NumberWords.training.steps, 1000)
        assert run["exact_match"] >= 0.99
    entry = records.read("multi30k")
    assert entry["settings"]["model"] == MULTI30K.sizes
    assert TrainingConfig(**entry["settings"]["training"]) == MULTI30K.training
    assert entry["data"]["vocabulary"] == MULTI30K.vocab_size
    task, *long = apply_settings(configs.find("multi30k-long"), MULTI30K, MULTI30K.sizes, MULTI30K.training)
    settings = {"data": task.settings, "model": long[0], "training": asdict(replace(long[1], batch_size=64))}
    assert records.read("multi30k_long")["settings"] == settings
    # §5.1, §5.3, §5.4, Table 3 and §6.1; the schedule is equation 3.
    training, vocab_size = WMT14.training, WMT14.vocab_size
    assert TransformerConfig(vocab_size, vocab_size, **WMT14.sizes) == TransformerConfig.base()
    assert (training.steps, training.tokens, training.snapshots) == (100_000, 50_000, 5)
    assert (training.smoothing, training.weight_decay, training.clip_norm) == (0.1, 0.0, None)
    for step in (1, 100_000):
        assert training.learning_rate(step) == pytest.approx(warmup_inverse_sqrt(step, 512, 4_000))
    big = json.loads(configs.find("wmt14-big").read_text())
    assert TransformerConfig(37_000, 37_000, **big["model"]) == TransformerConfig.big()
    rate = TrainingConfig(**big["training"]).learning_rate(7)
    assert rate == pytest.approx(warmup_inverse_sqrt(7, 1_024, 4_000))


# ---- Evaluation


@pytest.mark.usefixtures("no_shape_checks")
def test_wrong_answers_are_counted_by_kind(monkeypatch):
    answers = {7: "sieben", 21: "zwanzig und ein", 22: "drei und zwanzig", 300: "drei"}
    answers[1001] = "ein tausend eins eins"
    said = [answer.split() for answer in answers.values()]
    monkeypatch.setattr(evaluation, "translate", lambda *_, **__: said)
    result = evaluation.evaluate_number_words(None, None, None, list(answers))
    assert (result["exact_match"], result["n"]) == (1 / 5, 5)
    assert result["errors"] == {"order": 1, "wrong part": 1, "missing part": 1, "added part": 1}
    assert result["examples"][0] == {"number": 21, "expected": "einundzwanzig", "got": "zwanzigundein"}


def test_a_translation_does_not_depend_on_its_batch_and_ends_where_it_must():
    model, source, target = load_model()
    sentences = [english_tokens(english(n)) for n in (7, 421, 987_654)]
    together = evaluation.translate(model, source, target, sentences)
    assert together == [evaluation.translate(model, source, target, [sentence])[0] for sentence in sentences]
    assert together[1] == german_tokens(421)
    with torch.no_grad():
        model.output.weight.zero_()
    model.output.register_forward_hook(lambda _, __, logits: logits + torch.eye(len(target))[5])  # endless
    for extra_tokens, length in ((0, 7), (5, 12), (None, 64), (60, 64)):
        how = {"beam_size": 2, "extra_tokens": extra_tokens}
        assert len(evaluation.translate(model, source, target, [["one"] * 7], **how)[0]) == length
    with pytest.raises(ValueError, match="expected at most 64 positions, got 65"):
        evaluation.translate(model, source, target, [["one"], ["one"] * 65])


def test_many_sentences_are_translated_in_batches_of_like_lengths(monkeypatch):
    model, source, target = load_model()
    widths, greedy = [], evaluation.decoding.greedy
    numbers = [7, 421_421, 40, 987_654, 12, 3]
    heard = lambda model, src, **how: widths.append(tuple(src.shape)) or greedy(model, src, **how)  # noqa: E731
    monkeypatch.setattr(evaluation.decoding, "greedy", heard)
    sentences = [english_tokens(english(n)) for n in numbers]
    monkeypatch.setattr(evaluation, "BATCH", 4)
    got = evaluation.translate(model, source, target, sentences)
    assert got == [german_tokens(n) for n in numbers]
    assert widths == [(4, 1), (2, max(map(len, sentences)))]
    assert evaluation.translate(model, source, target, []) == []


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("language", "tokenize"), [("de", "13a"), ("jpn", "char"), ("zh_CN", "zh")])
def test_bleu_is_sacrebleus(tmp_path, monkeypatch, language, tokenize):
    expected = [" ".join([f"Ein Hund Nummer {n} rennt durch den Schnee."] * n) for n in (3, 1, 4, 2, 5)]
    got, asked = [text.replace("Ein", "ein").replace("5", "6") for text in expected], []

    def known(model, source, target, texts, *, beam_size, extra_tokens):
        asked.append((beam_size, extra_tokens))
        return [got[expected.index(text)] for text in texts]

    monkeypatch.setattr(tasks, "translate", known)
    write(tmp_path / "a.en", expected)
    write(tmp_path / f"a.{language}", expected)
    files = [str(tmp_path / "a.en"), str(tmp_path / f"a.{language}")]
    task = replace(TASKS["text"], source=files[0], target=files[1], extra_tokens=7)
    model = SimpleNamespace(config=SimpleNamespace(max_length=1_000))
    result = task.evaluate(model, SimpleNamespace(encode=str.split), None, 3, files)
    assert asked == [(3, 7)]
    for name in ("bleu", "bleu_lowercase"):
        right = sacrebleu.corpus_bleu(got, [expected], lowercase=name != "bleu", tokenize=tokenize)
        assert result[name] == right.score
    assert result["examples"][2] == {"source": expected[2], "expected": expected[2], "got": got[2]}
    assert f"tok:{tokenize}" in result["signature"]
