"""A training run from the command line: from settings to a folder with a model and its record."""

import argparse
import platform
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch

from transformer_lessons import __version__
from transformer_lessons.config import TransformerConfig, expect
from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.fast import accelerate, plain
from transformer_lessons.fast.products import CPU
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import checkpoints, distributed
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.tasks import FILES, TASKS, NumberWords, Task, batches, load_task, with_data
from transformer_lessons.trainer.trainer import Trainer

RUNS = Path("runs")  # for folders of runs, unless another one is given
# Settings that can be given both on the command line and in a config.json.
TRAINING_OPTIONS = ("seed", "steps", "precision", "compile", "plain", "shard")
OPTIONS = {"training": TRAINING_OPTIONS, "data": ("vocab_size", *FILES)}
PARTS = {"task", "data", "model", "training", "source_tokens", "target_tokens"}  # of a config.json


def choose_device(name: str) -> torch.device:
    """The device of that name, or with "auto" the fastest one available; ValueError if it is missing."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if has[device])
    expect(has[name], "device", f"one of {', '.join(d for d in has if has[d])}", name)
    return torch.device(name)


def train(chosen: argparse.Namespace) -> int:
    """Run ``lessons train``: train or resume, and evaluate at the end; under torchrun, as one of several."""
    with distributed.process_group(choose_device(chosen.device)) as device:
        task, directory, sizes, config = settings_of(chosen, device)
        task = task.checked(resumed=chosen.resume)
        distributed.wait()  # until all have checked which files exist
        tokenisers = checkpoints.load_tokenisers(directory) if chosen.resume else task.tokenisers()
        trainer = new_trainer(task, tokenisers, sizes, config, device, directory)
        if chosen.resume:
            trainer.restore()
        elif not distributed.rank():
            discard_run(directory)
        is_done = run(trainer, task, tokenisers)
        if not distributed.rank():
            (evaluate_run if is_done else print_resume_hint)(trainer, task)
        return 0 if is_done else 130


def run(trainer: Trainer, task: Task, tokenisers: tuple) -> bool:
    """Train to the end or an interruption and write the model's files; return whether training is done.

    If snapshots are kept, the finished model is their mean (§6.1).
    """
    about = {"task": task.name, "training": asdict(trainer.config)}
    about |= {"data": task.settings} if task.settings else {}
    if not distributed.rank():  # resuming needs it, even if this run is killed
        checkpoints.save_config(trainer.directory, trainer.model.config, *tokenisers, **about)
    is_done = trainer.run()
    weights = distributed.full_state_dict(trainer.model.state_dict())
    if not distributed.rank():
        if is_done and trainer.config.snapshots:
            weights = checkpoints.average_checkpoints(checkpoints.snapshots(trainer.directory))
        model = Transformer(trainer.model.config)
        model.load_state_dict(weights)
        checkpoints.save_model(trainer.directory, model, *tokenisers, **about)
    return is_done


def print_resume_hint(trainer: Trainer, task: Task) -> None:
    """Print how to resume a run that was stopped."""
    given = ["--resume"] + ["--task", task.name] * (task.name != NumberWords.name)
    given += ["--output", str(trainer.directory)] * (trainer.directory != RUNS / task.name)
    again = shlex.join(["lessons", "train", *given])
    print(f"stopped after step {trainer.step}; to continue: {again}", file=sys.stderr)


def evaluate_run(trainer: Trainer, task: Task) -> None:
    """Evaluate the saved model, as a sharded one is whole only on disk, and write the record."""
    model, *tokenisers = checkpoints.load_model(trainer.directory)
    (plain if trainer.config.plain else accelerate)(model.to(trainer.device))
    result = task.evaluate(model, *tokenisers, 1, task.files("validation"))
    about = {"steps": trainer.step, "seed": trainer.config.seed}
    about |= {f"last_{name}": trainer.history[-1][name] for name in ("loss", "accuracy")}
    write_json(trainer.directory / "record.json", {**result, **about, "made_with": versions(trainer.device)})
    print(f"{trainer.directory}: {task.report(result)[0]}")


def new_trainer(
    task: Task,
    tokenisers: tuple,
    sizes: dict,
    config: TrainingConfig,
    device: torch.device,
    directory: Path | None = None,
) -> Trainer:
    """A trainer for a new model of these sizes, with its data, before the first step."""
    torch.manual_seed(config.seed)
    source, target = map(len, tokenisers)
    model = Transformer(TransformerConfig(source, target, **sizes))
    data = batches(task.pairs(*tokenisers, config), min(task.longest, model.config.max_length), config)
    return Trainer(model, data, config, directory, device=device)


def discard_run(directory: Path) -> None:
    """Remove an earlier run's checkpoint, weights and records; its config will be overwritten."""
    names = checkpoints.CHECKPOINT, "metrics.jsonl", "record.json", "weights.safetensors"
    for path in [*(directory / name for name in names), *checkpoints.snapshots(directory)]:
        path.unlink(missing_ok=True)


