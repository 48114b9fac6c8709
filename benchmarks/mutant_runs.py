"""Runs of a project's tests in forked processes, each against its own copy of the package.

The parent imports torch & co. once and never the package: a child imports it from its copy, in which at most one
file is changed.
"""

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from multiprocessing import Process, connection, get_context
from pathlib import Path

import pytest

from benchmarks.mutations import Mutant

LEAST_SECONDS = 20.0  # of processor time before a run counts as stuck, however quick its tests
PATIENCE = 10  # times as long it may take by the clock: on a busy machine it waits, and is not stuck
SURVIVED, KILLED, STUCK = "survived", "killed", "timed out"


@dataclass(frozen=True)
class Project:
    """A package, its tests, and what its tests import anyway.

    `left_out` names test files that read files and run no function of the package in their own process.
    """

    root: Path
    package: str
    preload: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def load(self) -> None:
        """Import once what every child needs; it must not import the package."""
        for plugin in entry_points(group="pytest11"):
            if plugin.name != "nbval":  # seconds, and only notebooks need it
                plugin.load()
        for name in self.preload:
            importlib.import_module(name)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
            torch.zeros(2, 3, device="meta").abs()  # the first of these imports for seconds
        assert self.package not in sys.modules, f"{self.package}: imported before any copy could be"
        gc.freeze()  # a child's collector need not walk, and so copy, all that


@dataclass(frozen=True)
class Run:
    """Tests to run in this order against a mutant, and after how many seconds of work it counts as stuck.

    `known` are all tests there are: one that only the mutant has, because a parameter is named after a constant,
    runs too.
    """

    tests: tuple[str, ...]
    known: frozenset[str]
    mutant: Mutant
    limit: float

    def pytest_collection_modifyitems(self, items):
        """A pytest hook: keep what was asked for, in its order."""
        order = {name: place for place, name in enumerate(self.tests)}
        kept = [item for item in items if item.nodeid in order or item.nodeid not in self.known]
        items[:] = sorted(kept, key=lambda item: order.get(item.nodeid, len(order)))

    def files(self) -> list[str]:
        """The test files in the order in which they are first needed."""
        return list(dict.fromkeys(name.partition("::")[0] for name in self.tests))


def copied(project: Project, folder: Path, mutant: Mutant | None = None) -> Path:
    """A folder with a copy of the package, mutated; time stamps stay, so that compiled files are good."""
    package = shutil.copytree(project.root / project.package, folder / project.package)
    if mutant:
        (package / f"{mutant.module}.py").write_text(mutant.source, encoding="utf-8")
    return folder


def start(project: Project, folder: Path, work: Callable[[], int]) -> Process:
    """A forked child that finds the copy in `folder` first, and whose exit code is what `work` returns."""
    process = get_context("fork").Process(target=_child, args=(project, folder, work))
    process.start()
    return process


def stop(process: Process) -> None:
    """Kill a child and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not got as far as a group of its own, or nothing is left of it
        process.kill()
    process.join()


def _child(project: Project, folder: Path, work: Callable[[], int]) -> None:
    code = 98
    try:
        _enter(project, folder)
        code = work()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _enter(project: Project, folder: Path) -> None:
    """Find the copy first, here and in processes that tests start, and leave no trace elsewhere."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with (folder / "output").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.dont_write_bytecode = True
    os.environ.update(
        PYTHONPATH=f"{folder}{os.pathsep}{project.root}",
        PYTHONSAFEPATH="1",  # or `python -m` would prefer the working directory's package
        PYTHONDONTWRITEBYTECODE="1",
        HYPOTHESIS_STORAGE_DIRECTORY=str(folder / "hypothesis"),
    )
    sys.path[:] = [str(folder), str(project.root), *(entry for entry in sys.path if entry)]
    os.chdir(project.root)


def run_pytest(project: Project, folder: Path, files: list[str], plugin: object, *options: str) -> int:
    """Pytest's exit code, or 99 if the package that was tested is not the copy."""
    options = [*options, "-q", "-p", "no:cacheprovider", "-p", "no:nbval", f"--basetemp={folder / 'tmp'}"]
    # Plugins that the parent has imported, hypothesis for one, keep their own asserts as they are.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*files, *options], plugins=[plugin])
    package = sys.modules.get(project.package)
    if package and not Path(package.__file__).is_relative_to(folder):
        print(f"{project.package}: expected from {folder}, got {package.__file__}")
        return 99
    return int(code)


def tail(folder: Path) -> str:
    """The end of what a child printed."""
    return (folder / "output").read_text(errors="replace")[-4000:]


class _Running:
    """A child at work."""

    def __init__(self, project: Project, run: Run):
        self.run, self.began = run, time.monotonic()
        self.temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = copied(project, Path(self.temporary.name).resolve(), run.mutant)
        self.process = start(project, self.folder, lambda: self._work(project))

    def _work(self, project: Project) -> int:
        import resource  # which only systems that can fork have

        seconds = int(self.run.limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        return run_pytest(project, self.folder, self.run.files(), self.run, "-x")

    def outcome(self) -> str | None:
        """None while it runs.

        Raises:
            RuntimeError: if pytest did not run the tests, which says nothing about the mutant.
        """
        code = self.process.exitcode
        if code is None:
            return STUCK if time.monotonic() - self.began > PATIENCE * self.run.limit else None
        if code == -signal.SIGXCPU:
            return STUCK
        if code in (0, 1, 2) or code < 0:  # 2: the mutant cannot be imported; below 0: it crashed
            return SURVIVED if code == 0 else KILLED
        raise RuntimeError(
            f"pytest: expected tests to run or fail, got exit code {code}\n{tail(self.folder)}"
        )

    def end(self) -> None:
        """Stop it and all it has started, and remove its files."""
        stop(self.process)
        self.temporary.cleanup()


def outcomes(project: Project, runs: list[Run], jobs: int) -> Iterator[tuple[Run, str, float]]:
    """Each run, whether the mutant survived, was killed or timed out, and the seconds that took."""
    waiting, running = deque(runs), []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_Running(project, waiting.popleft()))
            connection.wait([child.process.sentinel for child in running], timeout=0.5)
            for child in list(running):
                if outcome := child.outcome():
                    running.remove(child)
                    child.end()
                    yield child.run, outcome, time.monotonic() - child.began
    finally:
        for child in running:
            child.end()
