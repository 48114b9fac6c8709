"""Resume an interrupted `make test-full`, which takes hours: skip tests that passed on the same files.

A record belongs to the contents of all files of the repository and the versions that run them. It lists only
passes: what failed, was skipped or never ran, runs. A notebook's cells need each other: all run, or none.
"""

import hashlib
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

FOLDER = Path(".pytest_cache") / "full"


def pytest_configure(config):
    if config.getoption("--full") and (state := fingerprint(config.rootpath)):
        record = config.rootpath / FOLDER / f"{state}.txt"
        config.pluginmanager.register(Passes(record, is_worker=hasattr(config, "workerinput")))


def fingerprint(root: Path, *below: str) -> str:
    """A hash of all files that git tracks or would add, and of the versions; empty without git.

    Args:
        root: the repository.
        below: the files and folders that count; without any, all.
    """
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", *below]
    try:
        names = subprocess.run(listing, cwd=root, capture_output=True, check=True).stdout.split(b"\0")
    except (OSError, subprocess.CalledProcessError):
        return ""
    state = hashlib.sha256(f"{platform.python_version()} {version('torch')}".encode())
    for path in sorted(root / name.decode() for name in names if name):
        content = path.read_bytes() if path.is_file() else b""
        state.update(f"{path.relative_to(root)} {len(content)} ".encode() + content)
    return state.hexdigest()[:16]


class Passes:
    """A record of passed tests: all processes skip by it, the one that receives all reports adds to it."""

    def __init__(self, record: Path, is_worker: bool):
        self.record, self.is_worker, self.unsound = record, is_worker, set()
        self.before = set(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()

    def pytest_collection_modifyitems(self, items):
        unfinished = {i.path for i in items if i.path.suffix == ".ipynb" and i.nodeid not in self.before}
        for item in items:
            if item.nodeid in self.before and item.path not in unfinished:
                item.add_marker(pytest.mark.skip(reason="passed on these very files before"))

    def pytest_runtest_logreport(self, report):
        if report.outcome != "passed":
            self.unsound.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.unsound and not self.is_worker:
            self.record.parent.mkdir(parents=True, exist_ok=True)
            with self.record.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line(
            f"{len(self.before)} tests passed on these very files before, and are skipped"
            f" (to start again: make test-full FRESH=1). Record: {self.record}"
        )
