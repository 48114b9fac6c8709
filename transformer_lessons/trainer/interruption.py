"""Ctrl-C between two steps, never within one."""

import signal
import threading
from contextlib import contextmanager


@contextmanager
def stop_signal():
    """Yields an event that the first Ctrl-C or SIGTERM sets, so that a step is never torn; the second raises.

    A pitfall: outside the main thread no signal can be caught; there the event is never set.

    Raises:
        KeyboardInterrupt: on the second signal.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # only the main thread may handle signals
        return

    def on_signal(number, frame):
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
