"""Multi30k, trained and judged: ``python -m benchmarks.multi30k`` (a quarter of an hour on two CPU cores).

Trains the task's own model, or with ``--config`` another, from each seed, and translates the test set of 2016:
greedily, and with a beam of 5. What is counted as training time is what a user waits for, from the first batch to
the last step, on a machine that does nothing else; reading, encoding and translating are given separately.

Writes ``transformer_lessons/records/multi30k.json``, which chapter 16 shows: one entry for each device and
settings, replaced when they are measured again.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from transformer_lessons.data import multi30k
from transformer_lessons.data.batches import Batches
from transformer_lessons.evaluation import evaluate_bleu
from transformer_lessons.files import read_json, write_json
from transformer_lessons.runs import choose_device, new_trainer, read_settings, run, versions
from transformer_lessons.tasks import Multi30k

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "multi30k.json"
CURVE = 50  # points of the training curve that are kept


def measure(task: Multi30k, sizes: dict, config, device: torch.device, directory: Path) -> dict:
    """One run from one seed."""
    started = time.perf_counter()
    tokenisers = task.tokenisers()
    trainer = new_trainer(task, tokenisers, sizes, config, device, directory)
    prepared = time.perf_counter()
    if not run(trainer, task, tokenisers):
        raise KeyboardInterrupt
    trained = time.perf_counter()
    pairs = multi30k.sentences("test")
    results = {}
    for name, beam_size in (("greedy", 1), ("beam of 5", 5)):
        before = time.perf_counter()
        found = evaluate_bleu(trainer.model, *tokenisers, pairs, beam_size=beam_size)
        results[name] = {**found, "seconds": round(time.perf_counter() - before, 1)}
    return {
        "seed": config.seed,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "seconds": {"preparation": round(prepared - started, 1), "training": round(trained - prepared, 1)},
        "results": results,
        "curve": curve(trainer.history),
    }


def curve(history: list[dict]) -> list[dict]:
    """Loss and accuracy in the course of training, each the mean of as many steps."""
    size = max(1, len(history) // CURVE)
    parts = [history[start : start + size] for start in range(0, len(history), size)]
    return [
        {"step": part[-1]["step"]}
        | {name: round(sum(r[name] for r in part) / len(part), 4) for name in ("loss", "accuracy")}
        for part in parts
    ]


def padding(batches) -> float:
    """The share of an epoch's positions that hold no token."""
    real = everything = 0
    for step in range(batches.steps_per_epoch):
        batch = batches[step]
        real += int((batch.src != 0).sum() + (batch.tgt_out != 0).sum())
        everything += batch.src.numel() + batch.tgt_out.numel()
    return round(1 - real / everything, 4)


def describe(task: Multi30k, sizes: dict, config) -> dict:
    """The data, and what batches make of it."""
    tokenisers = task.tokenisers()
    trainer = new_trainer(task, tokenisers, sizes, config, torch.device("cpu"))
    pairs = trainer.batches.pairs
    return {
        "pairs": len(pairs),
        "vocabulary": len(tokenisers[0]),
        "tokens": sum(len(source) + len(target) + 1 for source, target in pairs),
        "steps_per_epoch": trainer.batches.steps_per_epoch,
        "padding": padding(trainer.batches),
        "padding_of_64_shuffled_pairs": padding(Batches(pairs, 64, seed=0)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 when the record is written, 130 when it was interrupted before."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi30k", description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="auto", help="%(default)s")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a run's config.json, to train like it")
    parser.add_argument("--steps", type=int, help="optimiser steps (the config's)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="from 0 on (%(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs/multi30k-benchmark"), metavar="DIR")
    parser.add_argument("--output", type=Path, default=RECORD, metavar="FILE", help="%(default)s")
    chosen = parser.parse_args(arguments)
    task, device = Multi30k(), choose_device(chosen.device)
    sizes, config = read_settings(chosen.config, task)
    config = replace(config, steps=chosen.steps or config.steps)
    entry = {
        "made_with": {**versions(device), "threads": torch.get_num_threads()},
        "settings": {"model": sizes, "training": asdict(config)},
        "data": describe(task, sizes, config),
        "runs": [],
    }
    try:
        for seed in range(chosen.seeds):
            directory = chosen.runs / f"seed-{seed}"
            entry["runs"].append(measure(task, sizes, replace(config, seed=seed), device, directory))
    except KeyboardInterrupt:
        return 130
    known = read_json(chosen.output)["entries"] if chosen.output.exists() else []
    same = [entry["made_with"]["device"], entry["settings"]]
    others = [old for old in known if [old["made_with"]["device"], old["settings"]] != same]
    write_json(chosen.output, {"entries": [*others, entry]})
    for one in entry["runs"]:
        scores = ", ".join(f"{name} {found['bleu']:.2f}" for name, found in one["results"].items())
        print(f"seed {one['seed']}: {one['seconds']['training']:.0f} s, BLEU {scores}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
