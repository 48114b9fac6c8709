"""What benchmarks share: their programs, speeds of contenders that take turns, and records."""

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
Speeds = dict[str, list[float]]  # in each round
Parts = dict[str, Callable[[], dict]]  # of a record, and what measures them


def program(name: str, about: str) -> argparse.ArgumentParser:
    """The arguments of ``python -m benchmarks.NAME``, whose ``--help`` says what it is about."""
    as_written = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(
        f"python -m benchmarks.{name}", description=about, formatter_class=as_written
    )


def interleave(contenders: dict[str, Callable[[], int]], rounds: int, steps: int) -> Speeds:
    """The speed of each in each round: what a step returns, a second; one round before does not count."""
    speeds = {name: [] for name in contenders}
    for number in tqdm(range(rounds + 1), unit="round", leave=False, disable=None):
        for name, step in contenders.items():
            started = time.perf_counter()
            done = sum(step() for _ in range(steps))
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # what was launched has to be done
            if number:
                speeds[name].append(done / (time.perf_counter() - started))
    return speeds


def compared(speeds: Speeds) -> dict:
    """Each one's median speed, and by how much ours is faster: the median of the rounds' ratios."""
    medians = {name: round(statistics.median(found)) for name, found in speeds.items()}
    ratios = {name: share(speeds[OURS], 1.0, found) for name, found in speeds.items() if name != OURS}
    return {"tokens_per_second": medians, "ours_is_faster": ratios}


def share(speeds: list[float], flops: float, rates: list[float]) -> float:
    """Of the rounds' rates, what so many operations a token come to: the median."""
    reached = [flops * speed / rate for speed, rate in zip(speeds, rates, strict=True)]
    return round(statistics.median(reached), 3)


def matrices(size: int = 1024, repeats: int = 5, **kind: object) -> Callable[[], int]:
    """A contender whose speed is the rate: floating-point operations in products of square matrices."""
    a, b = torch.randn(size, size, **kind), torch.randn(size, size, **kind)

    def multiply() -> int:
        for _ in range(repeats):
            linear(a, b)
        return repeats * 2 * size**3

    return multiply


def write(name: str, device: str = "cpu", **found: object) -> None:
    """The record that a page shows, with the versions that made it."""
    found["made_with"] = versions(torch.device(device)) | found.get("made_with", {})
    write_json(RECORDS / f"{name}.json", found)


def measure(
    name: str, about: str, parts: Parts, device: str, packages: tuple[str, ...] = (), **made_with: object
) -> None:
    """A program with parts, or those that ``--only`` names: each is printed, and the record written after it."""
    parser = program(name, about)
    parser.add_argument("--only", default="", metavar="TEXT", help="parts with TEXT in their names")
    only = parser.parse_args().only
    made_with |= {package: version(package) for package in packages}  # or it ends, before hours are spent
    torch.manual_seed(0)
    record = read_json(RECORDS / f"{name}.json") if only else {}
    for part in [part for part in parts if only in part]:
        record[part] = parts[part]()
        print(part, record[part], file=sys.stderr, flush=True)
        write(name, device, **record | {"made_with": made_with})  # what is measured now decides