def settings_of(
    chosen: argparse.Namespace, device: torch.device | None = None
) -> tuple[Task, Path, dict, TrainingConfig]:
    """Task, folder, sizes and training settings of a run, new or resumed; ValueError if options conflict.

    ``--resume-or-start``, which a restart can repeat, is ``--resume`` if any process finds a checkpoint.
    Without one, the files of a run's first steps may be overwritten, but not a finished model.
    """
    named = load_task(chosen.config) if chosen.config else TASKS[chosen.task or NumberWords.name]
    directory = chosen.output or RUNS / named.name
    own = directory / "config.json"
    can_resume = (directory / checkpoints.CHECKPOINT).exists()
    if chosen.resume_or_start:
        chosen.resume = distributed.any_of(can_resume, device)
        chosen.overwrite = not (directory / "record.json").exists()
        if own.exists() and not (chosen.task or chosen.config):  # killed before its first checkpoint
            named, chosen.config = load_task(own), own
    if own.exists() and not (chosen.resume or chosen.overwrite):
        ways = "--resume continues it, " if can_resume else ""
        raise ValueError(f"output: {directory} holds a run; {ways}--overwrite discards it")
    if chosen.resume and not own.exists():
        raise ValueError(f"resume: expected a run, found no {own}")
    task = load_task(own) if chosen.resume else named
    wanted = chosen.task or (chosen.config and named.name)  # a folder can be resumed without naming its task
    file = own if chosen.resume else chosen.config
    expect(wanted in (None, task.name), "task", f"{task.name}, as in {file}", wanted)
    before = apply_settings(own if chosen.resume else None, task, task.sizes, task.training)
    given = {name: value for name, value in vars(chosen).items() if value is not None}
    args = {part: {name: given[name] for name in names if name in given} for part, names in OPTIONS.items()}
    found = apply_settings(args, *apply_settings(chosen.config, *before))
    known, got = ({**asdict(training), **sizes, **task.settings} for task, sizes, training in (before, found))
    for name in known if chosen.resume else ():
        if name != "shard":  # sharding does not change what a model learns
            expect(got[name] == known[name], name, f"{known[name]}, as in {own}", got[name])
    return found[0], directory, *found[1:]


def apply_settings(
    source: Path | dict | None, task: Task, sizes: dict, training: TrainingConfig
) -> tuple[Task, dict, TrainingConfig]:
    """Data, model sizes and training settings, changed by a run's ``config.json``, or a dict like it."""
    content = read_json(source) if isinstance(source, Path) else source or {}
    if unknown := sorted(content.keys() - PARTS):
        raise ValueError(f"{source}: expected parts among {', '.join(sorted(PARTS))}, got {unknown}")
    # Another run's `trained_on` does not describe this one's files.
    data = {name: value for name, value in content.get("data", {}).items() if name != "trained_on"}
    try:
        sizes = {**sizes, **content.get("model", {})}
        # The vocabularies' sizes come from the task.
        sizes = {name: size for name, size in sizes.items() if not name.endswith("_vocab_size")}
        TransformerConfig(1_000, 1_000, **sizes)
        return with_data(task, data), sizes, replace(training, **content.get("training", {}))
    except (TypeError, AttributeError) as error:  # an unknown name, or not an object
        raise ValueError(f"{source}: {error}") from None


def versions(device: torch.device) -> dict[str, str]:
    """The versions and the device with which a number was measured."""
    widest = torch.backends.cpu.get_cpu_capability()  # instructions, on which a processor's speed depends
    processor = f"{device}, {CPU.get('cpu_name', platform.machine())}, {widest}"
    return {
        "transformer-lessons": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor,
    }
