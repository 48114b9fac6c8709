"""How threads should wait on a busy machine: ``python -m benchmarks.busy`` (five minutes on two CPU cores).

Spinning threads resume at once but keep all others off their core; sleeping threads have to be woken. In each
round, one process per way of waiting trains what ``lessons train`` does and translates a number, alone and then
beside two processes that never rest. Alone, the fastest round counts for each, since other load only adds time.
"""

import json
import subprocess
import sys
from functools import partial
from statistics import mean
from timeit import repeat

import torch
from tqdm import tqdm

from benchmarks.measuring import program
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.decoding import greedy
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.runs import new_trainer
from transformer_lessons.trainer.tasks import NumberWords

PACKAGE, TIMES, ROUNDS = "transformer_lessons", 12, 4
WORKS = "a step of training", "a translated number"
WAYS = ["default", "OMP_WAIT_POLICY=PASSIVE", *(f"GOMP_SPINCOUNT={n}" for n in (1000, 4000, 16000)), PACKAGE]


def report() -> None:
    """Print seconds of each kind of work in this process: the fastest alone, and the mean beside others."""
    task = NumberWords()
    trainer = new_trainer(task, task.tokenisers(), task.sizes, task.training, torch.device("cpu"))
    model, source, _ = load_model()
    src = torch.tensor([source.encode(task.read("421"))])
    works = trainer.train_step, partial(greedy, accelerate(model), src, max_length=16)
    # The first ones of a process take longer.
    alone = [min(repeat(work, number=1, repeat=3 + TIMES)[3:]) for work in works]
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        print(json.dumps([alone, [mean(repeat(work, number=1, repeat=TIMES)) for work in works]]))
    finally:
        for neighbour in neighbours:
            neighbour.kill()


def measured(way: str) -> list[list[float]]:
    """The report of a process that waits this way; the package chooses if imported before torch."""
    first = PACKAGE if way == PACKAGE else "torch"
    code = f"import {first}, logging; logging.disable(); from benchmarks import busy; busy.report()"
    command = ["env", "-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT", *[way] * ("=" in way), sys.executable]
    return json.loads(subprocess.check_output([*command, "-c", code]))


if __name__ == "__main__":
    program("busy", __doc__).parse_args()
    found = 1000 * torch.tensor([[measured(way) for way in WAYS] for _ in tqdm(range(ROUNDS))])
    alone, busy = found[:, :, 0].mean(0), found[:, :, 1].quantile(0.5, 0)
    for work, name in enumerate(WORKS):
        print(f"{name:24}  ms alone  speed of default  ms beside others  time of best")
        for way, one, beside in zip(WAYS, alone[:, work], busy[:, work], strict=True):
            speed, time = alone[0, work] / one, beside / busy[:, work].min()
            print(f"{way:24}{one:10.1f}{speed:18.2f}{beside:18.1f}{time:14.2f}")
