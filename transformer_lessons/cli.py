"""The command line: ``lessons …``, also ``python -m transformer_lessons …``.

Results go to standard output; progress and complaints to standard error. Exit codes: 0 done, 1 something is
wrong with this installation (`doctor`), 2 a bad argument or input (one line says which), 130 interrupted.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from pathlib import Path

import torch

from transformer_lessons import __version__
from transformer_lessons.checkpoints import load_model, read_json, save_model, snapshots, write_json
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches
from transformer_lessons.data.lengths import limit_pairs
from transformer_lessons.evaluation import evaluate_number_words, in_chunks, translate
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.training import Trainer, TrainingConfig

DEFAULT_DIRECTORY = Path("runs/number-words")
NUMBER_WORDS_MODEL = {
    "d_model": 128,
    "num_heads": 4,
    "d_ff": 512,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "dropout": 0.0,
    "max_length": 64,
}


class Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line."""

    def error(self, message: str):
        """Print one line and leave with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = make_parser()
    chosen = parser.parse_args(arguments)
    try:
        return chosen.run(chosen)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`lessons translate | head`); Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"lessons {chosen.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def make_parser() -> Parser:
    """All commands and their arguments."""
    parser = Parser(prog="lessons", description="Train, test and use the Transformer of the course.")
    parser.add_argument("--version", action="version", version=f"transformer-lessons {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("train", help="train a model; Ctrl-C leaves a checkpoint, --resume goes on")
    command.add_argument("--task", choices=["number-words"], default="number-words")
    command.add_argument("--config", type=Path, metavar="FILE", help="a run's config.json, to train like it")
    command.add_argument("--output", type=Path, default=DEFAULT_DIRECTORY, metavar="DIR", help="%(default)s")
    command.add_argument("--seed", type=int, metavar="N", help="of initialisation and data (0)")
    command.add_argument("--steps", type=int, metavar="N", help="optimiser steps in all (250)")
    command.add_argument("--device", choices=["auto", "cpu", "cuda", "mps"], default="auto")
    kept = command.add_mutually_exclusive_group()
    kept.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR")
    kept.add_argument("--overwrite", action="store_true", help="discard the run in DIR and start anew")
    command.set_defaults(run=train)

    command = commands.add_parser("evaluate", help="exact match on 1,000 numbers never trained on")
    add_model(command)
    command.add_argument("--json", action="store_true", help="machine-readable")
    command.set_defaults(run=evaluate)

    command = commands.add_parser("translate", help="English number words, or digits, to German")
    add_model(command)
    command.add_argument("text", nargs="*", metavar="TEXT", help="without it, one per line of standard input")
    command.set_defaults(run=translate_text)

    command = commands.add_parser("doctor", help="say what is installed here and whether it works")
    command.set_defaults(run=doctor)
    return parser


def add_model(command: Parser) -> None:
    """The argument that names a trained model."""
    command.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help=f"a run's folder ({DEFAULT_DIRECTORY}, or else the model that comes with the package)",
    )


def chosen_model(directory: Path | None):
    """The model named, the one trained here, or the one in the package; it says which."""
    if directory is None and (DEFAULT_DIRECTORY / "weights.safetensors").is_file():
        directory = DEFAULT_DIRECTORY
    print(f"model: {directory or 'the one that comes with the package'}", file=sys.stderr)
    return load_model(directory)


def choose_device(name: str) -> torch.device:
    """The device of that name, or with "auto" the fastest one here; ValueError if it is missing."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if has[device])
    if not has[name]:
        raise ValueError(f"device: expected one of {', '.join(d for d in has if has[d])}, got {name}")
    return torch.device(name)


def train(chosen: argparse.Namespace) -> int:
    """``lessons train``."""
    directory = chosen.output
    sizes, config = settings_of(chosen)
    device = choose_device(chosen.device)
    source, target = number_words.vocabularies()
    torch.manual_seed(config.seed)
    model = Transformer(TransformerConfig(len(source), len(target), **sizes)).to(device)
    numbers = number_words.training_numbers(config.training_pairs, config.seed)
    pairs, _ = limit_pairs(number_words.pairs(numbers), model.config.max_length)
    batches = Batches(pairs, config.batch_size, seed=config.seed)

    trainer = Trainer(model, batches, config, directory)
    if chosen.resume:
        trainer.restore()
    else:
        for name in ("checkpoint.pt", "metrics.jsonl", "record.json"):
            (directory / name).unlink(missing_ok=True)
        for path in snapshots(directory):
            path.unlink()
    about = {"task": chosen.task, "training": asdict(config)}
    save_model(directory, model, source, target, **about)  # the config must be there if the run is cut off
    is_done = trainer.run()
    save_model(directory, model, source, target, **about)
    if not is_done:
        where = "" if directory == DEFAULT_DIRECTORY else f" --output {directory}"
        print(f"stopped after step {trainer.step}; to go on: lessons train --resume{where}", file=sys.stderr)
        return 130
    result = evaluate_number_words(model, source, target, number_words.held_out())
    write_json(directory / "record.json", {**result, **last(trainer), "made_with": versions(device)})
    print(f"{directory}: {result['exact_match']:.1%} exact match on {result['n']:,} held-out numbers")
    return 0


