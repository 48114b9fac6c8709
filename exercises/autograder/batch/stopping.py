"""Ctrl-C that is not lost: what a signal raises while Python disposes of an object, Python drops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["check", "noticing"]

_asked = threading.Event()


@contextmanager
def noticing() -> Iterator[None]:
    """Within, Ctrl-C raises `KeyboardInterrupt` as ever, and `check` raises it once more."""
    _asked.clear()
    before = signal.signal(signal.SIGINT, _notice)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _asked.clear()


def _notice(number: int, frame: object) -> None:
    _asked.set()
    raise KeyboardInterrupt


def check() -> None:
    """Stop here, if somebody has asked to and was not heard.

    Raises:
        KeyboardInterrupt: if so.
    """
    if _asked.is_set():
        raise KeyboardInterrupt
