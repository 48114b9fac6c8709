"""The learner's process: it runs cells as a notebook does, and answers what the tests ask about them.

It holds no secrets. Its replies are not believed: they are what the learner's code shows, and then judged.
"""

import json
import numbers
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from exercises.autograder.running.cells import Shell, error_output, get_shell
from exercises.autograder.running.flags import LibraryCallRecorder
from exercises.autograder.running.remote import TOO_LATE, serve, time_limit
from exercises.autograder.running.wire import DTYPES, VALUES
from transformer_lessons.checks.learner.adapter import Reply, is_handle
from transformer_lessons.checks.learner.local import Local
from transformer_lessons.checks.learner.transfer import copied, describe_unusual, outgoing

MOST_NAMES = 2_000  # names whose values the tests may look at
MOST_LETTERS = 200_000  # characters of all values together; a number in a tensor counts as one character
VALUE_COST = 15  # characters that any other value counts as, because a frame holds fewer of these
SMALL = 2_000  # characters of a small value; these go first
MOST_OUTPUT = 400_000  # characters of one cell's outputs, as JSON
DEPTH = 8


class TimeLimitError(BaseException):
    """Raised when a cell or call takes too long; not an `Exception`, because many loops catch those."""


def run(connection: socket.socket) -> None:
    """Serve requests of the tests' process until it is done."""
    _load_data_in_one_process()
    sys.path.insert(0, "")  # as in Jupyter: files that a cell has written can be imported
    serve(connection, Learner(get_shell()).answer)


