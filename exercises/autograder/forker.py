"""The process that imports torch once and forks two processes for each submission: the learner's and the tests'.

It is started with a clean environment, reads nothing of any course, and learns of a submission no more than how
long it may take: so the learner's process, a copy of it, holds no secret. The tests' process gets the master's
cells from the grader itself, through a socket that this process only hands on.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import torch

from exercises.autograder import cells, examiner, linux, student
from exercises.autograder.confine import ConfinementError, Limits, confined_child, map_users
from transformer_lessons import checks

__all__ = ["main"]

PATIENCE = 5.0  # seconds after which tests that should have ended by themselves are ended
SETUP = 20.0  # seconds in which a box must stand
MOST = 65_536  # bytes of a request


@dataclass
class Learner:
    """A learner's process, or the keeper of its box."""

    pid: int
    connection: socket.socket


def main(grader: socket.socket) -> None:
    """Fork for one request after the other, until the grader ends.

    Args:
        grader: sends requests, each with the tests' end of a socket, and gets a reply to each.
    """
    linux.die_with_parent()
    linux.set_dumpable(False)
    _warm_up()
    gc.collect()
    gc.freeze()  # what is here now is never collected, so that the children's copies stay shared
    _reply(grader, ready=True)
    while True:
        text, files, _, _ = socket.recv_fds(grader, MOST, 1)
        if not text:
            return
        control = socket.socket(fileno=files[0])
        try:
            _reply(grader, **_Job(control, json.loads(text)).run())
        except (ConfinementError, OSError) as error:
            _reply(grader, error=f"{type(error).__name__}: {error}")


def _reply(grader: socket.socket, **content: Any) -> None:
    grader.sendall(json.dumps(content).encode() + b"\n")


class _Job:
    """The processes of one submission."""

    def __init__(self, control: socket.socket, request: dict):
        self._control, self._folder, self._isolated = control, request["folder"], request["isolated"]
        self._limits = Limits(**request["limits"])
        self._learner: Learner | None = None
        self._cpu = 0.0

    def run(self) -> dict:
        """Fork the tests, and for them as many learners' processes as they ask for; what that took."""
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        tests = _forked(lambda: self._be_the_tests(theirs), (ours,))
        theirs.close()
        self._control.close()
        try:
            in_time = self._supply(ours, began + self._limits.seconds + PATIENCE)
        finally:
            self._end(self._learner)
            ours.close()
            status = self._waited(tests, signal.SIGKILL)
        return {
            "seconds": time.monotonic() - began,
            "cpu_seconds": self._cpu,
            "in_time": in_time,
            "status": status,
        }

    def _supply(self, tests: socket.socket, deadline: float) -> bool:
        """A learner's process for each byte that the tests send; whether they ended in time."""
        while True:
            ready, _, _ = select.select([tests], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            if not tests.recv(1):
                return True
            self._end(self._learner)
            self._learner = None
            self._learner = self._started((tests,))
            socket.send_fds(tests, [b"."], [self._learner.connection.fileno()])
            self._learner.connection.close()

    def _started(self, others: tuple) -> Learner:
        """A learner's process, in its box."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SETUP)
        pid = _forked(lambda: self._be_the_learner(theirs), (ours, *others))
        theirs.close()
        try:
            if self._isolated:
                _hear(ours, b"u")
                map_users(pid)
                ours.sendall(b"m")
            _hear(ours, b"r")
        except BaseException:
            self._end(Learner(pid, ours))
            raise
        return Learner(pid, ours)

    def _be_the_learner(self, connection: socket.socket) -> None:
        try:
            if self._isolated:
                confined_child(self._folder, self._limits, connection)
            else:
                os.chdir(self._folder)
        except ConfinementError as error:
            connection.sendall(b"!" + str(error).encode()[:1000])
            return
        connection.sendall(b"r")
        student.run(connection)

    def _be_the_tests(self, supply: socket.socket) -> None:
        linux.die_with_parent()
        examiner.run(self._control, lambda: _supplied(supply))

    def _end(self, learner: Learner | None) -> None:
        """End a box; its keeper stays a moment longer, to know what time it took."""
        if learner is not None:
            learner.connection.close()
            self._waited(learner.pid, signal.SIGTERM if self._isolated else signal.SIGKILL)

    def _waited(self, pid: int, kill: int) -> int:
        os.kill(pid, kill)
        _, status, usage = os.wait4(pid, 0)
        self._cpu += usage.ru_utime + usage.ru_stime
        return os.waitstatus_to_exitcode(status)


def _forked(work: Callable[[], None], close: tuple) -> int:
    """A child that does this and ends, whatever happens; the other files it does not need are closed in it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for one in close:
            one.close()
        work()
    finally:
        os._exit(0)


def _hear(connection: socket.socket, expected: bytes) -> None:
    heard = connection.recv(1)
    if heard != expected:
        said = connection.recv(1000) if heard == b"!" else b"it ended"
        raise ConfinementError(said.decode(errors="replace"))


def _supplied(supply: socket.socket) -> socket.socket:
    supply.sendall(b".")
    _, files, _, _ = socket.recv_fds(supply, 1, 1)
    if not files:
        raise ConfinementError("no process for the learner's code could be started")
    return socket.socket(fileno=files[0])


def _warm_up() -> None:
    """What is slow the first time is done once here: imports, a way back, a comparison, a shell, a figure.

    Of the checks, all that does not depend on the secret seeds of the tests.
    """
    torch.set_num_threads(1)
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(x, x)
    torch.autograd.gradcheck(lambda x: (x * x).softmax(-1), (x,))
    for task in checks.tasks():
        checks.check(task, None)
    cells.the_shell()
    plt.close(plt.figure())
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a process with threads cannot fork safely"


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
