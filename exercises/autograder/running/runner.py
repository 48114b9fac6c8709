"""The tests' process: it has the learner's cells run in the other process, and tests what they define.

Only the instructor's code runs here. It is read after the fork that makes this process, so that no other fork
ever held it; what the learner's process sends is data, checked before it is believed to be even that.
"""

import ast
import builtins
import io
import json
import math
import os
import random
import re
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from IPython.core.inputtransformer2 import TransformerManager
from torch import Tensor

from exercises.autograder.result import CellResult, Part
from exercises.autograder.running.cells import error_output
from exercises.autograder.running.proxy import LearnerError, Name, unwrap_answer
from exercises.autograder.running.remote import GRACE, Connection, time_limit
from exercises.autograder.running.wire import PeerGoneError, WireError, receive, send
from transformer_lessons import checks

TEXT = 4_000  # characters of a message
RERUN_SECONDS = 1.0  # seconds for running a cell again that was stopped before
NO_OUTPUTS = "[]"  # no outputs, as JSON
PEER_ERRORS = (PeerGoneError, WireError)


@dataclass(frozen=True)
class Cell:
    """A code cell, as the grader knows it."""

    id: str  # the grade id; "" for a cell of the learner's own
    role: str  # "learner", "instructor" (locked, run by both) or "test" (run here only)
    source: str  # the master's text if it is locked, else the learner's
    points: float = 0.0  # the most that a test gives


def run(control: socket.socket, request_learner: Callable[[], socket.socket]) -> None:
    """Test one submission: receive its cells from the grader, and send each outcome once it is known."""
    _reseed()
    job = receive(control, math.inf)
    cells = [Cell(**receive(control, math.inf)) for _ in range(job["cells"])]
    runner = TestRunner(cells, request_learner, job["cell_seconds"], time.monotonic() + job["seconds"])
    for outcome in runner.outcomes():
        send(control, outcome, math.inf)


def _reseed() -> None:
    """Seed afresh: after a fork, the learner's process has the same random numbers and could predict ours."""
    seed = int.from_bytes(os.urandom(7), "little")
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@dataclass
class TestRunner:
    """A run through a notebook's cells from top to bottom."""

    cells: list[Cell]  # all code cells, in the notebook's order
    # Ends the previous learner's process and gives a connection to a fresh one
    request_learner: Callable[[], socket.socket]
    cell_seconds: float  # how long a cell may take
    deadline: float  # the deadline for everything, by `time.monotonic`
    _names: "_Names" = field(default_factory=lambda: _Names(__name__="tests", __builtins__=builtins))
    # The cells that ran in the learner's process without ending it, and how long each may take if run again.
    _done: list[tuple[Cell, float]] = field(default_factory=list)
    _connection: Connection | None = None

    def outcomes(self):
        """Yield each cell's outputs, with the result if it is a test, as plain values; finally the notes."""
        for number, cell in enumerate(self.cells):
            if time.monotonic() >= self.deadline:
                outcome = {"outputs": NO_OUTPUTS, "lost": "The submission's time was used up."}
                if cell.role == "test":
                    outcome["result"] = asdict(CellResult(cell.id, 0.0, cell.points, "timeout"))
            else:
                if cell.role == "instructor":
                    self._run_local(cell)
                outcome = self._run_test(cell) if cell.role == "test" else {"outputs": self._run_remote(cell)}
            yield {"cell": number, **outcome}
        notes = []  # hints for a person, which the learner's process may forge
        with suppress(*PEER_ERRORS):
            notes = self._ask("notes")
        yield {"notes": notes}

    # The learner's process

    def _run_remote(self, cell: Cell) -> str:
        """Run a cell in the learner's process; return its outputs as JSON, which is not to be trusted."""
        try:
            connection = self._learner()
            began, seconds = time.monotonic(), self._seconds()
            connection.allow(seconds)
            outputs = connection.ask("cell", [cell.source], {})
        except PEER_ERRORS as error:
            return json.dumps([error_output("Stopped", f"This cell was ended: {error}.")])
        in_time = time.monotonic() - began < seconds
        self._done.append((cell, self.cell_seconds if in_time else RERUN_SECONDS))
        return outputs if type(outputs) is str else NO_OUTPUTS

    def _ask(self, verb: str) -> Any:
        connection = self._learner()
        connection.allow(self._seconds())
        return connection.ask(verb, [], {})

    def _seconds(self) -> float:
        return max(0.1, min(self.cell_seconds, self.deadline - time.monotonic()))

    def _learner(self) -> Connection:
        """The learner's process; if it has ended, a fresh one, in which the cells so far are run again.

        A cell that ends the process is not run again: what the others define is still tested.
        """
        while self._connection is None or self._connection.failure:
            if time.monotonic() >= self.deadline:
                raise PeerGoneError("the submission's time was used up")
            if self._connection:
                self._connection.close()
            self._connection = Connection(self.request_learner(), self.cell_seconds)
            self._done = [(cell, seconds) for cell, seconds in self._done if self._rerun(cell, seconds)]
        return self._connection

    def _rerun(self, cell: Cell, seconds: float) -> bool:
        """Whether to keep a cell, run again; once one has ended the process, the rest waits for the next."""
        if self._connection.failure:
            return True
        self._connection.allow(min(seconds, self._seconds()))
        with suppress(*PEER_ERRORS):
            self._connection.ask("cell", [cell.source], {})
            return True
        return False

    # The tests

    def _run_local(self, cell: Cell) -> None:
        """Run a cell of the instructor's for what it defines; tests will report what is missing then."""
        quiet, limit = io.StringIO(), time_limit(self._seconds(), _TestTimeLimitError)
        with suppress(BaseException), redirect_stdout(quiet), redirect_stderr(quiet), limit:
            _execute(cell.source, cell.id, self._names)
        _reseed()  # it may have set a seed that everybody knows

    def _run_test(self, cell: Cell) -> dict:
        """Run a test cell and return its outcome; never raise because of what the cell finds."""
        printed, lost = io.StringIO(), ""
        with checks.scored() as scored, redirect_stdout(printed), redirect_stderr(printed):
            try:
                earned, status, messages, shown = self._score(cell), "done", [], []
            except BaseException as error:
                earned, status, messages, shown = 0.0, *_describe_failure(error)
                lost = str(error) if isinstance(error, PEER_ERRORS) else ""
        messages += [report.message for report, _ in scored if not report.passed]
        if earned < cell.points and not messages:  # the test may have caught every error
            noted = dict.fromkeys((*self._names.noted, *self._connection.noted))
            messages = [note[:TEXT] for note in noted][:20]
            lost = str(self._connection.failure or next((m for m in messages if "TimeLimitError" in m), ""))
        kept = tuple(dict.fromkeys(message[:TEXT] for message in messages))
        result = CellResult(cell.id, earned, cell.points, status, kept, _parts(scored), _mistakes(scored))
        if printed.getvalue():
            shown = [{"output_type": "stream", "name": "stdout", "text": printed.getvalue()[:TEXT]}, *shown]
        return {"outputs": json.dumps(shown), "result": asdict(result), "lost": lost}

    def _score(self, cell: Cell) -> float:
        # Cells that have to run again take none of the test's time.
        self._learner().noted, self._names.noted = [], ()
        with time_limit(self._seconds() + GRACE + 0.2, _TestTimeLimitError):
            given = self._ask_for_names(cell)
            self._names.update(given)
            try:
                value = _execute(cell.source, cell.id, self._names)
            finally:
                for name, value_given in given.items():
                    if self._names.get(name) is value_given:
                        del self._names[name]
        return _points(value, cell.points)

    def _ask_for_names(self, cell: Cell) -> dict[str, Any]:
        """The learner's values for names that a test mentions, also in a string; never a test's own names."""
        # All that is defined there: asking for some would tell the learner's process what a test looks at.
        found = unwrap_answer(self._connection, "your names", self._ask("values"))
        if type(found) is not dict or not all(type(x) is list and len(x) == 2 for x in found.values()):
            raise WireError("reply: expected values by name")
        words = set(re.findall(r"[^\W\d]\w*", cell.source))  # as in ``globals()["answer"]``
        wanted = words - set(dir(builtins)) - self._names.keys()
        return {
            name: what if kind == "plain" else Name(self._connection, name, what == "class")
            for name, (kind, what) in found.items()
            if name in wanted
        }


