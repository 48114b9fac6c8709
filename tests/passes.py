"""`make test-full` takes hours and may be cut: what passed is noted, and left out next time, on the same files.

A record belongs to the content of all of the repository's files and to the versions that run them. Only passes
are noted, so what failed, was skipped or never ran, runs. A notebook's cells need each other: all run, or none.
"""

import hashlib
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

FOLDER = Path(".pytest_cache") / "full"


def pytest_addoption(parser):
    parser.addoption(
        "--fresh", action="store_true", help="with --full: also run what passed on the same files"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if config.getoption("--full") and (state := fingerprint(config.rootpath)):
        config.pluginmanager.register(
            Passes(config, config.rootpath / FOLDER / f"{state}.txt"), "passes of --full"
        )


def fingerprint(root: Path) -> str:
    """Of what git has or would add, and the versions; empty where git has nothing to say."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
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
    """Reads the record once, for all workers; the one process that hears of all adds to it, line by line."""

    def __init__(self, config, record: Path):
        self.record, self.is_worker = record, hasattr(config, "workerinput")
        if self.is_worker:
            self.before = set(config.workerinput["passes"])
        else:
            self.before = set() if config.getoption("--fresh") else read(record)
            self.now, self.unsound = set(), set()
            record.parent.mkdir(parents=True, exist_ok=True)
            self.file = record.open("a" if self.before else "w", encoding="utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["passes"] = sorted(
            self.before
        )  # a worker that replaces another must select the same

    def pytest_sessionstart(self, session):
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if self.before and terminal and not self.is_worker:
            terminal.write_line(
                f"{len(self.before)} tests passed on these very files before, and are left out"
                f" (anew: make test-full FRESH=1). Record: {self.record}"
            )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        def is_cell(item):
            return item.nodeid.split("::")[0].endswith(".ipynb")

        unfinished = {i.path for i in items if is_cell(i) and i.nodeid not in self.before}
        done = [item for item in items if item.nodeid in self.before and item.path not in unfinished]
        if done:
            left_out = set(done)
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item not in left_out]

    def pytest_runtest_logreport(self, report):
        if self.is_worker:
            return
        if report.outcome != "passed":
            self.unsound.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.unsound:
            self.now.add(report.nodeid)
            self.file.write(f"{report.nodeid}\n")
            self.file.flush()

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.before:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line(
            f"{len(self.now)} tests passed now, {len(self.before - self.now)} before. Record: {self.record}"
        )

    def pytest_unconfigure(self):
        if not self.is_worker:
            self.file.close()


def read(record: Path) -> set[str]:
    """The tests that a record names; a line that a run was cut in does not count."""
    return set(record.read_text(encoding="utf-8").split("\n")[:-1]) if record.exists() else set()
