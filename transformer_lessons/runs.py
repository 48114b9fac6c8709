"""A training run as the command line makes it: from settings to a folder with a model and its record."""

import argparse
import platform
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch

from transformer_lessons import __version__
from transformer_lessons.checkpoints import save_model, snapshots
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches
from transformer_lessons.data.lengths import limit_pairs
from transformer_lessons.evaluation import evaluate_number_words
from transformer_lessons.files import read_json, write_json
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


def choose_device(name: str) -> torch.device:
    """The device of that name, or with "auto" the fastest one here; ValueError if it is missing."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if has[device])
    if not has[name]:
        raise ValueError(f"device: expected one of {', '.join(d for d in has if has[d])}, got {name}")
    return torch.device(name)


def train(chosen: argparse.Namespace) -> int:
    """``lessons train``: train, or go on training, and evaluate at the end."""
    directory, device = chosen.output, choose_device(chosen.device)
    sizes, config = settings_of(chosen)
    trainer = new_trainer(sizes, config, device, directory)
    if chosen.resume:
        trainer.restore()
    else:
        discard(directory)
    model, vocabularies = trainer.model, number_words.vocabularies()
    about = {"task": chosen.task, "training": asdict(config)}
    save_model(directory, model, *vocabularies, **about)  # the config must be there if the run is cut off
    is_done = trainer.run()
    save_model(directory, model, *vocabularies, **about)
    if not is_done:
        where = "" if directory == DEFAULT_DIRECTORY else f" --output {directory}"
        print(f"stopped after step {trainer.step}; to go on: lessons train --resume{where}", file=sys.stderr)
        return 130
    result = evaluate_number_words(model, *vocabularies, number_words.held_out())
    write_json(directory / "record.json", {**result, **last(trainer), "made_with": versions(device)})
    print(f"{directory}: {result['exact_match']:.1%} exact match on {result['n']:,} held-out numbers")
    return 0


def new_trainer(sizes: dict, config: TrainingConfig, device: torch.device, directory: Path) -> Trainer:
    """A model of these sizes with its data, before the first step."""
    source, target = number_words.vocabularies()
    torch.manual_seed(config.seed)
    model = Transformer(TransformerConfig(len(source), len(target), **sizes)).to(device)
    numbers = number_words.training_numbers(config.training_pairs, config.seed)
    pairs, _ = limit_pairs(number_words.pairs(numbers), model.config.max_length)
    return Trainer(model, Batches(pairs, config.batch_size, seed=config.seed), config, directory)


def discard(directory: Path) -> None:
    """Remove what an earlier run has left; its config and weights will be overwritten."""
    for name in ("checkpoint.pt", "metrics.jsonl", "record.json"):
        (directory / name).unlink(missing_ok=True)
    for path in snapshots(directory):
        path.unlink()


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
