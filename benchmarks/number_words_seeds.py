"""Exact match of the number-words recipe on five seeds: ``python -m benchmarks.number_words_seeds``.

Writes ``transformer_lessons/records/number_words_seeds.json``, which chapter 14 shows.
"""

import tempfile
from pathlib import Path

from transformer_lessons.cli import main as lessons
from transformer_lessons.files import read_json, write_json

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "number_words_seeds.json"


def main() -> None:
    """Train and evaluate each seed as a user would; the record keeps what each run's own record says."""
    runs = []
    for seed in range(5):
        with tempfile.TemporaryDirectory() as directory:
            if lessons(["train", "--seed", str(seed), "--output", directory, "--device", "cpu"]):
                raise SystemExit(f"training with seed {seed} did not finish")
            runs.append(read_json(Path(directory) / "record.json"))
    made_with = runs[0]["made_with"]
    kept = ("seed", "steps", "exact_match", "n", "errors", "last_loss")
    write_json(RECORD, {"made_with": made_with, "runs": [{name: run[name] for name in kept} for run in runs]})


if __name__ == "__main__":
    main()
