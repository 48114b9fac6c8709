"""Short runs in this process, as the command line makes them: their files, and what is said of them."""

import json
import signal
from pathlib import Path

import pytest
import torch

from transformer_lessons.tools import cli
from transformer_lessons.trainer import Trainer, distributed
from transformer_lessons.trainer.checkpoints import average_checkpoints, load_model, snapshots
from transformer_lessons.trainer.runs import default_directory
from transformer_lessons.trainer.tasks import NumberWords

FOLDER = default_directory(NumberWords())


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The settings of a run that takes a moment, with dropout, so that the random state matters."""
    monkeypatch.chdir(tmp_path)
    sizes = {"d_model": 6, "num_heads": 3, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    training = {"steps": 7, "batch_size": 5, "training_pairs": 53, "warmup_steps": 2, "checkpoint_every": 3}
    return {"model": {**sizes, "dropout": 0.1}, "training": training}


@pytest.fixture(autouse=True)
def judged(monkeypatch):
    """The beam sizes that were asked for; nothing is translated, every second answer is right."""
    asked = []

    def evaluate(self, model, source, target, beam_size):
        asked.append(beam_size)
        example = {"number": 5, "expected": "fünf", "got": "zwölf"}
        return {"exact_match": 0.5, "n": 2, "errors": {"wrong part": 1}, "examples": [example]}

    monkeypatch.setattr(NumberWords, "evaluate", evaluate)
    return asked


@pytest.fixture
def train(config, capsys):
    """``lessons train``; returns its exit code and what it printed."""

    def command(*more: str, **changes) -> tuple[int, str, str]:
        settings = {**config, "training": {**config["training"], **changes}}
        Path("small.json").write_text(json.dumps(settings))
        given = () if "--resume" in more else ("--config", "small.json")
        code = cli.main(["train", "--device", "cpu", *given, *more])
        return code, *capsys.readouterr()

    return command


def interrupted_after(monkeypatch, step: int) -> None:
    """Ctrl-C comes during that step."""
    original = Trainer.train_step

    def train_step(self):
        if self.step + 1 == step:
            signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Trainer, "train_step", train_step)


def counted(monkeypatch) -> list[int]:
    """The steps that are taken from now on."""
    original, taken = Trainer.train_step, []

    def train_step(self):
        taken.append(self.step + 1)
        return original(self)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return taken


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder)[0].state_dict()


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_says_how_it_ended_and_leaves_the_weights_of_its_last_step(train):
    code, out, _ = train()
    assert (code, out) == (0, "runs/number-words: 50.0% exact match on 2 numbers never trained on\n")
    checkpoint = torch.load(FOLDER / "checkpoint.pt")
    assert checkpoint["step"] == json.loads((FOLDER / "record.json").read_text())["steps"] == 7
    assert same(weights(FOLDER), checkpoint["model"])


@pytest.mark.parametrize("output", [[], ["--output", "elsewhere"]])
def test_an_interrupted_run_says_how_to_go_on_and_ends_as_any_other(train, monkeypatch, output):
    train("--output", "uninterrupted")
    with monkeypatch.context() as patch:
        interrupted_after(patch, 4)
        code, out, error = train(*output)
    assert (code, out) == (130, "")
    hint = "stopped after step 4; to go on: lessons train --resume"
    assert error.splitlines()[-1] == " ".join([hint, *output])
    taken = counted(monkeypatch)
    # Word for word, as a user would copy it.
    assert train(*error.splitlines()[-1].split("lessons train ")[1].split())[0] == 0
    assert taken == [5, 6, 7]  # begun anew, it would end the same
    folder = Path(output[1]) if output else FOLDER
    assert same(weights(folder), weights(Path("uninterrupted")))
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(1, 8)]


def test_one_command_starts_a_run_and_goes_on_with_it(train, monkeypatch):
    """As it is repeated where something else starts it again, whatever is there by then."""
    train("--output", "uninterrupted")
    again = ("--resume-or-start",)
    with monkeypatch.context() as patch:
        interrupted_after(patch, 4)
        assert train(*again)[0] == 130
    taken = counted(monkeypatch)
    (FOLDER / "checkpoint.pt").rename("kept.pt")  # as if it had been cut off before the first one
    with monkeypatch.context() as patch:
        interrupted_after(patch, 3)
        assert train(*again)[0] == 130
    assert taken == [1, 2, 3]
    Path("kept.pt").rename(FOLDER / "checkpoint.pt")
    assert train(*again)[0] == 0
    assert taken == [1, 2, 3, 5, 6, 7]
    assert same(weights(FOLDER), weights(Path("uninterrupted")))
    assert train(*again)[:2] == (0, "runs/number-words: 50.0% exact match on 2 numbers never trained on\n")
    assert taken == [1, 2, 3, 5, 6, 7]


def test_a_model_that_is_done_is_not_discarded_for_want_of_a_checkpoint(train):
    train()
    (FOLDER / "checkpoint.pt").unlink()
    code, _, error = train("--resume-or-start")
    assert code == 2
    assert "runs/number-words holds a run; --resume goes on with it, --overwrite discards it" in error


def test_a_checkpoint_that_one_process_sees_is_one_for_all(train, monkeypatch):
    """Those that do not see the run's folder say so, and do not begin beside the others."""
    monkeypatch.setattr(distributed, "any_of", lambda value, device: True)
    code, _, error = train("--resume-or-start")
    assert (code, error) == (2, f"lessons train: resume: expected a run, found no {FOLDER / 'config.json'}\n")


def test_a_resumed_run_may_hold_its_model_in_another_way(train, monkeypatch):
    """It changes nothing that is learned; whatever else would is refused."""
    train("--output", "uninterrupted")
    folders = []
    for step, how in ((2, "--shard"), (5, "--no-shard"), (6, "--shard")):
        with monkeypatch.context() as patch:
            interrupted_after(patch, step)
            assert train(how, *(["--resume"] if folders else []))[0] == 130
        folders.append([path.name for path in FOLDER.iterdir() if path.name.startswith("checkpoint")])
    assert folders == [["checkpoint"], ["checkpoint.pt"], ["checkpoint"]]
    assert train("--resume")[0] == 0
    assert json.loads((FOLDER / "config.json").read_text())["training"]["shard"]
    assert same(weights(FOLDER), weights(Path("uninterrupted")))


def test_of_a_run_that_keeps_snapshots_the_model_is_their_mean(train):
    train(snapshots=2)
    mean, last = average_checkpoints(snapshots(FOLDER)), torch.load(snapshots(FOLDER)[-1])
    assert len(snapshots(FOLDER)) == 2
    assert same(weights(FOLDER), mean)
    assert not same(weights(FOLDER), last)


def test_a_run_is_judged_as_evaluate_judges_it(train, judged):
    assert train()[0] == 0
    assert cli.main(["evaluate"]) == 0
    assert judged[0] == judged[1]


def test_an_old_run_is_discarded_once_all_processes_saw_it_and_before_the_first_step(train, monkeypatch):
    """Else the new run, if it was cut off, would have the old one's record."""
    train(snapshots=1)
    old = {"checkpoint.pt", "metrics.jsonl", "record.json", "weights-000007.pt"}
    left = {}

    def look(when: str) -> None:
        left[when] = old & {path.name for path in FOLDER.iterdir()}

    monkeypatch.setattr(distributed, "wait", lambda: look("all have read the settings"))
    monkeypatch.setattr(Trainer, "run", lambda self: bool(look("the first step")))
    train("--overwrite")
    assert left == {"all have read the settings": old, "the first step": set()}
