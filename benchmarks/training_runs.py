"""Chapter 13's experiments, whole: ``python -m benchmarks.training_runs`` (ten minutes on two cores).

Warm-up, smoothing and overfitting, eleven kinds of run, three seeds each, by the chapter's own cells. Writes
``transformer_lessons/records/training_runs.json``, which the chapter shows; it runs one kind's first steps.
"""

import multiprocessing
from functools import cache
from itertools import product

import torch
from tqdm import tqdm

from benchmarks import by_chapter
from transformer_lessons.trainer.evaluation import evaluate_number_words

CELLS = ("# @title What this chapter imports", "# @title The experiments: models that differ in one thing")
SEEDS = (0, 1, 2)


@cache
def chapter() -> dict:
    """What the chapter's cells define: `EXPERIMENTS`, `experiment(kind, seed)`, `judge(model, numbers)`."""
    return by_chapter.definitions("13_training", *CELLS)


def measured(kind_and_seed: tuple[str, int]) -> dict:
    """One run on one thread: its curves, and how good it is on the 1,000 held-out numbers."""
    torch.set_num_threads(1)
    defined = chapter()
    model, curve = defined["experiment"](*kind_and_seed)
    loss, accuracy, certainty = defined["judge"](model, defined["held_out"])
    found = evaluate_number_words(model, defined["source"], defined["target"], defined["held_out"])
    rounded = [[step, round(known, 4), round(unknown, 4)] for step, known, unknown in curve]
    judged = {"loss": round(loss, 4), "accuracy": round(accuracy, 4), "certainty": round(certainty, 4)}
    return {"seed": kind_and_seed[1], "exact_match": found["exact_match"], **judged, "curve": rounded}


def main() -> None:
    """Train each kind with each seed, two at a time, and write the record."""
    todo = list(product(chapter()["EXPERIMENTS"], SEEDS))
    runs: dict[str, list] = {kind: [] for kind, _ in todo}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for (kind, _), run in zip(todo, tqdm(pool.imap(measured, todo), total=len(todo)), strict=True):
            runs[kind].append(run)
    by_chapter.write("training_runs", runs=runs)


if __name__ == "__main__":
    main()