def _load_data_in_one_process() -> None:
    """Load in one process: workers pass tensors by sockets, which the box lacks, and would wait forever."""
    plain = DataLoader.__init__

    @wraps(plain)
    def init(self: DataLoader, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        self.num_workers, self.timeout = 0, 0

    DataLoader.__init__ = init


class Learner:
    """A shell in which cells run, and what is defined in it."""

    def __init__(self, shell: Shell):
        self._shell = shell
        self.recorder = LibraryCallRecorder()  # notes, while answers are tested, what a person may look at
        self._local = Local(shell.user_ns)

    def answer(self, verb: str, args: list, kwargs: dict, seconds: float) -> Any:
        """The plain value that answers a request, within the time limit."""
        try:
            with time_limit(seconds, TimeLimitError):
                if verb == "cell":
                    return self._cell(*args)
                with self.recorder:
                    if verb == "notes":
                        return self.recorder.notes
                    if verb in ("values", "apply"):
                        return getattr(self, f"_{verb}")(*args)
                    return vars(getattr(self._local, verb)(*args, **kwargs))
        except TimeLimitError:
            return vars(Reply(error=TOO_LATE))
        except Exception as error:  # from a request that no adapter handles
            return vars(Reply(error={"type": type(error).__name__, "message": str(error)[:400], "line": ""}))

    def _cell(self, source: str) -> str:
        """Run a cell and return its outputs as JSON."""
        try:
            outputs = self._shell.run(source)
        except TimeLimitError:
            outputs = [*self._shell.outputs, error_output("TimeLimitError", TOO_LATE["message"])]
        self._local = Local(self._shell.user_ns)  # drops the objects made for earlier tests
        text = json.dumps(outputs, default=str)
        cut = {"output_type": "stream", "name": "stdout", "text": "[cut: too much output]\n"}
        return text if len(text) <= MOST_OUTPUT else json.dumps([cut])

    def _values(self) -> dict[str, list]:
        """The defined names: ``["plain", value]``, or ``["object", kind]`` if the value is not plain.

        All of them, as far as they fit into one reply: functions and classes come first, then small values.
        """
        hidden, user = self._shell.user_ns_hidden, self._shell.user_ns
        names = (name for name in user if type(name) is str and not name.startswith("_"))
        own = {name: user[name] for name in names if name not in hidden}  # the hidden ones are the shell's
        names = sorted(own, key=lambda name: not callable(own[name]))[:MOST_NAMES]
        found = {name: ["object", "class" if isinstance(own[name], type) else "object"] for name in names}
        left = MOST_LETTERS
        for most in (SMALL, MOST_LETTERS):
            for name in [name for name in found if found[name][0] == "object"]:
                budget = _Budget(min(most, left))
                with suppress(Exception):  # the value is not plain, or too large
                    value, left = _plain(own[name], budget), left - budget.spent
                    found[name] = ["plain", value]
        return found

    def _apply(self, target: str, args: list, kwargs: dict) -> dict:
        """Call; return also the arguments as they are afterwards: a test may check whether they changed."""
        given = [copied(args), copied(kwargs)]

        def call() -> Any:
            objects = [self._local.find(arg["handle"]) if is_handle(arg) else arg for arg in given[0]]
            return _spelt_out(self._local.find(target)(*objects, **given[1]))

        reply = Local({"applied": call}).call("applied", [], {})
        return {"reply": vars(reply), "after": outgoing(given)}


@dataclass
class _Budget:
    """The budget for plain values, in characters as `VALUE_COST` counts them."""

    most: int
    spent: int = 0

    def spend(self, letters: int) -> None:
        self.spent += letters
        if self.spent > self.most:
            raise TypeError("more than can be sent")


def _int64(number: int) -> int:
    number = int.__int__(number)
    if not -(2**63) <= number < 2**63:
        raise TypeError("a number of more than 64 bits")
    return number


SCALAR: dict[type, Callable] = {str: str.__str__, int: _int64, float: float.__float__}
BUILT_IN = (*SCALAR, list, tuple, set, frozenset, range, dict)


def _plain(value: Any, budget: _Budget, depth: int = 0) -> Any:
    """A value as the tests may see it: a number, a string, a tensor or array, or lists and dicts of these.

    Raises:
        TypeError: for anything else, or more than can be sent.
    """
    budget.spend(VALUE_COST)
    if value is None or type(value) in (bool, np.bool_):
        return None if value is None else bool(value)
    # Methods of a class that the learner wrote may never return, so they are not called: for a subclass of a
    # built-in type, that type's own methods are, and no other object of the learner's classes is a value.
    kind = next((kind for kind in BUILT_IN if issubclass(type(value), kind)), None)
    if kind in SCALAR:
        budget.spend(str.__len__(value) if kind is str else 0)
        return SCALAR[kind](value)
    if kind:
        return _plain_items(kind, value, budget, depth + 1)
    if type(value).__module__ == "__main__":
        raise TypeError("a class of the learner's")
    if isinstance(value, numbers.Real | Decimal):
        return _int64(int(value)) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, np.ndarray) and value.size <= budget.most:
        value = torch.from_numpy(value.copy())
    if isinstance(value, Tensor) and value.dtype in DTYPES.values() and not describe_unusual(value):
        budget.spend(value.numel())
        return value.detach().cpu().clone()
    raise TypeError(f"{type(value).__name__} is no plain value")


def _plain_items(kind: type, value: Any, budget: _Budget, depth: int) -> list | dict:
    if depth > DEPTH or kind.__len__(value) * VALUE_COST > budget.most:
        raise TypeError("too deep, or too many values")
    if kind is not dict:
        items = [_plain(item, budget, depth) for item in kind.__iter__(value)]
        return sorted(items, key=str) if kind in (set, frozenset) else items
    made = {}
    for key, item in dict.items(value):
        name = str(_plain(key, _Budget(budget.most), depth))
        budget.spend(len(name))
        made[name] = _plain(item, budget, depth)
    return made


def _spelt_out(value: Any, depth: int = 0) -> Any:
    """A result with lists for sets, generators and the like, and floats for exact fractions."""
    if isinstance(value, Decimal | Fraction):
        return float(value)
    is_plain = isinstance(value, str | dict | Tensor | np.ndarray)
    if is_plain or depth > DEPTH or not isinstance(value, Iterable):
        return value
    items = [_spelt_out(item, depth + 1) for item in islice(value, VALUES)]  # some have no end
    return tuple(items) if isinstance(value, tuple) else items