def settings_of(chosen: argparse.Namespace) -> tuple[dict, TrainingConfig]:
    """Model sizes and training settings of a run, new or resumed; ValueError if the arguments contradict it."""
    own = chosen.output / "config.json"
    if own.exists() and not (chosen.resume or chosen.overwrite):
        raise ValueError(
            f"output: {chosen.output} holds a run; --resume goes on with it, --overwrite discards it"
        )
    if chosen.resume and not own.exists():
        raise ValueError(f"resume: expected a run, found no {own}")
    sizes, config = read_settings(own if chosen.resume else chosen.config)
    given = {"seed": chosen.seed, "steps": chosen.steps}
    changes = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        if chosen.resume and value != getattr(config, name):
            raise ValueError(f"{name}: the run in {chosen.output} has {getattr(config, name)}, got {value}")
    return sizes, replace(config, **changes)


def read_settings(path: Path | None) -> tuple[dict, TrainingConfig]:
    """Model sizes and training settings, the defaults or those of a run's ``config.json``."""
    if path is None:
        return NUMBER_WORDS_MODEL, TrainingConfig()
    content = read_json(path)
    sizes, settings = content.get("model", {}), content.get("training", {})
    for part, given, cls in (("model", sizes, TransformerConfig), ("training", settings, TrainingConfig)):
        known = {field.name for field in fields(cls)}
        if not isinstance(given, dict) or not set(given) <= known:
            odd = ", ".join(sorted(set(given) - known)) if isinstance(given, dict) else given
            raise ValueError(f"{path}: {part}: expected some of {', '.join(sorted(known))}, got {odd}")
    # The vocabularies' sizes are the task's.
    sizes = {name: size for name, size in sizes.items() if not name.endswith("_vocab_size")}
    return {**NUMBER_WORDS_MODEL, **sizes}, TrainingConfig(**settings)


def last(trainer: Trainer) -> dict:
    """What the record keeps of a run: its length and its last step."""
    loss, accuracy = (trainer.history[-1][name] for name in ("loss", "accuracy"))
    return {"steps": trainer.step, "seed": trainer.config.seed, "last_loss": loss, "last_accuracy": accuracy}


def versions(device: torch.device) -> dict[str, str]:
    """Where a number was measured."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device}, {platform.machine()}"
    return {
        "transformer-lessons": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": name,
    }


def evaluate(chosen: argparse.Namespace) -> int:
    """``lessons evaluate``."""
    model, source, target = chosen_model(chosen.model)
    result = evaluate_number_words(model, source, target, number_words.held_out())
    if chosen.json:
        print(json.dumps(result, ensure_ascii=False))
        return 0
    print(f"{result['exact_match']:.1%} exact match on {result['n']:,} numbers never trained on")
    for kind, count in result["errors"].items():
        print(f"{count:6} × {kind}")
    for example in result["examples"]:
        print(f"       {example['number']}: {example['got']} instead of {example['expected']}")
    return 0


def translate_text(chosen: argparse.Namespace) -> int:
    """``lessons translate``."""
    if chosen.text:
        n = number_words.parse(" ".join(chosen.text))
        print(*german_of([n], *chosen_model(chosen.model)))
        return 0
    parts, is_fine = chosen_model(chosen.model), True
    # A person at a terminal wants an answer after each line; a file is faster in batches.
    for number, lines in enumerate(in_chunks(sys.stdin, 1 if sys.stdin.isatty() else 64)):
        values = []
        for offset, line in enumerate(lines):
            try:
                values.append(number_words.parse(line))
            except ValueError as error:
                is_fine = False
                values.append(None)
                print(f"lessons translate: line {64 * number + offset + 1}: {error}", file=sys.stderr)
        known = iter(german_of([n for n in values if n is not None], *parts))
        # A line that could not be read gives an empty one, so that input and output stay side by side.
        print(*("" if n is None else next(known) for n in values), sep="\n", flush=True)
    return 0 if is_fine else 2


def german_of(numbers: Sequence[int], model: Transformer, source, target) -> list[str]:
    """What the model makes of the English words of each number."""
    if not numbers:
        return []
    sentences = [number_words.english_tokens(number_words.english(n)) for n in numbers]
    return ["".join(tokens) for tokens in translate(model, source, target, sentences)]


def doctor(chosen: argparse.Namespace) -> int:
    """``lessons doctor``."""
    device = choose_device("auto")
    facts = versions(device)
    facts["threads"] = str(torch.get_num_threads())
    facts.update({name: version(name) for name in ("numpy", "jaxtyping", "safetensors", "tqdm")})
    if device.type == "cuda":
        facts["compute capability"] = "{}.{}".format(*torch.cuda.get_device_capability(device))
    for name, value in facts.items():
        print(f"{name:20} {value}")
    try:
        (word,) = german_of([421], *load_model())
    except (ValueError, OSError) as error:
        print(f"{'trained model':20} unusable: {error}")
        return 1
    is_right = word == number_words.german(421)
    print(f"{'trained model':20} 421 is {word}" + ("" if is_right else ", which is wrong"))
    print("all is well" if is_right else "something is wrong with this installation")
    return 0 if is_right else 1
