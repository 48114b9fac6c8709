"""Chapter 10's experiment, whole: ``python -m benchmarks.norm_orders`` (a quarter of an hour on two cores).

Post-norm and pre-norm at seven learning rates, two tasks, ten seeds each, by the chapter's own cells. Writes
``transformer_lessons/records/norm_orders.json``, which the chapter shows; it runs two of the runs itself.
"""

import multiprocessing
from functools import cache
from itertools import product

import torch
from tqdm import tqdm

from benchmarks import by_chapter

CELLS = ("# @title Imports", "# @title The model, its two tasks", "def train(")
SEEDS, STEPS, MEAN_OF = range(10), 300, 20


@cache
def chapter() -> dict:
    """What the chapter's cells define: `TASKS`, `KINDS`, `RATES`, and `train(rate, …)`."""
    return by_chapter.definitions("10_residuals", *CELLS)


def final_loss(run: tuple[str, str, float, int]) -> float:
    """The mean of a run's last losses."""
    torch.set_num_threads(1)
    task, kind, rate, seed = run
    losses = chapter()["train"](rate, steps=STEPS, seed=seed, task=task, **chapter()["KINDS"][kind])
    return round(sum(losses[-MEAN_OF:]) / MEAN_OF, 3)


def main() -> None:
    """Train each kind at each rate with each seed, two at a time, and write the record."""
    tasks, kinds, rates = (list(chapter()[name]) for name in ("TASKS", "KINDS", "RATES"))
    todo = list(product(tasks, kinds, rates, SEEDS))
    losses: dict = {task: {kind: [[] for _ in rates] for kind in kinds} for task in tasks}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for run, loss in zip(todo, tqdm(pool.imap(final_loss, todo), total=len(todo)), strict=True):
            task, kind, rate, _ = run
            losses[task][kind][rates.index(rate)].append(loss)
    by_chapter.write("norm_orders", rates=rates, losses=losses)


if __name__ == "__main__":
    main()
