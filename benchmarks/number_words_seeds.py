"""Exact match of the number-words recipes on five seeds: ``python -m benchmarks.number_words_seeds`` (minutes).

Writes ``transformer_lessons/records/number_words_seeds.json``, which chapter 13 shows.
"""

import tempfile
from pathlib import Path

from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.tools.cli import main as lessons

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "number_words_seeds.json"
RECIPES = {"default": [], "number-words-150": ["--config", "number-words-150"]}


def trained(seed: int, recipe: list[str]) -> dict:
    """The record of a run as a user would start it."""
    with tempfile.TemporaryDirectory() as directory:
        if lessons(["train", *recipe, "--seed", str(seed), "--output", directory, "--device", "cpu"]):
            raise SystemExit(f"training with seed {seed} did not finish")
        return read_json(Path(directory) / "record.json")


def main() -> None:
    """Train and evaluate each seed with each recipe; the record keeps what each run's own record says."""
    runs = {name: [trained(seed, recipe) for seed in range(5)] for name, recipe in RECIPES.items()}
    made_with = runs["default"][0]["made_with"]
    kept = ("seed", "steps", "exact_match", "n", "errors", "last_loss")
    shown = {name: [{key: run[key] for key in kept} for run in found] for name, found in runs.items()}
    write_json(RECORD, {"made_with": made_with, "runs": shown})


if __name__ == "__main__":
    main()
