"""Chapter 20's experiments, whole: ``python -m benchmarks.successors`` (a quarter of an hour on two cores).

A small language model with one change at a time, by the chapter's own cells: six seeds of the model without a
change, three of each change, three at each learning rate. Writes ``transformer_lessons/records/successors.json``,
which the chapter shows.
"""

import math
import multiprocessing
from functools import cache

import torch
from tqdm import tqdm

from benchmarks import by_chapter

CELLS = (
    "# @title What this chapter imports",
    "# @title The text",
    "def small_model(",
    "def train(",
    "class Latent(",
    "# @title How the queries",
    "class Window",
    "class WithSink",
    "def clocks(",
    "# @title Experts",
    "class Experts",
    "class Balanced",
    "class Gated",
    "# @title Stretched",
    "# @title Two tokens",
    "def with_muon(",
    "class Indexer",
    "# @title Which keys",
    "# @title Every change",
)
BASE, SEEDS, BASE_SEEDS, POSITIONS = "no change", range(3), range(6), 32
Run = tuple[str, float | None, int]


@cache
def chapter() -> dict:
    """What the chapter's cells define: `CHANGES`, `RATES`, `train`, `losses_by_position`, …"""
    return by_chapter.definitions("20_what_came_after", *CELLS)


def runs() -> list[Run]:
    """A change, a learning rate (None: the chapter's), a seed."""
    book = chapter()
    changed = [(name, None, seed) for name in book["CHANGES"] if name != BASE for seed in SEEDS]
    rates = [(name, rate, seed) for name in book["AT_RATES"] for rate in book["RATES"] for seed in SEEDS]
    return [(BASE, None, seed) for seed in BASE_SEEDS] + changed + rates


def one(run: Run) -> tuple[Run, dict]:
    """Train, and what was measured: loss at the trained length, and on the last 64 of 256."""
    torch.set_num_threads(1)
    book, (name, rate, seed) = chapter(), run
    model = book["train"](seed=seed, rate=rate or book["RATE"], **book["CHANGES"][name])
    found = {"loss": mean(book["losses_by_position"](model, book["LENGTH"]))}
    if rate is None:
        found["long"] = mean(book["losses_by_position"](model, 4 * book["LENGTH"])[-book["LENGTH"] :])
    if "experts" in name:
        found["loads"] = [rounded(share) for share in book["shares"](model)]
    if name == BASE and rate is None and seed in SEEDS:
        found["stretched"] = {rule: by_place(book["stretched"](model, rule)) for rule in book["RULES"]}
        found["sparse"] = book["sparse"](model)
    return run, found


def mean(losses: torch.Tensor) -> float | None:
    """None for what has diverged, which JSON cannot write."""
    loss = losses.mean().item()
    return round(loss, 4) if math.isfinite(loss) else None


def by_place(model: torch.nn.Module) -> list[float | None]:
    """Losses in stretches of 32 positions."""
    losses = chapter()["losses_by_position"](model, 4 * chapter()["LENGTH"])
    return [mean(part) for part in losses.split(POSITIONS)]


def rounded(shares: torch.Tensor) -> list[float]:
    """For the record."""
    return [round(share, 4) for share in shares.tolist()]


def main() -> None:
    """Run all, two at a time, and write the record."""
    todo, record = runs(), {"changes": {}, "rates": {}, "loads": {}, "stretched": [], "sparse": []}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for (name, rate, _), found in tqdm(pool.imap(one, todo), total=len(todo)):
            if rate is None:
                kept = record["changes"].setdefault(name, {"loss": [], "long": []})
                kept["loss"].append(found["loss"])
                kept["long"].append(found["long"])
                if "loads" in found:
                    record["loads"].setdefault(name, []).append(found["loads"])
                for extra in ("stretched", "sparse"):
                    record[extra] += [found[extra]] if extra in found else []
            else:
                record["rates"].setdefault(name, {}).setdefault(str(rate), []).append(found["loss"])
    book = chapter()
    setting = {"tokens": len(book["TRAIN"]), "held_out": len(book["HELD"]), "steps": book["STEPS"]}
    by_chapter.write("successors", **setting, length=book["LENGTH"], rate=book["RATE"], **record)


if __name__ == "__main__":
    main()
