"""What a check costs: ``python -m benchmarks.check_table [TASK …]`` (a minute).

For each task, in seconds of one thread: a right answer, the first time in a process and later, and the slowest of
the known mistakes.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch
from tqdm import tqdm

from transformer_lessons import checks
from transformer_lessons.checks.definitions import changed

FIRST = """
import time, torch
from transformer_lessons import checks
torch.set_num_threads(1)
task = checks.task({name!r})
answer = task.answer(task.source)
started = time.perf_counter()
checks.check({name!r}, answer)
print(time.perf_counter() - started)
"""


def seconds(action: Callable) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def row_of(name: str) -> tuple[float, float, float]:
    """Seconds of a right answer, first and later, and of the slowest mistake."""
    first = subprocess.run([sys.executable, "-c", FIRST.format(name=name)], capture_output=True, check=True)
    task = checks.task(name)
    right = task.answer(task.source)
    later = statistics.median(seconds(lambda: checks.check(name, right)) for _ in range(9))
    texts = [changed(task.source, mistake.ways[0]) for mistake in task.mistakes]
    wrong = [seconds(lambda text=text: checks.check(name, task.answer(text))) for text in texts]
    return float(first.stdout), later, max(wrong, default=0.0)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    about = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_table", description=about)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="all")
    names = parser.parse_args(argv).tasks or checks.tasks()
    torch.set_num_threads(1)  # as a grader has it
    print(f"{'task':30} {'first':>8} {'later':>8} {'worst':>8}")
    for name in tqdm(names, disable=None, leave=False):
        first, later, worst = row_of(name)
        print(f"{name:30} {first:6.3f} s {later:6.3f} s {worst:6.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
