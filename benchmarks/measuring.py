"""Speeds of contenders that take turns, the rate of products of matrices, and memory at its peak."""

import statistics
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from transformer_lessons.data.files import write_json

OURS = "ours"
Speeds = dict[str, list[float]]  # in each round


def in_turns(contenders: dict[str, Callable[[], int]], rounds: int, steps: int) -> Speeds:
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
    """Each one's median speed, and by how much ours is faster."""
    medians = {name: round(statistics.median(found)) for name, found in speeds.items()}
    return {"tokens_per_second": medians, "ours_is_faster": ratios(speeds, OURS)}


def ratios(speeds: Speeds, base: str) -> dict[str, float]:
    """By how much `base` is faster than each of the others: the median of the rounds' ratios."""
    others = {name: found for name, found in speeds.items() if name != base}
    return {name: share(speeds[base], 1.0, found) for name, found in others.items()}


def share(speeds: list[float], flops: float, rates: list[float]) -> float:
    """Of the rounds' rates, what so many operations a token come to: the median."""
    reached = [flops * speed / rate for speed, rate in zip(speeds, rates, strict=True)]
    return round(statistics.median(reached), 3)


def matrices(size: int = 1024, repeats: int = 5, **kind: object) -> Callable[[], int]:
    """A contender whose speed is the rate: floating-point operations in products of square matrices."""
    a, b = torch.randn(size, size, **kind), torch.randn(size, size, **kind)

    def multiply() -> int:
        for _ in range(repeats):
            a @ b
        return repeats * 2 * size**3

    return multiply


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that is allocated at one time during work(), beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    events = (event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]")
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def measured(parts: dict[str, Callable[[], dict]], only: str, record: dict, target: Path | None) -> None:
    """Each part whose name has `only` in it, printed, and the record written after it if there is a target."""
    for name, measure in parts.items():
        if only in name:
            record[name] = measure()
            print(name, record[name], file=sys.stderr, flush=True)
            if target:
                write_json(target, record)
