"""How threads should wait on a busy machine: ``python -m benchmarks.busy`` (five minutes on two CPU cores).

Spinning threads resume at once but keep all others off their core; sleeping threads have to be woken. In each
round, one process per way of waiting trains what ``lessons train`` does, alone and then beside two processes
that never rest. Alone, the fastest round counts for each step, since other load only adds time.
"""

import json
import os
import subprocess
import sys
from itertools import pairwise
from statistics import mean, median
from time import perf_counter

import torch
from tqdm import tqdm

from benchmarks.measuring import program
from transformer_lessons.trainer.runs import new_trainer
from transformer_lessons.trainer.tasks import NumberWords

DEFAULT, PACKAGE, STEPS, ROUNDS = "default", "transformer_lessons", 12, 4
WAYS = [DEFAULT, "OMP_WAIT_POLICY=PASSIVE", *(f"GOMP_SPINCOUNT={n}" for n in (200, 2_000, 20_000)), PACKAGE]


def steps(number: int) -> list[float]:
    """The milliseconds of each training step in a run of `number` steps."""
    task = NumberWords()
    trainer = new_trainer(task, task.tokenisers(), task.sizes, task.training, torch.device("cpu"))
    clock = [perf_counter()]
    for _ in range(number):
        trainer.train_step()
        clock.append(perf_counter())
    return [1000 * (after - before) for before, after in pairwise(clock)]


def report() -> None:
    """Print the milliseconds of this process's steps, alone and beside others."""
    steps(3)  # the first ones of a process take longer
    alone = steps(STEPS)
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        print(json.dumps([alone, steps(STEPS)]))
    finally:
        for neighbour in neighbours:
            neighbour.kill()


def measured(way: str) -> tuple[list[float], list[float]]:
    """The step times of a process that waits this way; the package chooses if imported before torch."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment |= dict([way.split("=")]) if "=" in way else {}
    first = PACKAGE if way == PACKAGE else "torch"
    code = f"import {first}, logging; logging.disable(); from benchmarks import busy; busy.report()"
    return json.loads(subprocess.check_output([sys.executable, "-c", code], env=environment))


def main() -> None:
    """Measure in rounds and print the table."""
    program("busy", __doc__).parse_args()
    rounds = [{way: measured(way) for way in WAYS} for _ in tqdm(range(ROUNDS))]
    alone = {way: mean(map(min, zip(*(found[way][0] for found in rounds), strict=True))) for way in WAYS}
    busy = {way: median(mean(found[way][1]) for found in rounds) for way in WAYS}
    print(f"{'':24}  ms a step  speed of default  ms beside others  time of best")
    for way in WAYS:
        speed, time = alone[DEFAULT] / alone[way], busy[way] / min(busy.values())
        print(f"{way:24}{alone[way]:11.1f}{speed:18.2f}{busy[way]:18.1f}{time:14.2f}")


if __name__ == "__main__":
    main()
