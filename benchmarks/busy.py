"""How threads should wait on a busy machine: ``python -m benchmarks.busy`` (five minutes on two CPU cores).

Spinning threads resume at once but keep all others off their core; sleeping threads have to be woken. In each
round, one process per way of waiting trains what ``lessons train`` does and translates a number, alone and then
beside two processes that never rest. Alone, the fastest round counts for each, since other load only adds time.
"""

import json
import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from statistics import mean, median
from time import perf_counter

import torch
from tqdm import tqdm

from benchmarks.measuring import program
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.decoding import greedy
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.runs import new_trainer
from transformer_lessons.trainer.tasks import NumberWords

DEFAULT, PACKAGE, TIMES, ROUNDS = "default", "transformer_lessons", 12, 4
WORKS = "a step of training", "a translated number"
WAYS = [DEFAULT, "OMP_WAIT_POLICY=PASSIVE", *(f"GOMP_SPINCOUNT={n}" for n in (1_000, 4_000, 16_000)), PACKAGE]


def times(number: int) -> dict[str, list[float]]:
    """The milliseconds of each of `number` training steps, and of as many translations of one number."""
    task = NumberWords()
    trainer = new_trainer(task, task.tokenisers(), task.sizes, task.training, torch.device("cpu"))
    model, source, _ = load_model()
    src = torch.tensor([source.encode(task.read("421"))])
    works = trainer.train_step, partial(greedy, accelerate(model), src, max_length=16)
    found = {}
    for name, work in zip(WORKS, works, strict=True):
        clock = [perf_counter()]
        for _ in range(number):
            work()
            clock.append(perf_counter())
        found[name] = [1000 * (after - before) for before, after in pairwise(clock)]
    return found


def report() -> None:
    """Print this process's times, alone and beside others."""
    times(3)  # the first ones of a process take longer
    alone = times(TIMES)
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        print(json.dumps([alone, times(TIMES)]))
    finally:
        for neighbour in neighbours:
            neighbour.kill()


def measured(way: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The times in a process that waits this way; the package chooses if imported before torch."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment |= dict([way.split("=")]) if "=" in way else {}
    first = PACKAGE if way == PACKAGE else "torch"
    code = f"import {first}, logging; logging.disable(); from benchmarks import busy; busy.report()"
    return json.loads(subprocess.check_output([sys.executable, "-c", code], env=environment))


def main() -> None:
    """Measure in rounds and print a table for each kind of work."""
    program("busy", __doc__).parse_args()
    rounds = [{way: measured(way) for way in WAYS} for _ in tqdm(range(ROUNDS))]
    for work in WORKS:
        alone, busy = {}, {}
        for way in WAYS:
            by_round = [[found[way][beside][work] for found in rounds] for beside in (0, 1)]
            alone[way] = mean(map(min, zip(*by_round[0], strict=True)))
            busy[way] = median(map(mean, by_round[1]))
        print(f"{work:24}  ms alone  speed of default  ms beside others  time of best")
        for way in WAYS:
            speed, time = alone[DEFAULT] / alone[way], busy[way] / min(busy.values())
            print(f"{way:24}{alone[way]:10.1f}{speed:18.2f}{busy[way]:18.1f}{time:14.2f}")


if __name__ == "__main__":
    main()
