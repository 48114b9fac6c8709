"""The command line: ``lessons …``, also ``python -m transformer_lessons …``.

Results go to standard output; progress and errors to standard error. Exit codes: 0 done, 1 something is wrong
with this installation (`doctor`, `oracles`) or with a notebook (`check-submission`), 2 a bad argument or
input (one line says which), 130 interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from transformer_lessons import __version__
from transformer_lessons.checks.solution import solution
from transformer_lessons.checks.symptoms import listing
from transformer_lessons.checks.translator.assembly import from_notebooks
from transformer_lessons.data import number_words
from transformer_lessons.data.corpus import in_chunks
from transformer_lessons.export import FORMATS, save
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.compiled import compile_decoding
from transformer_lessons.fast.int8 import quantize
from transformer_lessons.oracles import cases, is_within
from transformer_lessons.tools.submission import problems_of, run_cells
from transformer_lessons.trainer import configs
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.config import PRECISIONS
from transformer_lessons.trainer.runs import RUNS, choose_device, train, versions
from transformer_lessons.trainer.tasks import TASKS, NumberWords, Task, load_task, translations

DEFAULT_DIRECTORY = RUNS / NumberWords.name
PLAIN = "compute as in the chapters, without `fast`"


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line."""

    def error(self, message: str):
        """Print one line and exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")  # on Windows, pipes have another one
    chosen = make_parser().parse_args(arguments)
    try:
        code = chosen.run(chosen) or 0
        sys.stdout.flush()  # which can fail, too
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (`lessons translate | head`); Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, ImportError, FloatingPointError, RuntimeError) as error:
        text = " ".join(str(error).split())
        if isinstance(error, RuntimeError):
            if type(error).__name__ != "InductorError":  # importing the class takes seconds
                raise
            text = f"compiling takes a C++ compiler, and PyTorch in a folder without spaces: {text[:200]}"
        print(f"lessons {chosen.command}: {text}", file=sys.stderr)
        return 2


def make_parser() -> Parser:
    """The parser of all commands and their arguments."""
    parser = Parser(prog="lessons", description="Train, test and use the Transformer of the course.")
    parser.add_argument("--version", action="version", version=f"transformer-lessons {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run, about: str, *parents: Parser) -> Parser:
        command = commands.add_parser(name, help=about, parents=parents)
        command.set_defaults(run=run)
        return command

    model = Parser(add_help=False)
    without = f"{DEFAULT_DIRECTORY} if it exists, otherwise the packaged model"
    model.add_argument("--model", type=Path, metavar="DIR", help=f"folder of a run ({without})")
    search = Parser(add_help=False)
    search.add_argument("--beam", type=int, default=1, metavar="N", help="beam size; 1 is greedy search (1)")
    how = search.add_mutually_exclusive_group()
    how.add_argument("--plain", action="store_true", help=PLAIN)
    how.add_argument("--int8", action="store_true", help="round weights to one byte; large models are faster")
    how.add_argument("--compiled", action="store_true", help="compile decoding, once for each model (g++)")

    add_train_arguments(add("train", train, "train a model; Ctrl-C saves a checkpoint, --resume continues"))
    command = add("evaluate", evaluate, "measure a model on data that it was not trained on", model, search)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--source", metavar="FILE", help="text models: other test sentences, one per line")
    command.add_argument("--target", metavar="FILE", help="their translations; files plain or .gz")
    command = add("translate", translate, "translate number words, digits or text", model, search)
    command.add_argument("text", nargs="*", metavar="TEXT", help="what to translate (each line of input)")
    command = add("export", export, "write a model in the format of another program", model)
    command.add_argument("--format", choices=FORMATS, required=True)
    command.add_argument("directory", type=Path, metavar="DIR", help="a new folder")
    command = add("symptoms", lambda it: print(listing(" ".join(it.word))), "list mistakes by what you see")
    command.add_argument("word", nargs="*", metavar="WORD", help="part of what you see, such as NaN")
    add("doctor", doctor, "show what is installed here and whether it works")
    add("oracles", oracles, "compare every component with independent implementations")
    command = add("check-submission", check_submission, "check a notebook before you hand it in")
    command.add_argument("file", type=Path, metavar="FILE.ipynb")
    command.add_argument("--no-run", action="store_true", help="check the file without running its cells")
    command = add(
        "my-transformer",
        lambda it: from_notebooks(it.files, fill=it.fill, output=it.output),
        "train a model with your own parts from assignments",
    )
    rights = "solved assignments; their code runs with your permissions"
    command.add_argument("files", nargs="+", type=Path, metavar="FILE.ipynb", help=rights)
    command.add_argument("--fill", action="store_true", help="use our part where yours is missing or wrong")
    command.add_argument("--output", type=Path, default="runs/mine", metavar="DIR", help="(%(default)s)")
    command = add("solution", lambda it: print(solution(it.assignment, it.task)), "print a task's solution")
    command.add_argument("assignment", metavar="ASSIGNMENT", help="its name, such as ps03")
    command.add_argument("task", metavar="TASK", help="its number, such as 4")
    return parser


def add_train_arguments(command: Parser) -> None:
    """Add the arguments of ``lessons train``."""
    command.add_argument("--task", choices=TASKS, help="what to learn (number-words)")
    two, own = ("SOURCE", "TARGET"), command.add_argument_group("your own text (--task text)")
    own.add_argument("--source", metavar="FILE", help="sentences, one per line, plain or .gz")
    own.add_argument("--target", metavar="FILE", help="their translations, line by line")
    own.add_argument("--validation", nargs=2, metavar=two, help="two more, for the evaluation at the end")
    own.add_argument("--test", nargs=2, metavar=two, help="two for `evaluate` (pairs held out of training)")
    own.add_argument("--vocab-size", type=int, metavar="N", help="largest joint vocabulary (6,000)")
    packaged = f"settings: a run's config.json, or one of {', '.join(sorted(configs.PACKAGED))}"
    command.add_argument("--config", type=configs.find, metavar="FILE", help=packaged)
    command.add_argument("--output", type=Path, metavar="DIR", help="folder of the run (runs/TASK)")
    command.add_argument("--seed", type=int, metavar="N", help="seed of initialisation, data and dropout (0)")
    steps = ", ".join(f"{name} {task.training.steps:,}" for name, task in TASKS.items())
    command.add_argument("--steps", type=int, metavar="N", help=f"optimiser steps in total ({steps})")
    command.add_argument("--device", choices=["auto", "cpu", "cuda", "mps"], default="auto")
    command.add_argument("--precision", choices=PRECISIONS, help="of matrix products (float32; texts: auto)")
    flag = {"action": "store_true", "default": None}
    command.add_argument("--compile", **flag, help="compile layers and loss with torch.compile")
    command.add_argument("--plain", **flag, help=PLAIN)
    shares = "under torchrun: each process holds a part of the model"
    command.add_argument("--shard", action=argparse.BooleanOptionalAction, help=shares)
    kept = command.add_mutually_exclusive_group()
    kept.add_argument("--resume", action="store_true", help="continue from the checkpoint in DIR")
    kept.add_argument("--resume-or-start", action="store_true", help="continue from the checkpoint, if any")
    kept.add_argument("--overwrite", action="store_true", help="discard the run in DIR and start again")


def find_run(directory: Path | None) -> Path | None:
    """The given run, or the one trained here; None means the model that comes with the package."""
    if directory is None and (DEFAULT_DIRECTORY / "weights.safetensors").is_file():
        directory = DEFAULT_DIRECTORY
    print(f"model: {directory or 'the one that comes with the package'}", file=sys.stderr)
    return directory


def load_run(chosen: argparse.Namespace) -> tuple[Task, tuple]:
    """The task, and the model and tokenisers of the given run, the one trained here, or the package."""
    directory = find_run(chosen.model)
    parts = load_model(directory)
    changes = {accelerate: not chosen.plain, quantize: chosen.int8, compile_decoding: chosen.compiled}
    for change in filter(changes.get, changes):
        change(parts[0])
    return NumberWords() if directory is None else load_task(directory / "config.json"), parts


def evaluate(chosen: argparse.Namespace) -> None:
    """Run ``lessons evaluate``."""
    files = (chosen.source, chosen.target)
    if files.count(None) == 1:
        raise ValueError("source: expected two files, --source and --target, got one")
    task, parts = load_run(chosen)
    result = task.evaluate(*parts, chosen.beam, files if chosen.source else None)
    lines = [json.dumps(result, ensure_ascii=False)] if chosen.json else task.report(result)
    print(*lines, sep="\n")


def translate(chosen: argparse.Namespace) -> int:
    """Run ``lessons translate``; return 2 if a line could not be read."""
    task, parts = load_run(chosen)
    if chosen.text:
        print(*translations(task, parts, [read_sentence(task, parts, " ".join(chosen.text))], chosen.beam))
        return 0
    is_fine = True
    if hasattr(sys.stdin, "reconfigure"):  # a line that is not UTF-8 must not end the others
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    # A person at a terminal wants an answer after each line; a file is faster if many can be sorted by length.
    for lines in in_chunks(enumerate(sys.stdin, start=1), 1 if sys.stdin.isatty() else 500):
        readable = {}
        for number, line in lines:
            try:
                readable[number] = read_sentence(task, parts, line)
            except ValueError as error:
                is_fine = False
                print(f"lessons translate: line {number}: {error}", file=sys.stderr)
        found = translations(task, parts, [*readable.values()], chosen.beam)
        answers = dict(zip(readable, found, strict=True))
        # A line that could not be read gives an empty one, so that input and output stay aligned.
        print(*(answers.get(number, "") for number, _ in lines), sep="\n", flush=True)
    return 0 if is_fine else 2


def read_sentence(task: Task, parts: tuple, text: str) -> str | list[str]:
    """The sentence in a text; ValueError if the task cannot read it or it is too long for the model."""
    sentence, (model, source, _) = task.read(text), parts
    most, got = model.config.max_length, len(source.encode(sentence))
    if got > most:
        raise ValueError(f"text: expected at most {most} tokens, got {got}")
    return sentence


def export(chosen: argparse.Namespace) -> None:
    """Run ``lessons export``."""
    save(find_run(chosen.model), chosen.directory, format=chosen.format)
    print(f"{chosen.directory}: {chosen.format}")


def check_submission(chosen: argparse.Namespace) -> int:
    """Run ``lessons check-submission``; return 1 if there is something to do, else 0."""
    found = problems_of(chosen.file)
    if not chosen.no_run:
        print(f"running {chosen.file} from top to bottom …", file=sys.stderr)
        found += run_cells(chosen.file)
    for text in found:
        print("- " + text.replace("\n", "\n  "))
    count = "1 thing" if len(found) == 1 else f"{len(found)} things"
    print(f"{count} to look at" if found else f"{chosen.file.name} is ready to be handed in")
    return int(bool(found))


def doctor(chosen: argparse.Namespace) -> int:
    """Run ``lessons doctor``: print what is installed; return 1 if something is wrong with it."""
    facts = {**versions(choose_device("auto")), "threads": str(torch.get_num_threads())}
    facts |= {name: version(name) for name in ("numpy", "jaxtyping", "safetensors", "tqdm")}
    for name, value in facts.items():
        print(f"{name:20} {value}")
    task = NumberWords()
    (word,) = translations(task, load_model(), [task.read("421")])
    is_right = word == number_words.german(421)
    print(f"{'trained model':20} 421 is {word}" + ("" if is_right else ", which is wrong"))
    print("all is well" if is_right else "something is wrong with this installation")
    return 0 if is_right else 1


def oracles(chosen: argparse.Namespace) -> int:
    """Run ``lessons oracles``; return 1 if a component is out of bounds. Skip cases that lack a library."""
    line = "{:57} {:48} {:>7}  {:>7}   {:>7}  {:>7}  {}"
    print(line.format("component", "oracle", "float64", "", "float32", "", ""))
    print(line.format("", "", *["value", "grad."] * 2, ""))
    found = cases()
    outside = skipped = 0
    for case in found:
        try:
            both = {dtype: case.worst(dtype) for dtype in (torch.float64, torch.float32)}
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            skipped += 1
            continue
        is_fine = all(is_within(deviation, dtype) for dtype, deviation in both.items())
        outside += not is_fine
        # A dash means no gradient (of tokens or learning rates); 0.0 means that it agrees to the last bit.
        numbers = ["–" if x is None else f"{x:.1e}" for deviation in both.values() for x in deviation]
        print(line.format(case.name, case.oracle, *numbers, "" if is_fine else "OUT OF BOUNDS"), flush=True)
    bounds = "(1e-10 in float64, 1e-5 in float32)"
    print(f"{len(found) - skipped} comparisons, {outside or 'none'} out of bounds {bounds}")
    if skipped:
        print(f"skipped {skipped} of {len(found)} comparisons, which need transformers", file=sys.stderr)
    return int(outside > 0)
