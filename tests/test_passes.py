"""An interrupted full run goes on; failures, changed files and incomplete notebooks run again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import pytest

pytest_plugins = ["passes"]


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true")


class Cell(pytest.Item):
    def runtest(self):
        assert (self.path.parent / "good").exists() or self.name == "first"

    def reportinfo(self):
        return self.path, 0, self.name


class Notebook(pytest.File):
    def collect(self):
        return [Cell.from_parent(self, name=name) for name in ("first", "second")]


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".ipynb":
        return Notebook.from_parent(parent, path=file_path)
"""
TESTS = """
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def left_behind():
    yield
    assert (HERE / "good").exists()


def test_one(): pass
def test_two(): assert (HERE / "good").exists()
def test_three(left_behind): pass
@pytest.mark.skip
def test_four(): pass
def test_last():
    if (HERE / "cut").exists(): os._exit(9)
"""
CELLS = ["first", "second"]
TESTED = ["test_last", "test_one", "test_three", "test_two"]


@pytest.fixture
def project(tmp_path):
    texts = {"conftest.py": CONFTEST, "test_it.py": TESTS, "n.ipynb": "", "README": "", "good": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    # The files that decide what passes are ignored by git, so that they may change.
    (tmp_path / ".gitignore").write_text("good\ncut\n.pytest_cache\n__pycache__\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def run(project, *options):
    """The names of the tests that a run reports as passed, and the finished process."""
    line = [sys.executable, "-m", "pytest", "-p", "xdist", "-v", "--full", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(Path(__file__).parent)}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to load
    done = subprocess.run(line, cwd=project, capture_output=True, text=True, env=env, check=False)
    words = [line.split() for line in done.stdout.splitlines() if "PASSED" in line]
    return sorted(next(word for word in line if "::" in word).split("::")[1] for line in words), done


def test_what_failed_runs_again_and_half_a_notebook_runs_whole(project):
    (project / "good").unlink()
    run(project)
    (project / "good").touch()
    assert run(project)[0] == [*CELLS, *TESTED[2:]]


@pytest.mark.full
@pytest.mark.parametrize("workers", [(), ("--numprocesses=1",)], ids=["alone", "workers"])
def test_a_run_that_is_cut_goes_on_until_a_file_changes(project, workers):
    (project / "cut").touch()
    run(project, *workers)
    (project / "cut").unlink()
    assert run(project, *workers)[0] == ["test_last"]
    passed, again = run(project, *workers)
    assert (passed, again.returncode) == ([], 0)
    assert "6 tests passed on these very files before, and are skipped" in again.stdout
    for changed in ("README", "new.py"):  # git does not know the second yet
        (project / changed).write_text("another word")
        assert run(project, *workers)[0] == [*CELLS, *TESTED]
    (project / ".git").rename(project / "not-git")
    assert run(project, *workers)[0] == [*CELLS, *TESTED]