def _execute(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell, magics included; return the value of its last line, if that is an expression."""
    body = ast.parse(TransformerManager().transform_cell(source)).body
    last = body[-1] if body and isinstance(body[-1], ast.Expr) else None
    statements = ast.Module(body[:-1] if last else body, type_ignores=[])
    exec(compile(statements, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if last else None


def _points(value: Any, most: float) -> float:
    """The points for a test's last value: a number, a bool, or None, which gives all as no error was raised.

    Raises:
        ValueError: for a number that cannot be points, and for anything else: the learner may have made it.
    """
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if value is None or isinstance(value, bool):
        return most * (value is not False)
    if not isinstance(value, int | float):
        raise ValueError(f"the test: expected points, got a {type(value).__name__}")
    if not 0 <= value <= most + 1e-9:
        raise ValueError(f"the test: expected 0 to {most} points, got {value}")
    return min(float(value), most)


def _describe_failure(error: BaseException) -> tuple[str, list[str], list[dict]]:
    """The status, the messages for the student and the outputs for the instructor of a test that raised."""
    name = type(error).__name__
    trace = "".join(traceback.format_exception(error))[-5 * TEXT :]  # the learner's message may be long
    shown = [error_output(name, str(error)[:TEXT], [trace])]
    if isinstance(error, _TestTimeLimitError):
        return "timeout", ["The test took too long."], shown
    if isinstance(error, PEER_ERRORS):
        return "missing", [f"Your code ended the test: {error}."], shown
    told = isinstance(error, AssertionError | LearnerError | NameError)
    return "error", [f"{name}: {error}" if told else f"The test stopped with {name}."], shown


def _parts(scored: list) -> tuple[Part, ...]:
    return tuple(
        Part(report.task, one.name, one.text, float(points[one.name]), report.requirements[one.name])
        for report, points in scored
        for one in checks.task(report.task).requirements
        if one.name in points
    )


def _mistakes(scored: list) -> tuple[str, ...]:
    reports = [report for report, _ in scored if report.misconception]
    return tuple(f"{report.task}/{one}" for report in reports for one in (report.misconception, *report.also))


class _Names(dict):
    """The names of the tests; those that they look up in vain are noted."""

    noted: tuple[str, ...] = ()

    def __missing__(self, name: str) -> Any:
        if not hasattr(builtins, name):
            self.noted += (f"NameError: name '{name}' is not defined",)
        raise KeyError(name)


class _TestTimeLimitError(BaseException):
    """Raised when a test of the instructor's takes too long by itself."""
