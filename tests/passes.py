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


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if config.getoption("--full") and (state := fingerprint(config.rootpath)):
        record = config.rootpath / FOLDER / f"{state}.txt"
        config.pluginmanager.register(
            Passes(record, getattr(config, "workerinput", None)), "passes of --full"
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


def is_cell(nodeid: str) -> bool:
    return nodeid.split("::")[0].endswith(".ipynb")


class Passes:
    """The process that hears of all tests reads the record and adds to it; workers are given what it read.

    So a worker that replaces another selects the same tests.
    """

    def __init__(self, record: Path, given: dict | None):
        self.record, self.is_worker, self.unsound = record, given is not None, set()
        if given:
            self.before = given["passes"]
        else:
            self.before = set(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["passes"] = self.before

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        unfinished = {i.path for i in items if is_cell(i.nodeid) and i.nodeid not in self.before}
        done = {i for i in items if i.nodeid in self.before and i.path not in unfinished}
        config.hook.pytest_deselected(items=list(done))
        items[:] = [item for item in items if item not in done]

    def pytest_runtest_logreport(self, report):
        if report.outcome != "passed":
            self.unsound.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.unsound and not self.is_worker:
            self.record.parent.mkdir(parents=True, exist_ok=True)
            with self.record.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.before:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line(
            f"{len(self.before)} tests passed on these very files before, and are left out"
            f" (anew: make test-full FRESH=1). Record: {self.record}"
        )
