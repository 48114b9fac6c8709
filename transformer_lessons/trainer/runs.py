"""A training run as the command line makes it: from settings to a folder with a model and its record."""

import argparse
import platform
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch

from transformer_lessons import __version__
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.fast import accelerate
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoints import (
    average_checkpoints,
    current_sizes,
    load_model,
    load_tokenisers,
    save_model,
    snapshots,
)
from transformer_lessons.trainer.resuming import discard, found
from transformer_lessons.trainer.tasks import TASKS, NumberWords, Task, batches, new_model, task_of, with_data
from transformer_lessons.trainer.text_tasks import Text, resolved
from transformer_lessons.trainer.trainer import Trainer, TrainingConfig

NUMBER_WORDS_MODEL = NumberWords.sizes
# What can be said on the command line and in a config.json alike.
OF_TRAINING = ("seed", "steps", "precision", "compile", "plain")
OF_DATA = ("source", "target", "validation", "test", "vocab_size")


def default_directory(task: Task) -> Path:
    """Where a task's run goes if nothing else is said."""
    return Path("runs") / task.name


def choose_device(name: str) -> torch.device:
    """The device of that name, or with "auto" the fastest one here; ValueError if it is missing."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if has[device])
    if not has[name]:
        raise ValueError(f"device: expected one of {', '.join(d for d in has if has[d])}, got {name}")
    return torch.device(name)


def train(chosen: argparse.Namespace) -> int:
    """``lessons train``: train, or go on training, and evaluate at the end; under torchrun, as one of several."""
    with distributed.process_group(choose_device(chosen.device)) as device:
        chosen = decided(chosen, device)
        task, directory, sizes, config = settings_of(chosen)
        task.check()
        distributed.wait()  # until all have seen what was there before
        tokenisers = load_tokenisers(directory) if chosen.resume else task.tokenisers()
        trainer = new_trainer(task, tokenisers, sizes, config, device, directory)
        if chosen.resume:
            trainer.restore()
        elif not distributed.rank():
            discard_run(directory)
        is_done = run(trainer, task, tokenisers)
        if distributed.rank():
            return 0 if is_done else 130
        if not is_done:
            given = "" if task.name == NumberWords.name else f" --task {task.name}"
            given += "" if directory == default_directory(task) else f" --output {directory}"
            hint = f"to go on: lessons train --resume{given}"
            print(f"stopped after step {trainer.step}; {hint}", file=sys.stderr)
            return 130
        # Judged is what was saved; a model in shares is nowhere else whole.
        model = load_model(directory)[0].to(device)
        if not config.plain:
            accelerate(model)
        result = task.evaluate(model, *tokenisers, 1, task.validation)
        write_json(directory / "record.json", {**result, **last(trainer), "made_with": versions(device)})
        print(f"{directory}: {task.report(result)[0]}")
        return 0


def run(trainer: Trainer, task: Task, tokenisers: tuple) -> bool:
    """Train to the end, or to an interruption, with the model's files in the run's folder; True if it is done.

    Where snapshots are kept, the model is the mean of them (§6.1).
    """
    about = {"task": task.name, "training": asdict(trainer.config)}
    if data := task.settings():
        about["data"] = data

    def save(is_done: bool = False):
        model = distributed.gather_model(trainer.model)
        if distributed.rank():
            return
        if is_done and trainer.config.snapshots:
            model.load_state_dict(average_checkpoints(snapshots(trainer.directory)))
        save_model(trainer.directory, model, *tokenisers, **about)

    save()  # the config must be there if the run is cut off
    is_done = trainer.run()
    save(is_done)
    return is_done


def new_trainer(
    task: Task,
    tokenisers: tuple,
    sizes: dict,
    config: TrainingConfig,
    device: torch.device,
    directory: Path | None = None,
) -> Trainer:
    """A model of these sizes with its data, before the first step."""
    torch.manual_seed(config.seed)
    model = new_model(sizes, *tokenisers)
    data = batches(task.pairs(*tokenisers, config), model.config.max_length, config)
    return Trainer(model, data, config, directory, device=device)


def discard_run(directory: Path) -> None:
    """Remove what an earlier run has left; its config and weights will be overwritten."""
    discard(directory)
    for name in ("metrics.jsonl", "record.json"):
        (directory / name).unlink(missing_ok=True)
    for path in snapshots(directory):
        path.unlink()


def decided(chosen: argparse.Namespace, device: torch.device) -> argparse.Namespace:
    """``--resume-or-start``, which a restart can repeat: ``--resume`` if there is a checkpoint for any process.

    Without one, what a run has left in its first steps may go; a model that is done may not.
    """
    if not chosen.resume_or_start:
        return chosen
    directory = chosen.output or default_directory(task_named_by(chosen))
    resume = distributed.any_of(found(directory) is not None, device)
    overwrite = not resume and not (directory / "record.json").exists()
    return argparse.Namespace(**{**vars(chosen), "resume": resume, "overwrite": overwrite})


def settings_of(chosen: argparse.Namespace) -> tuple[Task, Path, dict, TrainingConfig]:
    """Task, folder, sizes and training settings of a run, new or resumed; ValueError if it contradicts itself."""
    task, directory, path = run_of(chosen)
    sizes, config = read_settings(path, task)
    training, data = (
        {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
        for names in (OF_TRAINING, OF_DATA)
    )
    changed = with_data(task, data)
    if chosen.resume:
        for name, value in {**training, **data}.items():
            known = getattr(task if name in data else config, name)
            if (resolved(value) if name in data else value) != known:
                raise ValueError(f"{name}: the run in {directory} has {known}, got {value}")
    elif isinstance(changed, Text):
        changed = replace(changed, trained_on=None)
    if chosen.shard is not None:  # how a model is held changes nothing that it learns: a resumed run may
        training["shard"] = chosen.shard
    return changed, directory, sizes, replace(config, **training)


def task_named_by(chosen: argparse.Namespace) -> Task:
    """The task that the arguments name, themselves or through another run's settings."""
    if chosen.task:
        return TASKS[chosen.task]
    return task_of(chosen.config) if chosen.config else NumberWords()


