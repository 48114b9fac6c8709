"""WMT14 with a made-up corpus: read, encoded once, trained on as in the paper, interrupted, judged and used."""

import gzip
import io
import json
import random
import signal
import sys
import threading
import types
from dataclasses import asdict, replace

import numpy as np
import pooch
import pytest
import torch
from conftest import assert_close

from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import encoded, wmt14
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.files import read_json
from transformer_lessons.data.packing import PackedBatches
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.model import Transformer
from transformer_lessons.schedule import warmup_inverse_sqrt
from transformer_lessons.tools import cli
from transformer_lessons.trainer import Trainer, configs
from transformer_lessons.trainer.checkpoints import average_checkpoints, load_model, snapshots
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.tasks import batches
from transformer_lessons.trainer.text_tasks import Wmt14

NOUNS = {"house": "Haus", "child": "Kind", "book": "Buch", "village": "Dorf", "country": "Land"}
VERBS = {"needs": "braucht", "sees": "sieht", "has": "hat"}


def news(source: random.Random) -> tuple[str, str]:
    (a, b), verb = source.sample(sorted(NOUNS), 2), source.choice(sorted(VERBS))
    return f"The {a} {verb} a {b}.", f"Das {NOUNS[a]} {VERBS[verb]} ein {NOUNS[b]}."


