"""Batches made ahead of time: the next one on a thread, while the device computes this one.

What it buys: a batch of the paper's size (50,000 tokens of both sides, §5.1) takes 21 ms of Python to make, 34 if
it is packed, and a GPU would wait for it in every step. On a CPU, where a step of 2,000 such tokens takes most of
a second, its batch takes a thousandth of that: there it buys nothing and costs nothing, and is done all the same,
so that what is tested without a GPU is what runs on one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from transformer_lessons import expect

Made = TypeVar("Made")


@contextmanager
def made_ahead(make: Callable[[int], Made], end: int) -> Iterator[Callable[[int], Made]]:
    """Yields a function that returns ``make(number)``, and has a thread begin on ``make(number + 1)``.

    Nothing from `end` on is made that was not asked for. What `make` raises for a number comes out where that
    number is asked for, not before. The thread is gone when the context is left.

    A pitfall: the thread runs beside its caller, so `make` must not share with it anything that either changes,
    such as the global random state: a batch has to be a function of its number.

    Raises:
        ValueError: for a `make` that cannot be called, or an `end` that is negative or no integer.
    """
    expect.function(make=make)
    expect.lengths(end=end)
    coming: dict[int, Future] = {}

    def made(number: int) -> Made:
        this = coming.pop(number, None) or thread.submit(make, number)
        for other in list(coming):  # whoever asks out of order gets what he asks for
            coming.pop(other).cancel()
        if number + 1 < end:
            coming[number + 1] = thread.submit(make, number + 1)
        return this.result()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="next batch") as thread:
        try:
            yield made
        finally:
            thread.shutdown(wait=True, cancel_futures=True)