def run_of(chosen: argparse.Namespace) -> tuple[Task, Path, Path | None]:
    """Task and folder of a run, and the config.json to read: its own, if it is resumed, or another run's."""
    task = task_named_by(chosen)
    directory = chosen.output or default_directory(task)
    own = directory / "config.json"
    if own.exists() and not (chosen.resume or chosen.overwrite):
        hint = "--resume goes on with it, --overwrite discards it"
        raise ValueError(f"output: {directory} holds a run; {hint}")
    if chosen.resume and not own.exists():
        raise ValueError(f"resume: expected a run, found no {own}")
    path = own if chosen.resume else chosen.config
    told = task if path is None else task_of(path)  # of a folder that is resumed, the task need not be named
    if chosen.task not in (None, told.name):
        raise ValueError(f"task: {path} is of {told.name}, got {chosen.task}")
    return told, directory, path


def read_settings(path: Path | None, task: Task) -> tuple[dict, TrainingConfig]:
    """Model sizes and training settings, the task's own or those of a run's ``config.json``."""
    if path is None:
        return task.sizes, task.training
    content = read_json(path)
    sizes, settings = content.get("model", {}), content.get("training", {})
    if isinstance(sizes, dict):
        sizes = current_sizes(sizes)
    for part, given, cls in (("model", sizes, TransformerConfig), ("training", settings, TrainingConfig)):
        known = {field.name for field in fields(cls)}
        if not isinstance(given, dict) or not set(given) <= known:
            odd = ", ".join(sorted(set(given) - known)) if isinstance(given, dict) else given
            raise ValueError(f"{path}: {part}: expected some of {', '.join(sorted(known))}, got {odd}")
    # The vocabularies' sizes are the task's.
    sizes = {name: size for name, size in sizes.items() if not name.endswith("_vocab_size")}
    return {**task.sizes, **sizes}, replace(task.training, **settings)


def last(trainer: Trainer) -> dict:
    """What the record keeps of a run: its length and its last step."""
    loss, accuracy = (trainer.history[-1][name] for name in ("loss", "accuracy"))
    return {"steps": trainer.step, "seed": trainer.config.seed, "last_loss": loss, "last_accuracy": accuracy}


def versions(device: torch.device) -> dict[str, str]:
    """Where a number was measured."""
    # A processor's rate hangs on its widest instructions.
    processor = f"{device}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return {
        "transformer-lessons": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor,
    }
