"""The command line: what it prints, and that a wrong word gets one readable line and exit code 2."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from transformer_lessons import __version__
from transformer_lessons.data.number_words import english, german
from transformer_lessons.oracles import Case, cases
from transformer_lessons.oracles.measure import Deviation
from transformer_lessons.tools import cli, doctor
from transformer_lessons.trainer import runs, tasks
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.runs import settings_of
from transformer_lessons.trainer.tasks import NumberWords


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No run of a developer's own may be picked up."""
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = cli.main(arguments)
    except SystemExit as leave:
        code = leave.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["train", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["train", "--steps", "0"], "steps: expected an integer, 1 or more, got 0"),
        (["train", "--seed", "-1"], "seed: expected an integer, 0 or more, got -1"),
        (["train", "--task", "chess"], "invalid choice: 'chess'"),
        (["train", "--resume"], "resume: expected a run, found no runs/number-words/config.json"),
        (["train", "--resume", "--overwrite"], "not allowed with argument"),
        (["train", "--config", "no.json"], "no.json"),
        (["train", "--device", "abacus"], "invalid choice: 'abacus'"),
        (["evaluate", "--model", "nowhere"], "model: expected a folder with config.json, got nowhere"),
        (["evaluate", "--njson"], "unrecognized arguments: --njson"),
        (["oracles", "--seeds", "0"], "seeds: expected 1 or more, got 0"),
        (["translate", "minus", "five"], "number: expected 0 to 999,999"),
        (["translate", "--beam", "0", "7"], "beam_size: expected an integer, 1 or more, got 0"),
        (["translate", "-5"], "number: expected 0 to 999,999, got -5"),
        (["translate", "1000000"], "number: expected 0 to 999,999, got 1,000,000"),
        (["translate", "forty-towo"], "number: expected digits or English number words, got 'towo'"),
        (["translate", ""], "got nothing"),
        (["translate", "--model", "nowhere", "7"], "model: expected a folder"),
    ],
)
def test_a_wrong_word_gets_one_line_and_exit_code_2(capsys, arguments, complaint):
    code, out, error = run(capsys, *arguments)
    lines = [line for line in error.splitlines() if not line.startswith("model: ")]
    assert code == 2
    assert out == ""
    assert len(lines) == 1, error
    assert complaint in lines[0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "expected JSON"),
        ('{"model": {"depth": 3}}', "model: expected some of .*, got depth"),
        ('{"training": [1]}', r"training: expected some of .*, got \[1\]"),
        (
            '{"model": {"d_model": 21, "num_heads": 4}}',
            "num_heads: expected a divisor of d_model = 21, got 4",
        ),
        (
            '{"model": {"max_length": 9}, "training": {"training_pairs": 99}}',
            r"sources: expected at most 9 tokens each, got \d+ longer: number ",
        ),
        ('{"training": {"batch_size": 99999}}', "batch_size: expected 1 to 20000"),
        ('{"training": {"recompute": "yes"}}', "recompute: expected True or False, got 'yes'"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_config_that_makes_no_sense(capsys, tmp_path, content, complaint):
    (tmp_path / "config.json").write_text(content)
    code, _, error = run(capsys, "train", "--config", "config.json", "--output", "run")
    assert code == 2
    assert len(error.splitlines()) == 1
    assert re.search(complaint, error)
    assert not (tmp_path / "run").exists()


def test_translate_words_and_digits(capsys):
    for text in (["421"], [english(421)], ["Four", "Hundred", "Twenty-One"]):
        code, out, _ = run(capsys, "translate", *text)
        assert (code, out) == (0, "vierhunderteinundzwanzig\n")


def test_translate_lines(capsys, monkeypatch):
    numbers = [*range(0, 999_999, 9_973)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{english(n)}\n" for n in numbers)))
    code, out, _ = run(capsys, "translate")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == len(numbers)
    assert sum(line == german(n) for line, n in zip(lines, numbers, strict=True)) >= 0.97 * len(numbers)


def test_an_unreadable_line_keeps_its_place(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("12\nzwölf\n\ntwenty-one"))
    code, out, error = run(capsys, "translate")
    assert code == 2
    assert out.splitlines() == ["zwölf", "", "", "einundzwanzig"]
    assert "line 2: number: expected digits or English number words, got 'zwölf'" in error
    assert "line 3: number: expected digits or English number words, got nothing" in error


def test_nothing_but_unreadable_lines(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("zwölf\n\n"))
    code, out, _ = run(capsys, "translate")
    assert (code, out) == (2, "\n\n")


class Terminal(io.StringIO):
    """Standard input that a person types into, who waits for each answer before going on."""

    def __init__(self, text: str, output: list[str]):
        super().__init__(text)
        self.output, self.seen = output, []

    def isatty(self):
        return True

    def __next__(self):
        self.seen.append(len(self.output))
        return super().__next__()


def test_at_a_terminal_each_line_is_answered_at_once(capsys, monkeypatch):
    answers = []

    def note(*lines, file=None, flush=False, **_):
        if file is None:
            assert flush  # or the answer waits in a buffer
            answers.extend(lines)
        else:
            print(*lines, file=file)

    terminal = Terminal("12\nzwölf\n3\n", answers)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(cli, "print", note, raising=False)
    code, _, error = run(capsys, "translate")
    assert code == 2
    assert answers == ["zwölf", "", "drei"]
    assert terminal.seen == [0, 1, 2, 3]
    assert "line 2: number" in error


def test_a_file_is_translated_in_batches_and_its_lines_counted_throughout(capsys, monkeypatch):
    batches = []

    def translations(task, parts, sentences, beam_size):
        batches.append(len(sentences))
        return ["eins"] * len(sentences)

    monkeypatch.setattr(cli, "translations", translations)
    monkeypatch.setattr(cli, "chosen_model", lambda _: (NumberWords(), ()))
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n" * 66 + "zwölf\n"))
    code, out, error = run(capsys, "translate")
    assert code == 2
    assert batches == [64, 2]
    assert out.splitlines() == ["eins"] * 66 + [""]
    assert "line 67: number" in error


def test_evaluate_says_what_went_wrong(capsys, monkeypatch):
    examples = [{"number": 5, "expected": "fünf", "got": "zwölf"}]
    asked = []

    def result(model, source, target, numbers, *, beam_size):
        asked.append((len(numbers), beam_size))
        return {"exact_match": 0.998, "n": 1000, "errors": {"wrong part": 2}, "examples": examples}

    monkeypatch.setattr(tasks, "evaluate_number_words", result)
    code, out, _ = run(capsys, "evaluate", "--beam", "3")
    assert code == 0
    assert out.splitlines() == [
        "99.8% exact match on 1,000 numbers never trained on",
        "     2 × wrong part",
        "       5: zwölf instead of fünf",
    ]
    assert '"got": "zwölf"' in run(capsys, "evaluate", "--json")[1]
    assert asked == [(1000, 3), (1000, 1)]


def test_what_is_not_said_is_as_the_help_says():
    assert cli.make_parser().prog == "lessons"
    chosen = cli.make_parser().parse_args(["train"])
    assert (chosen.device, chosen.resume, chosen.overwrite, chosen.compile) == ("auto", False, False, False)
    assert (chosen.task, chosen.output, chosen.precision) == (None, None, None)
    task, directory, sizes, config = settings_of(chosen)
    assert (task.name, directory.as_posix()) == ("number-words", "runs/number-words")
    assert (sizes, config) == (NumberWords.sizes, TrainingConfig())
    assert cli.make_parser().parse_args(["oracles"]).seeds == 3
    assert cli.make_parser().parse_args(["translate"]).beam == 1


def test_a_config_says_what_is_computed_again(tmp_path):
    (tmp_path / "config.json").write_text('{"training": {"recompute": true}}')
    chosen = cli.make_parser().parse_args(["train", "--config", str(tmp_path / "config.json")])
    assert settings_of(chosen)[3].recompute
    assert not settings_of(cli.make_parser().parse_args(["train"]))[3].recompute


def test_compiling_is_a_setting_of_the_run():
    assert settings_of(cli.make_parser().parse_args(["train", "--compile"]))[3].compile


@pytest.mark.parametrize(("is_done", "code"), [(True, 0), (False, 130)])
def test_a_process_beside_the_first_says_how_it_ended(monkeypatch, capsys, is_done, code):
    """Nothing is printed; torchrun reads the exit code."""
    monkeypatch.setattr(runs.distributed, "process_group", lambda device: nullcontext(device))
    monkeypatch.setattr(runs.distributed, "rank", lambda: 1)
    monkeypatch.setattr(runs, "new_trainer", lambda *_: None)
    monkeypatch.setattr(runs, "run", lambda *_: is_done)
    assert runs.train(cli.make_parser().parse_args(["train", "--device", "cpu"])) == code
    assert capsys.readouterr() == ("", "")


def test_a_missing_device_is_named_with_those_that_are_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match=r"device: expected one of cpu, mps, got cuda$"):
        runs.choose_device("cuda")


def test_evaluate(capsys):
    code, out, _ = run(capsys, "evaluate", "--json")
    result = json.loads(out)
    assert code == 0
    assert result.keys() >= {"exact_match", "n", "errors"}
    code, out, _ = run(capsys, "evaluate")
    assert code == 0
    assert f"{result['exact_match']:.1%} exact match on 1,000 numbers never trained on" in out


def test_doctor(capsys):
    code, out, _ = run(capsys, "doctor")
    facts = dict(re.split(r"\s{2,}|(?<=^.{20}) ", line, maxsplit=1) for line in out.splitlines()[:-1])
    assert code == 0
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == str(torch.get_num_threads())
    assert {name: facts[name] for name in ("numpy", "jaxtyping", "safetensors", "tqdm")} == {
        name: version(name) for name in ("numpy", "jaxtyping", "safetensors", "tqdm")
    }
    assert facts["trained model"] == "421 is vierhunderteinundzwanzig"
    assert out.splitlines()[-1] == "all is well"


def test_doctor_names_the_gpu(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(doctor, "versions", lambda _: {"device": "a card"})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert re.search(r"^compute capability +9\.0$", out, re.MULTILINE)


def test_doctor_finds_a_model_that_is_wrong(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "translations", lambda *_: ["zwölf"])
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "421 is zwölf, which is wrong" in out
    assert out.splitlines()[-1] == "something is wrong with this installation"


def test_doctor_finds_a_missing_model(capsys, monkeypatch):
    def missing(directory=None):
        raise ValueError("model: expected a folder with weights.safetensors, got an empty one")

    monkeypatch.setattr(doctor, "load_model", missing)
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "unusable: model: expected a folder with weights.safetensors" in out


def test_train_does_not_discard_a_run(capsys, tmp_path):
    config = {"d_model": 6, "num_heads": 3, "num_decoder_layers": 1, "max_length": 24}
    training = {"steps": 3, "training_pairs": 11, "batch_size": 5}
    (tmp_path / "small.json").write_text(json.dumps({"model": config, "training": training}))
    code, out, _ = run(capsys, "train", "--config", "small.json")
    assert code == 0
    assert out.startswith("runs/number-words: ")
    weights = (tmp_path / "runs/number-words/weights.safetensors").read_bytes()

    code, _, error = run(capsys, "train", "--config", "small.json")
    assert code == 2
    assert "runs/number-words holds a run; --resume goes on with it, --overwrite discards it" in error
    code, _, error = run(capsys, "train", "--resume", "--steps", "5")
    assert code == 2
    assert "steps: the run in runs/number-words has 3, got 5" in error
    assert (tmp_path / "runs/number-words/weights.safetensors").read_bytes() == weights

    assert run(capsys, "train", "--config", "small.json", "--overwrite", "--seed", "1")[0] == 0
    assert (tmp_path / "runs/number-words/weights.safetensors").read_bytes() != weights
    assert "model: runs/number-words" in run(capsys, "translate", "7")[2]


def test_ctrl_c_has_its_exit_code(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "load_model", interrupted)
    assert run(capsys, "evaluate")[0] == 130


def test_version_and_help(capsys):
    assert run(capsys, "--version")[:2] == (0, f"transformer-lessons {__version__}\n")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(command in out for command in ("train", "evaluate", "translate", "doctor"))


def test_a_reader_that_goes_away_is_no_error():
    script = f"yes 12 | head -20000 | '{sys.executable}' -m transformer_lessons translate | head -1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout == "zwölf\n"
    assert [line for line in result.stderr.splitlines() if not line.startswith("model: ")] == []


# --- oracles


def case(value: float, gradient: float | None, **options) -> Case:
    return Case("norms.Ours", "nn.Theirs", lambda dtype, **chosen: Deviation(value, gradient), options)


def test_oracles_prints_a_line_for_each(capsys, monkeypatch):
    found = [case(2.5e-11, None, beams=2), case(0.0, 1.5e-16), case(0.5, 0.25)]
    missing = Case("a", "b", found[0].compare, needs="a_library_that_is_not_there")
    monkeypatch.setattr(cli, "cases", lambda: [*found[:2], missing])
    code, out, error = run(capsys, "oracles")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["norms.Ours", "(beams=2)", "nn.Theirs", "2.5e-11", "–", "2.5e-11", "–"],
        ["norms.Ours", "nn.Theirs", "0.0e+00", "1.5e-16", "0.0e+00", "1.5e-16"],
        "2 comparisons, none out of bounds (1e-10 in float64, 1e-5 in float32)".split(),
    ]
    assert "skipped: 1 of 3, which need a_library_that_is_not_there" in error

    monkeypatch.setattr(cli, "cases", lambda: found)
    code, out, _ = run(capsys, "oracles")
    assert code == 1
    assert out.splitlines()[3].endswith("2.5e-01   OUT OF BOUNDS")
    assert "3 comparisons, 1 out of bounds" in out


def test_oracles_that_agree_in_one_precision_only(capsys, monkeypatch):
    monkeypatch.setattr(cli, "cases", lambda: [case(1e-7, 1e-7)])
    code, out, _ = run(capsys, "oracles", "--json")
    assert code == 1
    (row,) = json.loads(out)["rows"]
    assert row["within_bounds"] is False
    assert row["float32"] == row["float64"] == {"value": 1e-7, "gradient": 1e-7}


def test_oracles_for_real(capsys, monkeypatch):
    monkeypatch.setattr(cli, "cases", lambda: [c for c in cases() if c.component.startswith("norms.")])
    code, out, _ = run(capsys, "oracles", "--seeds", "1")
    assert code == 0
    assert out.count("norms.") == 4


def test_a_reader_who_leaves_is_no_mistake(monkeypatch):
    """As in ``lessons translate | head``; what is still in the buffer goes nowhere, so exit stays quiet."""
    redirected = []

    def doctor(chosen):
        raise BrokenPipeError

    monkeypatch.setattr(cli, "doctor", doctor)
    monkeypatch.setattr(
        cli,
        "os",
        SimpleNamespace(
            open=lambda path, flags: (path, flags),
            dup2=lambda old, new: redirected.append((old, new)),
            devnull=os.devnull,
            O_WRONLY=os.O_WRONLY,
        ),
    )
    monkeypatch.setattr(cli, "sys", SimpleNamespace(stdout=SimpleNamespace(fileno=lambda: 97)))
    assert cli.main(["doctor"]) == 0
    assert redirected == [((os.devnull, os.O_WRONLY), 97)]


def test_a_precision_that_is_none(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--precision", "half"])
    assert ended.value.code == 2
    assert "--precision: invalid choice: 'half'" in capsys.readouterr().err
