"""Shared code of the benchmarks: command lines, speeds of alternating contenders, and records."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import torch
from tqdm import tqdm

from benchmarks import RECORDS
from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.fast.products import linear
from transformer_lessons.trainer.runs import versions

OURS = "ours"
Speeds = dict[str, list[float]]  # one per round
Parts = dict[str, Callable[[], dict]]  # the parts of a record, and what measures them


def program(name: str, about: str) -> argparse.ArgumentParser:
    """The argument parser of ``python -m benchmarks.NAME``; `about` is its help text."""
    return argparse.ArgumentParser(
        f"python -m benchmarks.{name}", None, about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def interleave(contenders: dict[str, Callable[[], int]], rounds: int, steps: int) -> Speeds:
    """Each contender's speed per round: what a step returns, per second. A first round does not count."""
    speeds = {name: [] for name in contenders}
    for number in tqdm(range(rounds + 1), unit="round", leave=False, disable=None):
        for name, step in contenders.items():
            started = time.perf_counter()
            done = sum(step() for _ in range(steps))
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # launched kernels have to be done
            if number:
                speeds[name].append(done / (time.perf_counter() - started))
    return speeds


def compared(speeds: Speeds) -> dict:
    """The median speeds, and how many times as fast ours is: the median of the rounds' ratios."""
    medians = {name: round(statistics.median(found)) for name, found in speeds.items()}
    ratios = {name: median_share(speeds[OURS], 1.0, found) for name, found in speeds.items() if name != OURS}
    return {"tokens_per_second": medians, "ours_is_faster": ratios}


def median_share(speeds: list[float], flops: float, rates: list[float]) -> float:
    """The median share of the rounds' rates that is reached, at `flops` operations per token."""
    reached = [flops * speed / rate for speed, rate in zip(speeds, rates, strict=True)]
    return round(statistics.median(reached), 3)


def matrices(size: int = 1024, **kind: object) -> Callable[[], int]:
    """A contender that multiplies square matrices; its speed is in floating-point operations per second."""
    a, b = torch.randn(2, size, size, **kind)

    def multiply() -> int:
        for _ in range(5):
            linear(a, b)
        return 5 * 2 * size**3

    return multiply


def write(name: str, device: str = "cpu", **found: object) -> None:
    """Write the record that a page shows, with the versions that made it."""
    found["made_with"] = versions(torch.device(device)) | found.get("made_with", {})
    write_json(RECORDS / f"{name}.json", found)


def measure(
    name: str, about: str, parts: Parts, device: str, packages: tuple[str, ...] = (), **made_with: object
) -> None:
    """Run all parts, or those that ``--only`` selects; print each and write the record after it."""
    parser = program(name, about)
    parser.add_argument("--only", default="", metavar="TEXT", help="run only parts with TEXT in their names")
    only = parser.parse_args().only
    made_with |= {package: version(package) for package in packages}  # fails here, before hours are spent
    torch.manual_seed(0)
    record = read_json(RECORDS / f"{name}.json") if only else {}
    for part in [part for part in parts if only in part]:
        record[part] = parts[part]()
        print(part, record[part], file=sys.stderr, flush=True)
        write(name, device, **record | {"made_with": made_with})  # this run's versions count
