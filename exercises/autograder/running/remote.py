"""The checks' adapter over a socket: `Connection` where the tests run, `serve` where the learner's code does.

Each request carries a number, and so must its reply: a reply written ahead of time is out of step and ends
the conversation. So does anything that is not exactly a `Reply`.
"""

import itertools
import math
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from exercises.autograder.running.wire import PeerGoneError, WireError, receive, send
from transformer_lessons.checks.learner.adapter import Reply

TOO_LATE = {"type": "TimeLimitError", "message": "this took too long", "line": ""}
REPLY_TYPES = get_type_hints(Reply)
GRACE = 1.5  # seconds within which a process that is told to stop has to do so


@contextmanager
def time_limit(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raise an error in the ``with`` block, however deep in Python, when the time is over.

    The error is to be no `Exception`, because many loops catch those. A pitfall: code that never returns to
    Python or catches everything goes on; only another process ends it.
    """

    def on_alarm(*_: Any) -> None:
        raise error(f"this took longer than {seconds:.1f} s")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Connection:
    """The tests' end of a socket whose other end is served by `serve`; `allow` gives requests their time."""

    def __init__(self, connection: socket.socket, seconds: float):
        self._socket = connection
        self._numbers = itertools.count(1)
        self.failure: Exception | None = None  # why nothing more can be asked
        self.noted: list[str] = []  # what went wrong in a test's own calls
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Set how long requests may take together from now on."""
        self._deadline = time.monotonic() + seconds

    def ask(self, verb: str, args: list, kwargs: dict) -> Any:
        """Send one request and return the value of its reply.

        The other process is told how much time is left, and should then say itself that it took too long; if
        no time is left, that is said here. If it does not reply within `GRACE` after that, it is over.

        Raises:
            WireError: if the reply breaks the rules. Every later request raises the same.
            PeerGoneError: if the learner's process has ended or does not answer; likewise.
        """
        if self.failure:
            raise self.failure
        left = self._deadline - time.monotonic()
        if left <= 0:
            return vars(Reply(error=TOO_LATE))
        number, deadline = next(self._numbers), self._deadline + GRACE
        request = {"number": number, "seconds": left, "verb": verb, "args": args, "kwargs": kwargs}
        try:
            send(self._socket, request, deadline)
            answer = receive(self._socket, deadline)
            if type(answer) is not dict or answer.keys() != {"number", "value"} or answer["number"] != number:
                raise WireError("reply: expected the answer to the last request")
        except (WireError, PeerGoneError) as error:
            self.failure = error
            self.noted.insert(0, f"Your code ended the test: {error}.")
            raise
        return answer["value"]

    def reply(self, verb: str, target: str, *args: Any, **kwargs: Any) -> Reply:
        """Have the adapter of the other process do something, and return its reply."""
        value = self.ask(verb, [target, *args], kwargs)
        try:
            return reply_of(value)
        except WireError as error:
            self.failure = error
            raise

    def close(self) -> None:
        """Close the socket: nothing more will be asked, and the other side, reading, learns of it."""
        self.failure = self.failure or PeerGoneError("closed")
        self._socket.close()


def serve(connection: socket.socket, answer: Callable[[str, list, dict, float], Any]) -> None:
    """Answer requests until the other side ends: each is a verb, its arguments, and how long it may take."""
    while True:
        try:
            request = receive(connection, math.inf)
        except PeerGoneError:
            return
        value = answer(request["verb"], request["args"], request["kwargs"], request["seconds"])
        try:
            send(connection, {"number": request["number"], "value": value}, math.inf)
        except WireError as error:
            too_large = {"type": "ResultError", "message": f"your result is too large: {error}", "line": ""}
            send(connection, {"number": request["number"], "value": vars(Reply(error=too_large))}, math.inf)


def reply_of(value: Any) -> Reply:
    """The value as a `Reply`, which it must be to the last field.

    Raises:
        WireError: if it is not.
    """
    if type(value) is not dict or value.keys() != REPLY_TYPES.keys():
        raise WireError("reply: expected the fields of a Reply")
    if wrong := [name for name, kind in REPLY_TYPES.items() if not _fits(value[name], kind)]:
        raise WireError(f"reply: {wrong[0]} is of the wrong type")
    if value["error"] is not None and value["error"].keys() != TOO_LATE.keys():
        raise WireError("reply: expected the fields of an error")
    return Reply(**value)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is what an annotation says; types must be exact, as others may lie about themselves."""
    of, inner = get_origin(kind), get_args(kind)
    if of is UnionType:
        return any(_fits(value, one) for one in inner)
    if of is list:
        return type(value) is list and all(_fits(item, inner[0]) for item in value)
    if of is dict:
        return type(value) is dict and all(_fits(item, inner[1]) for item in value.values())
    return kind is Any or type(value) is kind