def write(folder, split: str, pairs: list[tuple[str, str]], packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(wmt14.LANGUAGES):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        if packed:
            (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{split}.{language}").write_bytes(content)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with 300 pairs to train on, as the variable names one, an empty cache, and no `datasets`."""
    source = random.Random(0)
    path = tmp_path / "data" / "wmt14"
    for split, count in (("train", 300), ("validation", 3), ("test", 7)):
        write(path, split, [news(source) for _ in range(count)])
    monkeypatch.setenv(wmt14.VARIABLE, str(tmp_path / "data"))
    monkeypatch.setattr(pooch, "os_cache", lambda name: str(tmp_path / "cache" / name))
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.chdir(tmp_path)
    return path


# ---- Where the sentences come from


def test_a_folder_is_read_line_by_line(folder):
    # A stray space, and characters at which str.splitlines would cut or which end a line elsewhere.
    odd = [(" Fine. ", "Gut.\u2028So."), ("", "Nichts."), ("a\x0bb", "c\rd")]
    write(folder, "test", odd)
    assert list(wmt14.sentences("test")) == [("Fine.", "Gut.\u2028So."), ("", "Nichts."), ("a\x0bb", "c\rd")]
    assert len(list(wmt14.sentences("train"))) == 300
    assert next(wmt14.sentences("train")) == next(wmt14.sentences("train"))


def test_unpacked_files_will_do(folder):
    (folder / "test.en.gz").unlink()
    (folder / "test.de.gz").unlink()
    write(folder, "test", [("One.", "Eins.")], packed=False)
    assert list(wmt14.sentences("test")) == [("One.", "Eins.")]
    assert wmt14.find("test.en") == folder / "test.en"


@pytest.mark.parametrize(("shorter", "longer"), [("en", "de"), ("de", "en")])
def test_two_files_of_different_lengths(folder, shorter, longer):
    (folder / f"test.{shorter}.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (folder / f"test.{longer}.gz").write_bytes(gzip.compress(b"a\nb\nc\n"))
    with pytest.raises(ValueError, match=rf"test\.{shorter}\.gz: expected as many lines as .*, got 2$"):
        list(wmt14.sentences("test"))


def test_a_folder_that_lacks_a_file(folder, capsys):
    (folder / "train.de.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"DATA: expected a folder with wmt14/train\.de\.gz, got "):
        list(wmt14.sentences("train"))
    assert cli.main(["train", "--task", "wmt14"]) == 2
    assert "expected a folder with wmt14/train.de.gz" in capsys.readouterr().err


@pytest.fixture
def home(folder, monkeypatch):
    """No folder, but a library that has the shape of `datasets`; returns its splits and how it was called."""
    monkeypatch.delenv(wmt14.VARIABLE)
    library, asked = types.ModuleType("datasets"), []
    rows = {"test": [("Hello.", "Hallo."), ("Yes. ", "Ja.")]}

    def load_dataset(path, name=None, *, split, revision, streaming):
        asked.append((path, name, split, revision, streaming))
        return ({"translation": {"de": german, "en": english}} for english, german in rows[split])

    library.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", library)
    return rows, asked


def test_the_library_streams_one_fixed_revision(home):
    _, asked = home
    assert list(wmt14.sentences("test")) == [("Hello.", "Hallo."), ("Yes.", "Ja.")]
    assert asked == [("wmt/wmt14", "de-en", "test", wmt14.REVISION, True)]
    assert len(wmt14.REVISION) == 40


@pytest.mark.parametrize("rows", [None, iter([("Hello.", "Hallo."), None])])
def test_a_network_that_is_not_there_or_goes_away(home, rows, monkeypatch):
    if rows:
        home[0]["test"] = rows
    else:
        monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: 1 / 0)
    with pytest.raises(
        OSError, match=r"wmt/wmt14: expected to stream it, got \w+Error: .* Where there is no network, TRANS"
    ):
        list(wmt14.sentences("test"))


def test_without_the_library(folder, monkeypatch, capsys):
    monkeypatch.delenv(wmt14.VARIABLE)
    assert cli.main(["train", "--task", "wmt14"]) == 2
    wanted = 'datasets: expected an installed library, got none: pip install "transformer-lessons[wmt14]"'
    assert wanted in capsys.readouterr().err


# ---- What is made of them, once


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Which splits were read from now on."""
    original, asked = wmt14.sentences, []
    monkeypatch.setattr(wmt14, "sentences", lambda split: asked.append(split) or original(split))
    return asked


def test_the_encoding_is_learned_once_from_both_languages(folder, read):
    texts = [text for pair in wmt14.sentences("train") for text in pair]
    read.clear()
    joint = wmt14.joint_encoding(300)
    assert joint.tokenizer.to_str() == Subwords.train(texts, 300).tokenizer.to_str()
    assert wmt14.joint_encoding(300).tokenizer.to_str() == joint.tokenizer.to_str()
    assert read == ["train"]
    assert len(wmt14.joint_encoding(290)) == 290
    assert read == ["train"] * 2
    write(folder, "train", [("Something else.", "Etwas anderes.")])
    assert wmt14.joint_encoding(300).tokenizer.to_str() != joint.tokenizer.to_str()


def test_the_training_set_is_encoded_once(folder, read, monkeypatch, capsys):
    monkeypatch.setattr(wmt14, "CHUNK", 7)
    texts = list(wmt14.sentences("train"))
    texts[3:5], texts[20] = [("", "Nur Deutsch."), ("Only English.", " ")], ("Long. " * 40, "Lang. " * 40)
    write(folder, "train", texts)
    joint = wmt14.joint_encoding(300)
    read.clear()
    pairs = wmt14.encoded(joint)
    whole = [*texts[:3], *texts[5:]]
    assert list(pairs) == [(joint.encode(e.strip()), joint.encode(d.strip())) for e, d in whole]
    assert list(wmt14.encoded(Subwords.load(pairs.folder.parent / "tokenizer-300.json"))) == list(pairs)
    assert read == ["train"]
    assert "WMT14, read to encode it" in capsys.readouterr().err
    other = wmt14.encoded(wmt14.joint_encoding(290))
    assert list(other) != list(pairs)
    assert len({path.name for path in pairs.folder.parent.glob("ids-*") if path.is_dir()}) == 2


def test_of_two_processes_one_encodes_and_the_other_waits(folder, monkeypatch):
    """Threads stand for them: the lock is the system's, and of the file."""
    joint, original, written = wmt14.joint_encoding(300), encoded.write_pairs, []
    both = threading.Barrier(2, timeout=60)

    def slowly(*arguments):
        written.append(threading.get_ident())
        threading.Event().wait(0.2)
        original(*arguments)

    monkeypatch.setattr(wmt14, "write_pairs", slowly)
    found = []
    threads = [
        threading.Thread(target=lambda: (both.wait(), found.append(list(wmt14.encoded(joint)))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert found[0] == found[1]
    assert len(found[0]) == 300


# ---- The paper's setup


def test_the_defaults_are_the_papers():
    """§5.1, §5.3, §5.4, Table 3 and §6.1; the schedule is equation 3."""
    task, training = Wmt14(), Wmt14.training
    assert TransformerConfig(task.vocab_size, task.vocab_size, **task.sizes) == TransformerConfig.base()
    assert (training.steps, training.tokens, training.snapshots) == (100_000, 50_000, 5)
    assert (training.smoothing, training.weight_decay, training.clip_norm) == (0.1, 0.0, None)
    for step in (1, 7, 3_999, 4_000, 4_001, 100_000):
        assert training.learning_rate(step) == pytest.approx(warmup_inverse_sqrt(step, 512, 4_000))
    assert task.extra_tokens == 50
    # The first step's rate, so that both could not be wrong alike.
    assert training.learning_rate(1) == pytest.approx(512**-0.5 * 4_000**-1.5)
    # A prolonged run has the same rates, even one that is stopped before the warm-up ends.
    assert replace(training, steps=10).learning_rate(10) == training.learning_rate(10)


def test_the_packaged_settings_are_those_of_base_and_big():
    base, big = (read_json(configs.find(f"wmt14-{name}")) for name in ("base", "big"))
    assert base["task"] == big["task"] == "wmt14"
    assert {**Wmt14.sizes, **base["model"]} == base["model"] == Wmt14.sizes
    assert TrainingConfig(**base["training"]) == Wmt14.training
    assert TransformerConfig(37_000, 37_000, **big["model"]) == TransformerConfig.big()
    training = TrainingConfig(**big["training"])
    assert training.learning_rate(4_000) == pytest.approx(warmup_inverse_sqrt(4_000, 1_024, 4_000))
    changed = {name for name, value in asdict(training).items() if value != getattr(Wmt14.training, name)}
    assert changed == {"steps", "peak_learning_rate", "snapshots", "checkpoint_every", "accumulate"}
    assert (training.steps, training.snapshots) == (300_000, 20)  # §5.2, §6.1


def test_a_name_of_settings_is_a_path_if_there_is_such_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert configs.find("wmt14-big").name == "wmt14-big.json"
    assert configs.find("wmt14-huge") == configs.Path("wmt14-huge")
    (tmp_path / "wmt14-big").write_text("{}")
    assert configs.find("wmt14-big") == configs.Path("wmt14-big")


def test_a_step_is_adams_without_clipping():
    config = replace(Wmt14.training, warmup_steps=3, accumulate=1)
    sizes = {"d_model": 6, "num_heads": 3, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(11, 11, **sizes, dropout=0.0, shared_vocabulary=True)).double()
    with torch.no_grad():
        model.output.weight.mul_(7)  # so that gradients are longer than 1
    theirs = Transformer(model.config).double()
    theirs.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), betas=(0.9, 0.98), eps=1e-9)
    pairs = [([3, 4, 5], [6, 7]), ([8], [9, 10, 3])]
    data = batches(pairs, 20, replace(config, tokens=11))
    trainer = Trainer(model, data, config)
    for step in range(1, 5):
        batch, real = data[step - 1], data[step - 1].tgt_out != 0
        logits = theirs(batch.src, batch.tgt_in)[real]
        log_p = logits.log_softmax(-1)
        q = torch.full_like(log_p, 0.1 / 10)
        q[:, 0] = 0.0
        q[range(len(q)), batch.tgt_out[real]] += 0.9
        optimizer.zero_grad()
        (-(q * log_p).sum(-1).mean()).backward()
        optimizer.param_groups[0]["lr"] = 512**-0.5 * 4_000**-0.5 * min((3 / step) ** 0.5, step / 3)
        optimizer.step()
        assert trainer.train_step()["gradient_norm"] > 1
    for ours, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert_close(ours, other, tolerance=1e-8)  # a step is 1e-3 wide, and ε lifts rounding errors


def test_pairs_that_are_too_long_are_left_out_and_counted(folder, capsys):
    texts = list(wmt14.sentences("train"))
    texts[5] = ("word " * 300, "Wort")
    texts[6] = ("a " * 30, "b")
    write(folder, "train", texts)
    task = Wmt14()
    joint, _ = task.tokenisers()
    pairs = task.pairs(joint, joint, task.training)
    assert isinstance(pairs, EncodedPairs)
    assert len(pairs) == 299
    assert "left out: 1 of 300 pairs, which have more than 256 tokens" in capsys.readouterr().err
    # Nor may they be longer than the model, or than a packed row.
    lengths = [max(size) for size in (pairs.sizes + np.array([0, 1])).tolist()]
    for max_length, packed_length in ((20, None), (99, 20)):
        config = TrainingConfig(tokens=200, packed_length=packed_length)
        data = batches(pairs, max_length, config)
        assert isinstance(data, PackedBatches) is (packed_length is not None)
        assert len(data.pairs) == sum(length <= 20 for length in lengths) == 298
        assert "left out: 1 of 299 pairs, which have more than 20 tokens" in capsys.readouterr().err
    assert len(task.pairs(joint, joint, replace(task.training, training_pairs=50))) == 49


# ---- From the first step to a translation


@pytest.fixture
def small(folder, tmp_path):
    """A config.json with which a run is short; everything else is the task's."""
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
    training = {"steps": 7, "tokens": 200, "warmup_steps": 3, "checkpoint_every": 2, "snapshots": 3}
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"task": "wmt14", "model": sizes, "training": training}))
    return path


def lessons(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    return code, *capsys.readouterr()


def test_a_run_interrupted_resumed_judged_and_used(small, tmp_path, capsys, monkeypatch, read):
    train = ["train", "--device", "cpu"]
    assert lessons(capsys, *train, "--config", str(small), "--output", "whole")[0] == 0
    assert read == ["train", "train", "test"]  # for the encoding, for the ids, and to be judged

    original = Trainer.train_step
    with monkeypatch.context() as patch:
        patch.setattr(
            Trainer,
            "train_step",
            lambda self: (self.step == 3 and signal.raise_signal(signal.SIGINT), original(self))[1],
        )
        code, _, error = lessons(capsys, *train, "--config", str(small))
    assert code == 130
    assert error.splitlines()[-1] == (
        "stopped after step 4; to go on: lessons train --resume --task wmt14"  # word for word
    )
    assert read == ["train", "train", "test"]  # nothing is encoded again
    code, out, _ = lessons(capsys, *train, "--resume", "--task", "wmt14")
    assert code == 0
    assert out.startswith("runs/wmt14: BLEU ")
    assert out.endswith(" on 7 sentences of newstest2014, en-de\n")

    run = tmp_path / "runs" / "wmt14"
    saved = read_json(run / "config.json")
    assert saved["model"]["shared_vocabulary"]
    assert saved["training"]["schedule"] == "inverse_sqrt"
    record = read_json(run / "record.json")
    assert (record["n"], record["steps"], record["direction"]) == (7, 7, "en-de")
    assert record["signature"].startswith("nrefs:1|case:mixed|")
    # The same weights as without an interruption: the mean of the last snapshots.
    resumed, uninterrupted = load_model(run)[0].state_dict(), load_model(tmp_path / "whole")[0].state_dict()
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in resumed)
    assert [path.name for path in snapshots(run)] == [f"weights-00000{n}.pt" for n in (4, 6, 7)]
    mean = average_checkpoints(snapshots(run))
    assert all(torch.equal(mean[name], tensor) for name, tensor in resumed.items())

    code, out, _ = lessons(capsys, "evaluate", "--model", str(run), "--beam", "4")
    assert code == 0
    assert out.startswith("BLEU ")
    assert f", {record['signature']}\n" in out
    monkeypatch.setattr(sys, "stdin", io.StringIO("The house needs a book.\nThe child.\n"))
    code, out, _ = lessons(capsys, "translate", "--model", str(run))
    assert code == 0
    assert len(out.splitlines()) == 2


def test_translations_are_limited_as_in_the_paper(small, capsys, monkeypatch):
    """Of a run, and of the test set: at most 50 tokens more than the source has (§6.1)."""
    asked = []
    monkeypatch.setattr(
        "transformer_lessons.trainer.evaluation.greedy",
        lambda model, src, *, max_length: asked.append((src.size(1), max_length)) or src,
    )
    assert lessons(capsys, "train", "--config", str(small), "--steps", "1", "--device", "cpu")[0] == 0
    code, *_ = lessons(capsys, "translate", "--model", "runs/wmt14", "The house needs a book.")
    assert code == 0
    assert len(asked) == 2
    assert all(most == width + 50 for width, most in asked)
