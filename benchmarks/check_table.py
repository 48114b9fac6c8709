"""What the exercises' checks catch and name: ``python -m benchmarks.check_table [TASK …]`` (minutes).

For each task: how many known mistakes (and ways to make them) fail, and are named as what they are; how many
right answers in other words pass; what a passing check and a diagnosis cost, in CPU time with one thread.

Writes ``transformer_lessons/records/checks.json``, which the syllabus shows, if all tasks were asked for.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_lessons import checks
from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

HERE = Path(__file__).parent.parent
RECORD = HERE / "transformer_lessons" / "records" / "checks.json"
COLUMNS = ("requirements", "mistakes", "ways", "caught", "named", "alternates", "passed")


def seconds(action: Callable) -> tuple[float, object]:
    """CPU time of a call, and its result."""
    started = time.process_time()
    result = action()
    return time.process_time() - started, result


def row_of(name: str) -> dict:
    """Everything about one task."""
    task = checks.task(name)
    checks.check(name, task.reference)  # what is kept from one check to the next
    ways = [(mistake, variant) for mistake in task.mistakes for variant in mistake.variants]
    wrong = [(m.id, *seconds(lambda v=v: checks.check(name, task.mistaken(v)))) for m, v in ways]
    others = importlib.import_module(f"alternates.{name}").ALTERNATES
    passing = [seconds(lambda: checks.check(name, task.reference))[0] for _ in range(9)]
    return {
        "requirements": len(task.requirements),
        "mistakes": len(task.mistakes),
        "ways": len(ways),
        "caught": sum(not report.passed for _, _, report in wrong),
        "named": sum((report.misconception, report.also) == (id_, ()) for id_, _, report in wrong),
        "alternates": len(others),
        "passed": sum(checks.check(name, other).passed for other in others),
        "passing_ms": round(1000 * statistics.median(passing), 1),
        "diagnoses": [round(spent, 3) for _, spent, _ in wrong],
    }


def total_of(rows: dict[str, dict]) -> dict:
    """All tasks together: sums, and the middle and the worst of the times."""
    diagnoses = [spent for row in rows.values() for spent in row["diagnoses"]]
    return {
        **{column: sum(row[column] for row in rows.values()) for column in COLUMNS},
        "tasks": len(rows),
        "passing_ms": round(statistics.median(row["passing_ms"] for row in rows.values()), 1),
        "diagnosis_median_s": round(statistics.median(diagnoses), 3),
        "diagnosis_worst_s": max(diagnoses),
    }


def main() -> int:
    """The command; 1 if a mistake is not caught or not named, or a right answer fails."""
    about = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_table", description=about)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="all")
    chosen = parser.parse_args().tasks
    sys.path.insert(0, str(HERE / "tests"))
    torch.set_num_threads(1)  # as a grader has it, and as CPU time needs it
    rows = {name: row_of(name) for name in tqdm(chosen or checks.tasks(), disable=None, leave=False)}
    total = total_of(rows)
    for name, row in {**rows, "all": total}.items():
        print(f"{name:30}", ", ".join(f"{key} {value}" for key, value in row.items() if key != "diagnoses"))
    if not chosen:
        made_with = {**versions(torch.device("cpu")), "threads": torch.get_num_threads()}
        write_json(RECORD, {"made_with": made_with, "seed": 0, "total": total, "tasks": rows})
    return int(
        not (total["caught"] == total["named"] == total["ways"] and total["passed"] == total["alternates"])
    )


if __name__ == "__main__":
    raise SystemExit(main())
