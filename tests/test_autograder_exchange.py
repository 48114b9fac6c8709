"""A round trip through nbgrader's exchange, with the commands that the instructors' guide names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "book" / "instructors_more.md").read_text(encoding="utf-8")
NAME = "ps01_embeddings_attention"


@pytest.mark.full
@pytest.mark.isolated
def test_an_assignment_goes_out_and_comes_back(tmp_path):
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange").chmod(0o777)
    settings = GUIDE.partition("nbgrader_config.py`, for students")[2].split("```python\n")[1].split("```")[0]
    assert "/srv/nbgrader/exchange" in settings
    config = tmp_path / "etc" / "nbgrader_config.py"
    config.parent.mkdir()
    config.write_text(settings.replace("/srv/nbgrader/exchange", str(tmp_path / "exchange")))
    variables = {
        "TRANSFORMER_LESSONS_COURSE": str(tmp_path / "course"),
        "JUPYTER_CONFIG_PATH": str(config.parent),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "none"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }

    def call(command: str, folder: Path, *more: str) -> str:
        """Run a command of the guide, with the guide's configuration and no other."""
        assert f"`{command}`" in GUIDE or f"\n{command}\n" in GUIDE, f"the guide does not name: {command}"
        line = " ".join([command.replace("/home/teacher", str(tmp_path)), *more])
        about = {"cwd": folder, "env": os.environ | variables, "text": True, "timeout": 600}
        done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **about)
        assert done.returncode == 0, done.stdout
        return done.stdout

    student = tmp_path / "student"
    student.mkdir()
    call(f'python -m exercises.autograder release {NAME} --due "2026-12-01 23:59 +0100"', ROOT)
    release = f"nbgrader release_assignment {NAME} --CourseDirectory.release_directory=release"
    assert f"Released as: transformers {NAME}" in call(release, ROOT / "exercises")
    call("nbgrader fetch_assignment", student, NAME)
    handed_out = ROOT / "exercises" / "release" / NAME / f"{NAME}.ipynb"
    assert (student / NAME / f"{NAME}.ipynb").read_bytes() == handed_out.read_bytes()
    call("nbgrader submit", student, NAME)
    assert "Processing 1 submissions" in call(f"nbgrader collect {NAME}", ROOT / "exercises")
    graded = call("python -m exercises.autograder grade /home/teacher/course/submitted", ROOT)
    assert f"{NAME}  0 of " in graded
    assert "not graded" not in graded
