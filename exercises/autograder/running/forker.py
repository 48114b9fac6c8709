"""The process that imports torch once and forks two processes per submission: the learner's and the tests'.

It is started with a clean environment, reads nothing of any course, and learns no more about a submission
than its limits; so the learner's process, a copy of it, holds no secret. The tests' process gets the master's
cells from the grader itself, through a socket that this process only passes on.
"""

import gc
import json
import math
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from exercises.autograder.box import confine, linux
from exercises.autograder.running import cells, runner, student
from exercises.autograder.running.wire import send
from transformer_lessons import checks

KILL_AFTER_SECONDS = 5.0  # seconds after which tests that should have ended by themselves are killed
TESTS_MEMORY = 3 << 28  # bytes that a test may use, whatever the learner's process sends
POLL_SECONDS = 0.05  # seconds between two checks of a box's memory
MOST_BYTES = 65_536  # the most bytes of a request
PROCESSES = Path("/proc")
RESIDENT = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)  # without files, which are read-only


def main(grader: socket.socket) -> None:
    """Fork for one request after another, each with the tests' end of a socket, until the grader ends."""
    linux.set_dumpable(False)
    _warm_up()
    gc.collect()
    gc.freeze()  # what exists now is never collected, so that its pages stay shared with the children
    send(grader, {}, math.inf)  # ready
    while True:
        text, files, _, _ = socket.recv_fds(grader, MOST_BYTES, 1)
        if not text:
            return
        control = socket.socket(fileno=files[0])
        try:
            reply = _Processes(control, json.loads(text)).run()
        except (confine.ConfinementError, OSError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        send(grader, reply, math.inf)


class _Processes:
    """The processes of one submission."""

    def __init__(self, control: socket.socket, request: dict):
        self._control, self._folder, self._isolated = control, request["folder"], request["isolated"]
        self._limits = confine.Limits(**request["limits"])
        self._learner: confine.SandboxedProcess | None = None
        self._watch: Watchdog | None = None

    def run(self) -> dict:
        """Fork the tests, and as many learners' processes as they ask for; return the time taken."""
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        tests = confine.fork_child(lambda: self._run_tests(theirs), (ours,))
        theirs.close()
        self._control.close()
        try:
            self._supply_learners(ours, began + self._limits.seconds + KILL_AFTER_SECONDS)
        finally:
            self._end_learner()
            ours.close()
            os.kill(tests, signal.SIGKILL)
            os.waitpid(tests, 0)
        return {"seconds": time.monotonic() - began}

    def _supply_learners(self, tests: socket.socket, deadline: float) -> None:
        """Start a learner's process for each byte that the tests send, until they end or their time is up."""
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([tests], [], [], min(left, POLL_SECONDS if self._learner else left))
            if not ready:
                if self._watch and self._watch.exceeded():
                    self._end_learner()
                continue
            if not tests.recv(1):
                return
            self._end_learner()
            self._learner = self._start_learner((tests,))
            most, initial = self._limits.memory + self._limits.scratch, resident_memory(os.getpid())
            self._watch = Watchdog(self._learner.pid, most, initial, self._limits.processes)
            socket.send_fds(tests, [b"."], [self._learner.connection.fileno()])
            self._learner.connection.close()

    def _start_learner(self, others: tuple) -> confine.SandboxedProcess:
        """Start a learner's process, in its box if it is isolated."""
        if self._isolated:
            return confine.spawn_sandboxed(student.run, self._folder, self._limits, others)
        ours, theirs = socket.socketpair()
        pid = confine.fork_child(lambda: student.run(theirs), (ours, *others))
        theirs.close()
        return confine.SandboxedProcess(pid, ours, signal.SIGKILL)

    def _run_tests(self, supplier: socket.socket) -> None:
        linux.die_with_parent()
        resource.setrlimit(resource.RLIMIT_DATA, [confine.memory_in_use()["VmData"] + TESTS_MEMORY] * 2)
        runner.run(self._control, lambda: _request_learner(supplier))

    def _end_learner(self) -> None:
        if self._learner is not None:
            confine.terminate(self._learner)
        self._learner = self._watch = None


def _request_learner(supplier: socket.socket) -> socket.socket:
    supplier.sendall(b".")
    _, files, _, _ = socket.recv_fds(supplier, 1, 1)
    if not files:
        raise confine.ConfinementError("no process for the learner's code could be started")
    return socket.socket(fileno=files[0])


class Watchdog:
    """A watch over one box, polled again and again: the kernel limits only each process by itself, and many
    small ones use as much as one large one.

    Args:
        keeper: the process whose descendants are in the box.
        memory: bytes they may use together; a page that two of them share counts twice.
        initial: bytes of each process that do not count, because it began with them.
        processes: how many there may be; the kernel enforces it, too, unless the box's user is root outside.
    """

    def __init__(self, keeper: int, memory: int, initial: int, processes: int):
        self._keeper, self._memory, self._initial, self._processes = keeper, memory, initial, processes
        self._before = False

    def exceeded(self) -> bool:
        """Whether the processes are too many or use too much, now and at the last check.

        Twice, because a child that is about to start another program is briefly a copy of its parent.
        """
        pids = processes_below(self._keeper)
        held = sum(max(0, resident_memory(pid) - self._initial) for pid in pids[: self._processes])
        now = held > self._memory or len(pids) > self._processes
        before, self._before = self._before, now
        return now and before


def processes_below(pid: int) -> list[int]:
    """All descendants of a process, the children of all its threads included."""
    try:
        found = [
            int(word)
            for thread in (PROCESSES / str(pid) / "task").iterdir()
            for word in (thread / "children").read_text().split()
        ]
    except OSError:  # it has just ended
        return []
    return [*found, *(other for child in found for other in processes_below(child))]


def resident_memory(pid: int) -> int:
    """The bytes of memory that a process uses, without mapped files; 0 if it has ended."""
    try:
        return 1024 * sum(map(int, RESIDENT.findall((PROCESSES / str(pid) / "status").read_text())))
    except OSError:
        return 0


def _warm_up() -> None:
    """Do once here what is slow the first time: imports, a backward pass, a comparison, a shell, a figure.

    Of the checks, everything is done that does not depend on the secret seeds of the tests.
    """
    torch.set_num_threads(1)
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(x, x)
    torch.autograd.gradcheck(lambda x: (x * x).softmax(-1), (x,))
    for task in checks.tasks():
        checks.check(task, None)
    cells.get_shell()
    plt.close(plt.figure())
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, "a process with threads cannot fork safely"


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
