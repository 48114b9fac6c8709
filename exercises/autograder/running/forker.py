"""The process that imports torch once and forks two processes for each submission: the learner's and the tests'.

It is started with a clean environment, reads nothing of any course, and learns of a submission no more than how
long it may take: so the learner's process, a copy of it, holds no secret. The tests' process gets the master's
cells from the grader itself, through a socket that this process only hands on.
"""

import gc
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time

import matplotlib.pyplot as plt
import torch

from exercises.autograder.box import linux
from exercises.autograder.box.confine import (
    ConfinementError,
    Limits,
    SandboxedProcess,
    end,
    forked,
    memory_in_use,
    spawn_sandboxed,
    waited,
)
from exercises.autograder.box.usage import Watchdog, filled
from exercises.autograder.running import cells, runner, student
from exercises.autograder.running.wire import send
from transformer_lessons import checks

__all__ = ["main"]

KILL_AFTER_SECONDS = 5.0  # seconds after which tests that should have ended by themselves are ended
TESTS_MEMORY = 3 << 28  # bytes that a test may use, whatever the learner's process sends
OWN_MEMORY = 1 << 29  # bytes of Python and torch that a learner's process may copy
POLL_SECONDS = 0.05  # seconds between two looks at the memory of a box
MOST = 65_536  # bytes of a request


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
    send(grader, {}, math.inf)  # ready
    while True:
        text, files, _, _ = socket.recv_fds(grader, MOST, 1)
        if not text:
            return
        control = socket.socket(fileno=files[0])
        try:
            took = _Job(control, json.loads(text)).run()
        except (ConfinementError, OSError) as error:
            took = {"error": f"{type(error).__name__}: {error}"}
        send(grader, took, math.inf)


class _Job:
    """The processes of one submission."""

    def __init__(self, control: socket.socket, request: dict):
        self._control, self._folder, self._isolated = control, request["folder"], request["isolated"]
        self._limits = Limits(**request["limits"])
        self._learner: SandboxedProcess | None = None
        self._watch: Watchdog | None = None
        self._cpu = 0.0

    def run(self) -> dict:
        """Fork the tests, and for them as many learners' processes as they ask for; what that took."""
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        tests = forked(lambda: self._be_the_tests(theirs), (ours,))
        theirs.close()
        self._control.close()
        try:
            in_time = self._supply(ours, began + self._limits.seconds + KILL_AFTER_SECONDS)
        finally:
            self._end_learner()
            ours.close()
            os.kill(tests, signal.SIGKILL)
            self._cpu += waited(tests)[1]
        return {"seconds": time.monotonic() - began, "cpu_seconds": self._cpu, "in_time": in_time}

    def _supply(self, tests: socket.socket, deadline: float) -> bool:
        """A learner's process for each byte that the tests send; whether they ended in time."""
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([tests], [], [], min(left, POLL_SECONDS if self._learner else left))
            if not ready:
                if self._watch and self._watch.exceeded():
                    self._end_learner()
                continue
            if not tests.recv(1):
                return True
            self._end_learner()
            self._learner = self._started((tests,))
            most, already = self._limits.memory + self._limits.scratch, filled(os.getpid())
            self._watch = Watchdog(self._learner.pid, most, already, self._limits.processes)
            socket.send_fds(tests, [b"."], [self._learner.connection.fileno()])
            self._learner.connection.close()
        return False

    def _started(self, others: tuple) -> SandboxedProcess:
        """A learner's process, in its box."""
        if self._isolated:
            return spawn_sandboxed(student.run, self._folder, self._limits, others)
        ours, theirs = socket.socketpair()
        pid = forked(lambda: student.run(theirs), (ours, *others))
        theirs.close()
        return SandboxedProcess(pid, ours, signal.SIGKILL)

    def _be_the_tests(self, supply: socket.socket) -> None:
        linux.die_with_parent()
        resource.setrlimit(resource.RLIMIT_DATA, [memory_in_use()["VmData"] + TESTS_MEMORY] * 2)
        runner.run(self._control, lambda: _supplied(supply))

    def _end_learner(self) -> None:
        if self._learner is not None:
            self._cpu += end(self._learner)
        self._learner = self._watch = None


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
