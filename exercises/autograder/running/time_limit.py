"""An alarm for code that may never end by itself."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["time_limit"]


@contextmanager
def time_limit(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raises in what runs within, however deep in Python, when the time is over.

    A pitfall: what never returns to Python, or catches everything, goes on; only another process can end that.

    Args:
        seconds: by the wall clock.
        error: what is raised; not an `Exception`, which many a loop would catch.
    """

    def ring(*_: Any) -> None:
        raise error(f"this took longer than {seconds:.1f} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
