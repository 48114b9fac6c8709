"""Multi30k, trained and judged: ``python -m benchmarks.multi30k`` (a quarter of an hour on two CPU cores).

Trains the task's own model, or with ``--config`` another, from each seed, and translates the test set of 2016:
greedily, and with a beam of 5. What is counted as training time is what a user waits for, from the first batch to
the last step; reading, encoding and translating are given separately. Nothing else should run meanwhile.

Writes ``transformer_lessons/records/multi30k.json``, which chapter 16 shows: one entry for each device and
settings. It is written after every seed, and a seed that it has is not measured again.
"""

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from benchmarks.settings import complete
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_bleu
from transformer_lessons.trainer.runs import choose_device, new_trainer, read_settings, run, versions
from transformer_lessons.trainer.tasks import TASKS, Task, batches

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "multi30k.json"
CURVE = 50  # points of the training curve that are kept


def measure(task: Task, tokenisers: tuple, sizes: dict, config: TrainingConfig, device: torch.device) -> dict:
    """One run from one seed."""
    started = time.perf_counter()
    trainer = new_trainer(
        task, tokenisers, sizes, config, device, Path(f"runs/multi30k-benchmark/{config.seed}")
    )
    prepared = time.perf_counter()
    if not run(trainer, task, tokenisers):
        raise KeyboardInterrupt
    trained = time.perf_counter()
    results, pairs = {}, task.pairs_to_judge_by(task.files("test"))
    for name, beam_size in (("greedy", 1), ("beam of 5", 5)):
        before = time.perf_counter()
        found = evaluate_bleu(trainer.model, *tokenisers, pairs, beam_size=beam_size)
        results[name] = {**found, "seconds": round(time.perf_counter() - before, 1)}
    return {
        "seed": config.seed,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "seconds": {"encoding": round(prepared - started, 1), "training": round(trained - prepared, 1)},
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


def padding(data: Batches | TokenBatches) -> float:
    """The share of an epoch's positions that hold no token."""
    real = everything = 0
    for step in range(data.steps_per_epoch):
        batch = data[step]
        real += int((batch.src != 0).sum() + (batch.tgt_out != 0).sum())
        everything += batch.src.numel() + batch.tgt_out.numel()
    return round(1 - real / everything, 4)


def describe(task: Task, tokenisers: tuple, max_length: int, config: TrainingConfig) -> dict:
    """The data, and what batches make of it."""
    data = batches(task.pairs(*tokenisers, config), max_length, config)
    return {
        "pairs": len(data.pairs),
        "vocabulary": len(tokenisers[0]),
        "tokens": sum(len(source) + len(target) + 1 for source, target in data.pairs),
        "steps_per_epoch": data.steps_per_epoch,
        "padding": padding(data),
        "padding_of_64_shuffled_pairs": padding(Batches(data.pairs, 64, seed=0)),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi30k", description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="auto", help="%(default)s")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a run's config.json, to train like it")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="from 0 on (%(default)s)")
    chosen = parser.parse_args()
    task, device = TASKS["multi30k"], choose_device(chosen.device)
    sizes, config = read_settings(chosen.config, task)
    tokenisers = task.tokenisers()
    entry = {
        "made_with": {**versions(device), "threads": torch.get_num_threads()},
        "settings": {"model": sizes, "training": asdict(config)},
        "data": describe(task, tokenisers, sizes["max_length"], config),
        "runs": [],
    }
    known = read_json(RECORD)["entries"]
    for other in known:
        same_device = other["made_with"]["device"] == entry["made_with"]["device"]
        if same_device and complete(other["settings"]) == entry["settings"]:
            known, entry = [one for one in known if one is not other], other
            break
    for seed in sorted({*range(chosen.seeds)} - {one["seed"] for one in entry["runs"]}):
        entry["runs"].append(measure(task, tokenisers, sizes, replace(config, seed=seed), device))
        write_json(RECORD, {"entries": [*known, entry]})
    for one in entry["runs"]:
        scores = ", ".join(f"{name} {found['bleu']:.2f}" for name, found in one["results"].items())
        print(f"seed {one['seed']}: {one['seconds']['training']:.0f} s, BLEU {scores}")


if __name__ == "__main__":
    main()
