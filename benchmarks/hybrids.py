"""Chapter 18's look-up task, learned: ``python -m benchmarks.hybrids`` (ten minutes on two cores).

Four layers with tables, with attention, and three to one, three seeds each, by the chapter's own cells. Writes
``transformer_lessons/records/hybrids.json``, which the chapter shows.
"""

import multiprocessing
from functools import cache
from itertools import product

import torch
from tqdm import tqdm

from benchmarks import by_chapter

CELLS = (
    "# @title What this chapter imports",
    "WIDTH = SYMBOLS",
    "class GatedDelta",
    "# @title The look-up task, learned",
)
SEEDS, STEPS, ASKED = range(3), 800, (8, 16, 32, 64, 128)


@cache
def chapter() -> dict:
    """What the chapter's cells define: `KINDS`, and `learn(kinds, steps, seed)`."""
    return by_chapter.definitions("18_linear_attention", *CELLS)


def shares(run: tuple[str, int]) -> list[float]:
    """Of each number of pairs, the share that a trained model recalls."""
    torch.set_num_threads(1)
    kind, seed = run
    model = chapter()["learn"](chapter()["KINDS"][kind], STEPS, seed)
    return [round(chapter()["share_right"](model, n), 3) for n in ASKED]


def main() -> None:
    """Train each kind with each seed, two at a time, and write the record."""
    todo = list(product(chapter()["KINDS"], SEEDS))
    found: dict = {kind: {n: [] for n in ASKED} for kind in chapter()["KINDS"]}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for (kind, _), row in zip(todo, tqdm(pool.imap(shares, todo), total=len(todo)), strict=True):
            for n, share in zip(ASKED, row, strict=True):
                found[kind][n].append(share)
    by_chapter.write("hybrids", shares=found)


if __name__ == "__main__":
    main()
