"""Temporary folders: nothing stays behind, whether their process ends, is killed, or never removes them."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from exercises.autograder.running.scratch import Scratch

ROOT = Path(__file__).parent.parent
OWNER = """
import sys, tempfile, time
from exercises.autograder.running.scratch import Scratch
tempfile.tempdir = sys.argv[1]
scratch = Scratch("box-")
(scratch.path / "deep").mkdir()
(scratch.path / "deep" / "file").write_text("something")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def among(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def owner(folder: Path) -> tuple[subprocess.Popen, Path]:
    """A process with such a folder, which waits until its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    return process, Path(process.stdout.readline().strip())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_there_and_then_it_is_not(among):
    scratch = Scratch("box-")
    assert scratch.path.is_dir()
    assert names(among) == [scratch.path.name, f"{scratch.path.name}.lock"]
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    (scratch.path / "file").write_text("something")
    scratch.remove()
    assert names(among) == []
    scratch.remove()  # nothing is left to do


def test_a_process_that_ends_leaves_nothing(among):
    process, path = owner(among)
    assert path.is_dir()
    process.communicate()
    assert process.returncode == 0
    assert names(among) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else_is(among):
    (killed, orphan), (alive, kept) = owner(among), owner(among)
    with alive:
        killed.kill()
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        assert (orphan / "deep" / "file").exists()
        for other in ("box-without-a-lock", "else-abc"):
            (among / other).mkdir()
        (among / "else-abc.lock").touch()
        Scratch("else-x").remove()  # another prefix: none of its business
        assert orphan.exists()
        scratch = Scratch("box-")
        assert not orphan.exists()
        assert not Path(f"{orphan}.lock").exists()
        assert (kept / "deep" / "file").exists()
        scratch.remove()
        assert {"box-without-a-lock", "else-abc", "else-abc.lock", kept.name} <= set(names(among))
    assert not kept.exists()


def test_a_link_in_place_of_an_orphan_is_not_followed(among):
    (among / "precious").mkdir()
    (among / "precious" / "file").write_text("something")
    os.symlink(among / "precious", among / "box-link")
    (among / "box-link.lock").touch()
    os.symlink(among / "precious" / "file", among / "box-other.lock")
    Scratch("box-").remove()
    assert (among / "precious" / "file").read_text() == "something"
