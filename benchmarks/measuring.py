"""Speeds of contenders that take turns, the rate of products of matrices, and memory at its peak."""

import statistics
import time
from collections.abc import Callable
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

OURS = "ours"


def in_turns(contenders: dict[str, Callable[[], int]], rounds: int, steps: int) -> dict[str, list[float]]:
    """The speed of each in each round, after one round that does not count."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in tqdm(range(rounds + 1), unit="round", leave=False, disable=None):
        for name, step in contenders.items():
            started = time.perf_counter()
            tokens = sum(step() for _ in range(steps))
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # what was launched has to be done
            if number:
                speeds[name].append(tokens / (time.perf_counter() - started))
    return speeds


def compared(speeds: dict[str, list[float]]) -> dict:
    """Each one's median speed, and by how much ours is faster: the median of the rounds' ratios."""
    medians = {name: round(statistics.median(found)) for name, found in speeds.items()}
    return {"tokens_per_second": medians, "ours_is_faster": ratios(speeds, OURS)}


def ratios(speeds: dict[str, list[float]], base: str) -> dict[str, float]:
    """By how much `base` is faster than each of the others."""
    of = speeds[base]
    return {
        name: round(statistics.median(a / b for a, b in zip(of, other, strict=True)), 3)
        for name, other in speeds.items()
        if name != base
    }


def beside_matrices(
    contenders: dict[str, Callable[[], int]], rounds: int, steps: int, rate: Callable[[], float]
) -> tuple[dict[str, list[float]], list[float]]:
    """`in_turns`, and the best of `steps` calls of `rate` in each round."""
    rates: list[float] = []

    def matrices() -> int:
        rates.append(rate())
        return 0

    speeds = in_turns({**contenders, "matrices": matrices}, rounds, steps)
    del speeds["matrices"]
    return speeds, [max(rates[steps * (n + 1) : steps * (n + 2)]) for n in range(rounds)]


def share(speeds: list[float], flops: float, rates: list[float]) -> float:
    """Of the rounds' rates, what so many operations a token come to: the median."""
    reached = [flops * speed / rate for speed, rate in zip(speeds, rates, strict=True)]
    return round(statistics.median(reached), 3)


def matmul_rate(size: int = 1024, repeats: int = 5, **kind: object) -> float:
    """Floating-point operations a second in products of square matrices, the best of a few."""
    a, b = torch.randn(size, size, **kind), torch.randn(size, size, **kind)
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        a @ b
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that is allocated at one time during work(), beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    events = (event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]")
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))
