"""The command line: its output and files; a wrong argument gets one readable line and exit code 2."""

import argparse
import io
import json
import re
import shlex
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from transformer_lessons import __version__, decoding
from transformer_lessons.data.number_words import english, german
from transformer_lessons.fast import decoding as fast_decoding
from transformer_lessons.fast.kernels import FusedMultiHeadAttention
from transformer_lessons.oracles import Case
from transformer_lessons.oracles.measure import Deviation
from transformer_lessons.tools import cli
from transformer_lessons.trainer import Trainer, configs, distributed, runs
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.runs import settings_of
from transformer_lessons.trainer.tasks import NumberWords

ROOT = Path(__file__).parents[1]
FOLDER = Path("runs/number-words")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty folder, so that no run of the developer's own is picked up."""
    monkeypatch.chdir(tmp_path)


def parsed(*words: str) -> argparse.Namespace:
    return cli.make_parser().parse_args(words)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("train --steps 0", "steps: expected 1 or more, got 0"),
        ("train --resume", "resume: expected a run, found no runs/number-words/config.json"),
        ("train --resume --overwrite", "not allowed with argument"),
        ("train --config no.json", "no.json"),
        ("evaluate --model nowhere", "model: expected a folder with config.json, got 'nowhere'"),
        ("evaluate --njson", "unrecognized arguments: --njson"),
        ("evaluate --source a.en", "source: expected two files, --source and --target, got one"),
        (
            "evaluate --source a.en --target a.de",
            "source: expected a model of texts, got one of number-words",
        ),
        ("translate --beam 0 7", "beam_size: expected 1 or more, got 0"),
        ("translate -5", "number: expected 0 to 999,999, got -5"),
        (
            "translate forty-towo",
            "number: expected one below 1,000,000 in digits or English words, got 'towo'",
        ),
    ],
)
def test_a_wrong_argument_gets_one_line_and_exit_code_2(lessons, command, complaint):
    code, out, error = lessons(*shlex.split(command))
    (line,) = [line for line in error.splitlines() if not line.startswith("model: ")]
    assert (code, out) == (2, "")
    assert complaint in line


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "expected JSON"),
        ('{"task": "chess"}', "task: expected one of number-words, multi30k, wmt14, text, got 'chess'"),
        ('{"models": {"d_model": 32}}', "config.json: expected parts among data, .*, got .'models'."),
        ('{"model": {"depth": 3}}', "config.json: .* unexpected keyword argument 'depth'"),
        ('{"data": {"colour": 1}}', "colour: number-words has no such setting"),
        ('{"data": 5}', "data: expected an object, got 5"),
        ('{"task": []}', r"task: expected one of number-words, .*, got \[\]"),
        ('{"model": {"max_length": 1}}', "pairs: expected some with at most 1 tokens per side, got 0"),
        ('{"training": {"batch_size": 99999}}', "batch_size: expected 1 to 20000"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_an_invalid_config_gets_one_line_and_creates_no_run(lessons, content, complaint):
    Path("config.json").write_text(content)
    code, _, error = lessons("train", "--config", "config.json", "--output", "run")
    assert code == 2
    assert len(error.splitlines()) == 1
    assert re.search(complaint, error)
    assert not Path("run").exists()


BOOK = ROOT / "book"
PATHS = [ROOT / "README.md", *BOOK.glob("*.md"), *BOOK.glob("_templates/*.jinja")]
# A command may span several lines.
PAGES = {path.name: re.sub(r" \\\n *", " ", path.read_text(encoding="utf-8")) for path in PATHS}
SHOWN = [
    (name, match[1])
    for name, text in PAGES.items()
    for match in re.finditer(r"(?:^ *|`|-m transformer_)lessons ([a-z][^`#\n]*)", text, re.M)
]


@pytest.mark.parametrize(("page", "command"), SHOWN)
def test_every_command_shown_on_a_page_can_be_parsed(page, command):
    words = shlex.split(command.split("  ")[0].split(" > ")[0])
    given = parsed(*words, *["FILE"] * (words == ["check-submission"]))  # shown without its file
    config = getattr(given, "config", None)
    if config and not config.is_file():  # the page shows what is in it
        (block,) = re.findall(r"```json\n(.+?)```", PAGES[page], re.S)
        config.write_text(block)
        assert settings_of(given)[1] == given.output


def test_pages_show_commands_and_configs_are_found_by_name():
    assert len({page for page, _ in SHOWN}) >= 5
    assert len(SHOWN) >= 25
    (block,) = re.findall(r"```json\n(.+?)```", PAGES["wmt14.md"], re.S)
    Path("less.json").write_text(block)
    task, _, sizes, training = settings_of(parsed("train", "--config", "less.json"))
    assert (task.name, sizes, training.recompute) == ("wmt14", task.sizes, True)
    assert configs.find("wmt14-huge") == Path("wmt14-huge")
    Path("wmt14-base").mkdir()  # a run's folder, say
    assert configs.find("wmt14-base").is_file()
    Path("wmt14-big").write_text("{}")  # a file of the user's own comes first
    assert configs.find("wmt14-big") == Path("wmt14-big")


def test_options_that_are_left_out_have_their_defaults():
    task, directory, sizes, config = settings_of(parsed("train"))
    assert (task.name, directory) == ("number-words", FOLDER)
    assert (sizes, config) == (NumberWords.sizes, TrainingConfig())
    assert (parsed("train").device, parsed("translate").beam) == ("auto", 1)
    changed = settings_of(parsed("train", "--compile", "--plain", "--shard", "--steps", "9"))[3]
    assert (changed.compile, changed.plain, changed.shard, changed.steps) == (True, True, True, 9)


# ---- Translating


@pytest.mark.parametrize("beam", ["1", "3"])
def test_translate_words_and_digits_with_and_without_the_faster_parts(lessons, monkeypatch, beam):
    used, name = [], "greedy" if beam == "1" else "beam"
    for module in (decoding, fast_decoding):
        original = getattr(module, name)

        def noted(model, *given, module=module, original=original, **how):
            is_fast = type(model.decoder_layers[0].cross_attention) is FusedMultiHeadAttention
            used.append((module.__name__.removeprefix("transformer_lessons."), is_fast))
            return original(model, *given, **how)

        monkeypatch.setattr(module, name, noted)
    for text in (["421"], [english(421)], ["--plain", "Four", "Hundred", "Twenty-One"], ["--int8", "421"]):
        code, out, error = lessons("translate", "--beam", beam, *text)
        assert (code, out) == (0, "vierhunderteinundzwanzig\n")
        assert error == "model: the one that comes with the package\n"
    fast = ("fast.decoding", True)
    assert used == [fast, fast, ("decoding", False), fast]


def test_compiling_takes_a_compiler(lessons, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    code, out, error = lessons("translate", "--compiled", "421")
    assert (code, out) == (2, "")
    about, refusal = error.splitlines()[-2:]
    assert about.startswith(
        f"compiling a decoding step, once for this model ({tmp_path}/transformer_lessons/"
    )
    assert refusal.startswith("lessons translate: compiling takes a C++ compiler, ")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_output_is_utf_8_wherever_it_goes(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert cli.main(["symptoms", "NaN"]) == 0
    assert "√" in written.getvalue().decode("utf-8")


def test_translate_lines_in_their_places(lessons, monkeypatch):
    numbers = [*range(0, 999_999, 9_973)]
    lines = [english(n) for n in numbers]
    lines[67], lines[70] = "zw\udcfflf", ""  # not UTF-8, and nothing
    given = io.BytesIO(b"\xef\xbb\xbf" + "\n".join(lines).encode(errors="surrogateescape"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given, encoding="utf-8"))
    code, out, error = lessons("translate")
    assert code == 2
    assert (
        "line 68: number: expected one below 1,000,000 in digits or English words, got 'zw\\udcfflf'\n"
        in error
    )
    assert "line 71: number: expected one below 1,000,000 in digits or English words, got nothing\n" in error
    assert [number for number, line in enumerate(out.splitlines()) if not line] == [67, 70]
    right = [line == german(n) for line, n in zip(out.splitlines(), numbers, strict=True)]
    assert sum(right) >= 0.95 * len(numbers)
    monkeypatch.setattr(sys, "stdin", io.StringIO("zwölf\n\n"))
    assert lessons("translate")[:2] == (2, "\n\n")


def test_at_a_terminal_each_line_is_answered_at_once(lessons, monkeypatch):
    terminal, asked, original = io.StringIO("12\nzwölf\n3\n"), [], cli.translations
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(cli, "translations", lambda *given: asked.append(terminal.tell()) or original(*given))
    assert lessons("translate")[:2] == (2, "zwölf\n\ndrei\n")
    assert asked == [3, 9, 11]  # how far it has been read


def test_a_closed_output_pipe_is_no_error():
    lessons = f"'{sys.executable}' -m transformer_lessons translate"
    script = f"set -o pipefail; {lessons} 5 | true && yes 12 | head -20000 | {lessons} | head -1"
    command, environment = ["bash", "-c", script], {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert result.stdout == "zwölf\n"
    assert [line for line in result.stderr.splitlines() if not line.startswith("model: ")] == []


# ---- Training: short runs without a real evaluation


@pytest.fixture
def judged(monkeypatch) -> list[int]:
    """The beam sizes asked for; nothing is translated, and half of the answers count as right."""
    asked = []

    def evaluate(self, model, source, target, beam_size, files=None):
        asked.append(beam_size)
        example = {"number": 5, "expected": "fünf", "got": "zwölf"}
        return {"exact_match": 0.5, "n": 2, "errors": {"wrong part": 1}, "examples": [example]}

    monkeypatch.setattr(NumberWords, "evaluate", evaluate)
    return asked


@pytest.fixture
def train(lessons, judged):
    """``lessons train`` of a tiny model; it has dropout, so that the random state matters."""
    sizes = {"d_model": 6, "num_heads": 3, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    training = {"steps": 7, "batch_size": 5, "training_pairs": 53, "warmup_steps": 2, "checkpoint_every": 3}

    def command(*more: str, **changes) -> tuple[int, str, str]:
        settings = {"model": {**sizes, "dropout": 0.1}, "training": {**training, **changes}}
        Path("small.json").write_text(json.dumps(settings))
        given = () if "--resume" in more else ("--config", "small.json")
        return lessons("train", "--device", "cpu", *given, *more)

    return command


@pytest.fixture
def steps(monkeypatch) -> tuple[list[int], list[int]]:
    """The steps taken, and those to interrupt, once each: by Ctrl-C, or by SIGTERM if odd."""
    original, taken, stops = Trainer.train_step, [], []

    def train_step(self, *given):
        taken.append(self.step + 1)
        if stops[:1] == taken[-1:]:
            signal.raise_signal(signal.SIGTERM if stops.pop() % 2 else signal.SIGINT)
        return original(self, *given)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return taken, stops


@pytest.mark.filterwarnings("ignore")  # of torch.compile
@pytest.mark.usefixtures("no_shape_checks")
def test_compiled_training_takes_a_compiler_too(train, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    code, out, error = train("--compile")
    assert (code, out) == (2, "")
    assert error.splitlines()[-1].startswith("lessons train: compiling takes a C++ compiler, ")


def same(one: str | Path, other: str | Path) -> bool:
    ours, theirs = (load_model(Path(folder))[0].state_dict() for folder in (one, other))
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_finished_run_prints_its_result_and_is_not_discarded(train, lessons, judged):
    said = "runs/number-words: 50.0% exact match on 2 numbers never trained on\n"
    assert train()[:2] == (0, said)
    record = json.loads((FOLDER / "record.json").read_text())
    lines = [json.loads(line) for line in (FOLDER / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, 8)]
    assert (record["steps"], record["seed"], record["last_loss"]) == (7, 0, lines[-1]["loss"])
    assert "data" not in json.loads((FOLDER / "config.json").read_text())
    before = (FOLDER / "weights.safetensors").read_bytes()
    holds = "output: runs/number-words holds a run; --resume continues it, --overwrite discards it"
    assert holds in train()[2]
    assert f"steps: expected 7, as in {FOLDER}/config.json, got 5" in train("--resume", "--steps", "5")[2]
    (FOLDER / "checkpoint.pt").unlink()
    without = holds.replace("--resume continues it, ", "")
    assert without in train("--resume-or-start")[2]  # a finished model is kept, even without a checkpoint
    assert (FOLDER / "weights.safetensors").read_bytes() == before
    assert train("--overwrite", "--plain")[0] == 0
    assert train("--overwrite", "--seed", "1")[0] == 0
    assert (FOLDER / "weights.safetensors").read_bytes() != before
    _, out, error = lessons("evaluate", "--beam", "3")
    assert error == "model: runs/number-words\n"
    assert out.splitlines()[1:] == ["     1 × wrong part", "       5: zwölf instead of fünf"]
    assert '"got": "zwölf"' in lessons("evaluate", "--json")[1]
    assert judged == [1, 1, 1, 3, 1]


def test_a_config_given_on_resume_must_match_the_run(train, lessons, steps):
    steps[1].append(4)
    train()
    again = ("--resume", "--config", "small.json")
    had = "lessons train: {}: expected {}, as in runs/number-words/config.json, got {!r}\n"
    assert train(*again, batch_size=6) == (2, "", had.format("batch_size", 5, 6))
    for content, complaint in (
        ({"model": {"d_ff": 7}}, had.format("d_ff", 5, 7)),
        ({"task": "wmt14"}, had.format("task", "number-words", "wmt14")),
    ):
        Path("other.json").write_text(json.dumps(content))
        command = ("train", "--resume", "--config", "other.json", "--output", str(FOLDER))
        assert lessons(*command) == (2, "", complaint)
    # Settings that the config leaves out are not compared; sharding may change.
    assert train(*again, shard=True)[0] == 0


@pytest.mark.parametrize("output", ["", " --output 'else where'"])
def test_an_interrupted_run_prints_how_to_resume_and_ends_the_same(train, steps, output):
    taken, stops = steps
    train("--output", "uninterrupted")
    stops.append(4)
    code, out, error = train(*shlex.split(output))
    assert (code, out) == (130, "")
    hint = error.splitlines()[-1]
    assert hint == f"stopped after step 4; to continue: lessons train --resume{output}"
    copied = hint.split("lessons train ")[1]  # word for word, as a user would do
    assert train(*shlex.split(copied))[0] == 0
    assert taken[11:] == [5, 6, 7]  # a run from scratch would end the same
    assert same("else where" if output else FOLDER, "uninterrupted")


def test_resume_or_start_starts_a_run_and_resumes_it(train, steps):
    """As a scheduler repeats it, whatever the folder holds by then."""
    taken, stops = steps
    train("--output", "uninterrupted")
    for stop in (4, 3):
        stops.append(stop)
        assert train("--resume-or-start")[0] == 130
        if stop == 4:
            (FOLDER / "checkpoint.pt").rename("kept.pt")  # as if killed before the first checkpoint
    Path("kept.pt").rename(FOLDER / "checkpoint.pt")
    assert train("--resume-or-start")[0] == train("--resume-or-start")[0] == 0
    assert taken[7:] == [1, 2, 3, 4, 1, 2, 3, 5, 6, 7]
    assert same(FOLDER, "uninterrupted")


def test_overwrite_discards_the_old_run_once_all_processes_saw_it(train, monkeypatch):
    """Before the first step: a new run that is killed must not have the old one's record."""
    train(snapshots=2)
    old = {"checkpoint.pt", "metrics.jsonl", "record.json", "weights-000006.pt", "weights-000007.pt"}
    left = []

    def look(*_) -> bool:
        left.append(old & {path.name for path in FOLDER.iterdir()})
        return False

    monkeypatch.setattr(distributed, "wait", look)
    monkeypatch.setattr(Trainer, "run", look)
    train("--overwrite")
    assert left == [old, set()]


def test_a_process_does_not_begin_alone_where_another_one_sees_a_checkpoint(train, monkeypatch):
    monkeypatch.setattr(distributed, "any_of", lambda value, device: True)
    complaint = f"lessons train: resume: expected a run, found no {FOLDER / 'config.json'}\n"
    assert train("--resume-or-start") == (2, "", complaint)


def test_a_missing_device_is_named_with_those_that_are_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match=r"device: expected one of cpu, mps, got 'cuda'$"):
        runs.choose_device("cuda")


# ---- Other commands


def test_doctor(lessons, monkeypatch):
    code, out, _ = lessons("doctor")
    facts = dict(re.split(r"\s{2,}|(?<=^.{20}) ", line, maxsplit=1) for line in out.splitlines()[:-1])
    assert (code, out.splitlines()[-1]) == (0, "all is well")
    assert facts["torch"] == torch.__version__
    assert facts["numpy"] == version("numpy")
    assert facts["trained model"] == "421 is vierhunderteinundzwanzig"
    monkeypatch.setattr(cli, "translations", lambda *_: ["zwölf"])
    assert "421 is zwölf, which is wrong\nsomething is wrong with this installation\n" in lessons("doctor")[1]


def test_ctrl_c_and_help(lessons, monkeypatch):
    assert lessons("--version")[:2] == (0, f"transformer-lessons {__version__}\n")
    commands = re.findall(r"^    ([a-z-]+) ", lessons("--help")[1], re.M)
    assert {"train", "evaluate", "translate", "doctor", "solution"} <= set(commands)
    for command in commands:  # argparse formats help texts only now
        assert lessons(command, "--help")[0] == 0

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "load_model", interrupted)
    assert lessons("evaluate")[0] == 130


@pytest.mark.usefixtures("no_shape_checks")
def test_oracles_prints_a_line_for_each(lessons, monkeypatch):
    class Known(Case):
        def worst(self, dtype):
            if isinstance(self.make, Exception):
                raise self.make
            return self.make

    found = [
        Known("norms.Ours", "nn.Theirs", Deviation(2.5e-11), {"beams": 2}),
        Known("a", "transformers Theirs", ModuleNotFoundError("no module", name="transformers")),
        Known("a", "b", Deviation(1e-7, 1e-7)),
    ]
    monkeypatch.setattr(cli, "cases", lambda: found)
    code, out, error = lessons("oracles")
    _, _, ours, other, last = out.splitlines()
    assert (code, error) == (1, "skipped 1 of 3 comparisons, which need transformers\n")
    assert ours.split() == "norms.Ours (beams=2) nn.Theirs 2.5e-11 – 2.5e-11 –".split()
    assert other.endswith("OUT OF BOUNDS")
    assert last == "2 comparisons, 1 out of bounds (1e-10 in float64, 1e-5 in float32)"
    del found[2]
    assert lessons("oracles")[0] == 0
