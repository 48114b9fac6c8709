"""The checks' adapter over a socket: `Remote` where the tests run, `serve` where the learner's code does.

Each request carries a number, and so must its reply: one that was written ahead of time is out of step and ends
the conversation. What is not exactly a `Reply` does, too.
"""

import itertools
import socket
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from torch import Tensor

from exercises.autograder.wire import PeerGoneError, WireError, receive, send
from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.local import Local

__all__ = ["Connection", "Remote", "serve"]

VERBS = ("build", "call", "vjp", "load_state", "state", "train", "to")
FOREVER = 1e9


class Connection:
    """The tests' end of the socket.

    Args:
        connection: a stream socket whose other end is served by `serve`.
        seconds: how long a single request may take.
        deadline: when all of it must be over, by `time.monotonic`.
    """

    def __init__(self, connection: socket.socket, seconds: float, deadline: float = FOREVER):
        self._socket, self._seconds, self._deadline = connection, seconds, deadline
        self._numbers = itertools.count(1)
        self.over: Exception | None = None  # why nothing more can be asked

    def ask(self, verb: str, args: list, kwargs: dict) -> Any:
        """One request, and the value of its reply.

        Raises:
            WireError: if the reply breaks the rules. Every later request raises the same.
            PeerGoneError: if the learner's process has ended or takes too long; likewise.
        """
        if self.over:
            raise self.over
        number, deadline = next(self._numbers), min(self._deadline, time.monotonic() + self._seconds)
        try:
            send(self._socket, {"number": number, "verb": verb, "args": args, "kwargs": kwargs}, deadline)
            answer = receive(self._socket, deadline)
            if type(answer) is not dict or answer.keys() != {"number", "value"} or answer["number"] != number:
                raise WireError("reply: out of step")
        except (WireError, PeerGoneError) as error:
            self.over = error
            raise
        return answer["value"]


class Remote:
    """One of the learner's names, to be handed to `checks.check` in place of what it stands for.

    Args:
        connection: to the process in which the name is defined.
        name: of the function or class there. What the check calls it does not matter.
    """

    def __init__(self, connection: Connection, name: str):
        self._connection, self._name = connection, name

    def build(self, target: str, args: list, kwargs: dict, *, seed: int = 0) -> Reply:
        """Make an object; the reply's value is its handle."""
        return self._ask("build", self._known(target), args, kwargs, seed=seed)

    def call(self, target: str, args: list, kwargs: dict, *, seed: int = 0, meter: bool = False) -> Reply:
        """Call, with copies of the arguments."""
        return self._ask("call", self._known(target), args, kwargs, seed=seed, meter=meter)

    def vjp(
        self, target: str, args: list, kwargs: dict, cotangents: list, *, seed: int = 0, meter: bool = False
    ) -> Reply:
        """Call and go backwards in one request."""
        return self._ask("vjp", self._known(target), args, kwargs, cotangents, seed=seed, meter=meter)

    def load_state(self, handle: str, state: dict[str, Tensor]) -> Reply:
        """Load weights into a module, all of them."""
        return self._ask("load_state", handle, state)

    def state(self, handle: str) -> Reply:
        """The weights and buffers of a module, by name."""
        return self._ask("state", handle)

    def train(self, handle: str, mode: bool = True) -> Reply:
        """Put a module into training or evaluation mode."""
        return self._ask("train", handle, mode)

    def to(self, handle: str, where: str) -> Reply:
        """Move a module to a dtype or a device."""
        return self._ask("to", handle, where)

    def _ask(self, verb: str, *args: Any, **kwargs: Any) -> Reply:
        value = self._connection.ask(verb, list(args), kwargs)
        try:
            return _reply(value)
        except WireError as error:
            self._connection.over = error
            raise

    def _known(self, target: str) -> str:
        """Handles and given objects keep their names; anything else is what the check calls the learner's."""
        if "#" in target or target.startswith("given."):
            return target
        return ".".join([self._name, *target.split(".")[1:]])


def serve(connection: socket.socket, names: dict[str, Any], local: Callable[[dict], Adapter] = Local) -> None:
    """Answer requests about what a learner defined, until the other side ends.

    Args:
        connection: the learner's end of the socket.
        names: what the learner defined; looked up at each request, so that a later cell may redefine it.
        local: the adapter that does the work here.
    """
    adapter = local(names)
    while True:
        try:
            request = receive(connection, time.monotonic() + FOREVER)
        except PeerGoneError:
            return
        verb, args, kwargs = request["verb"], request["args"], request["kwargs"]
        reply = getattr(adapter, verb)(*args, **kwargs) if verb in VERBS else _refused(verb)
        _answer(connection, request["number"], reply)


def _answer(connection: socket.socket, number: int, reply: Reply) -> None:
    """A reply, or, if it cannot be sent, why not."""
    deadline = time.monotonic() + FOREVER
    try:
        send(connection, {"number": number, "value": vars(reply)}, deadline)
    except WireError as error:
        sorry = Reply(
            error={"type": "ResultError", "message": f"your result is too large: {error}", "line": ""}
        )
        send(connection, {"number": number, "value": vars(sorry)}, deadline)


def _refused(verb: str) -> Reply:
    return Reply(error={"type": "RequestError", "message": f"no such request: {verb}", "line": ""})


def _reply(value: Any) -> Reply:
    """A `Reply`, if this is one to the last field."""
    if type(value) is not dict or value.keys() != {field.name for field in fields(Reply)}:
        raise WireError("reply: other fields")
    for name, holds in SHAPES.items():
        if not holds(value[name]):
            raise WireError(f"reply: {name} is of another kind")
    return Reply(**value)


def _list_of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(type(item) in kinds for item in value)


def _dict_of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(type(item) in kinds for item in value.values())


def _is_error(value: Any) -> bool:
    return value is None or (_dict_of(str)(value) and value.keys() == {"type", "message", "line"})


SHAPES = {
    "kind": lambda value: type(value) is str,
    "error": _is_error,
    "attached": _list_of(bool),
    "gradients": _dict_of(Tensor, type(None)),
    "parameters": _dict_of(Tensor, type(None)),
    "mutated": _list_of(str),
    "reseeded": lambda value: type(value) is bool,
    "memory": lambda value: type(value) is dict and all(map(_is_size, value.values())),
}


def _is_size(value: Any) -> bool:
    return type(value) is int or _list_of(int)(value)
