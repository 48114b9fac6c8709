"""The container file, without an engine: what it copies exists, is enough, and contains no grades."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exercises.autograder import doctor

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
COPIED = {name for line in re.findall(r"^COPY (.+) \S+$", TEXT, re.MULTILINE) for name in line.split()}


def test_what_it_copies_exists_and_holds_no_grades():
    assert {"Makefile", "exercises"} <= COPIED
    assert [name for name in COPIED if not (ROOT / name).exists()] == []
    assert "exercises/_nbgrader" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.full
@pytest.mark.skipif(doctor.problem() is not None, reason=f"no isolation: {doctor.problem()}")
def test_grading_needs_only_the_copied_files(tmp_path):
    """Run the image's entry point with this machine's Python and the image's HOME."""
    image, course, handed_in = (tmp_path / name for name in ("image", "course", "ann__ps02_masks.ipynb"))
    tracked = subprocess.run(["git", "ls-files", "-z", *COPIED], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, tracked.stdout.decode().split("\0")):
        (image / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, image / name)
    subprocess.run(["make", "--dry-run", "setup"], cwd=image, capture_output=True, check=True)
    shutil.copyfile(image / "exercises/release/ps02_masks/ps02_masks.ipynb", handed_in)
    line = [sys.executable, "-m", "exercises.autograder", "grade", str(handed_in), "--workers", "1"]
    assert 'ENTRYPOINT ["python", "-m", "exercises.autograder"]' in TEXT
    (variables,) = re.findall(r"^ENV (.+)$", TEXT, re.MULTILINE)
    home = dict(word.split("=", 1) for word in shlex.split(variables))["HOME"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PATH": path, "HOME": home, "TRANSFORMER_LESSONS_COURSE": str(course)}
    done = subprocess.run(line, cwd=image, env=settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ann  ps02_masks  0 of \d+$", done.stdout, re.MULTILINE), done.stdout
    assert (course / "gradebook.db").is_file()
    assert not (image / "exercises" / "_nbgrader").exists()
