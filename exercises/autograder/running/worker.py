"""The grader's end of the forking process: it grades submissions one after another, in separate processes."""

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib

from exercises.autograder.box.confine import HOME, Limits
from exercises.autograder.running.runner import Cell
from exercises.autograder.running.wire import PeerGoneError, WireError, receive, send

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 120.0  # seconds for starting Python and importing torch on a slow machine
# Python is told to take nothing from its environment; it finds the autograder by this file's path.
PROGRAM = """
import sys
from runpy import run_module

sys.path.insert(0, sys.argv[2])
from exercises.autograder.box import linux

linux.die_with_parent()  # at once, as what is imported then takes seconds
run_module("exercises.autograder.running.forker", run_name="__main__")
"""


class WorkerError(Exception):
    """Raised when the learner's code could not be run because of the grader or the machine."""


class Worker:
    """A forking process, started when it is first needed."""

    def __init__(self):
        self._process: subprocess.Popen | None = None
        self._forker: socket.socket
        self._folder = TemporaryDirectory(prefix="box-", ignore_cleanup_errors=True)

    def close(self) -> None:
        """End the process and everything that it has forked."""
        self._stop()
        self._folder.cleanup()

    def _stop(self) -> None:
        if self._process:
            self._forker.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def grade(self, cells: list[Cell], limits: Limits, *, isolated: bool = True) -> Iterator[dict]:
        """Run a notebook's code cells; yield the outcome of each, then a dict with the time and the notes.

        If not isolated, the learner's code can do anything that the grader may.

        Raises:
            WorkerError: if the processes cannot be started, break the protocol, or the forking one has ended.
        """
        self._start()
        ours, theirs = socket.socketpair()
        request = {"folder": self._folder.name, "limits": asdict(limits), "isolated": isolated}
        with ours:
            with theirs:
                try:
                    socket.send_fds(self._forker, [json.dumps(request).encode()], [theirs.fileno()])
                except OSError as error:  # it was alive when it was polled
                    raise WorkerError(f"the forking process: {error}") from None
            notes = yield from self._outcomes(ours, cells, limits)
        reply = self._receive(limits.seconds + START_SECONDS)
        if "error" in reply:
            raise WorkerError(reply["error"])
        yield reply | notes

    def _outcomes(self, tests: socket.socket, cells: list[Cell], limits: Limits) -> Generator:
        """Yield what the tests send, until they end; the forking process decides how long that may take.

        Returns the notes.
        """
        job = {"cells": len(cells), "cell_seconds": limits.cell_seconds, "seconds": limits.seconds}
        try:
            for part in (job, *map(asdict, cells)):
                send(tests, part, math.inf)
            for _ in cells:
                yield receive(tests, math.inf)
            return receive(tests, math.inf)
        except PeerGoneError:
            return {"notes": []}
        except WireError as error:
            raise WorkerError(f"the tests' process broke the protocol: {error}") from error

    def _start(self) -> None:
        if self._process and self._process.poll() is None:
            return
        self._stop()
        self._forker, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-c", PROGRAM, str(theirs.fileno()), str(ROOT)]
            files = [theirs.fileno()]
            environment = _environment(self._folder.name)
            self._process = subprocess.Popen(command, env=environment, pass_fds=files, cwd="/")
        self._receive(START_SECONDS)

    def _receive(self, seconds: float) -> dict:
        """The next message of the forking process."""
        try:
            return receive(self._forker, time.monotonic() + seconds)
        except (PeerGoneError, WireError) as error:
            raise WorkerError(f"the forking process: {error}") from None


def _environment(folder: str) -> dict[str, str]:
    """The process's environment: of the grader's own, which may hold passwords, only LD_LIBRARY_PATH."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": HOME,
        "USER": "student",
        "LOGNAME": "student",
        "TMPDIR": HOME,
        "IPYTHONDIR": folder,
        "OMP_NUM_THREADS": "1",  # threads do not survive a fork
        "MKL_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # torch.compile leaves a function as it is: there is no compiler in the box
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # holds the list of fonts, which takes long to make
        "PYTHONHASHSEED": "0",
        "NBGRADER_EXECUTION": "autograde",
        **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
    }
