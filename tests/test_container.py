"""The container file, without an engine: what it copies is there and is enough, and no grade is among it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from book.repository import tracked_files
from exercises.autograder import doctor

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Names and arguments, in their order."""
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def arguments(name: str) -> list[str]:
    return [text for found, text in instructions() if found == name]


def copies() -> list[tuple[list[str], str]]:
    """Sources and target of each COPY."""
    return [(words[:-1], words[-1]) for words in map(str.split, arguments("COPY"))]


def variables() -> dict[str, str]:
    return dict(word.split("=", 1) for text in arguments("ENV") for word in shlex.split(text))


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A folder with the repository's files that the image gets."""
    folder = tmp_path_factory.mktemp("lessons")
    wanted = {source for sources, _ in copies() for source in sources}
    for path in tracked_files(ROOT):
        name = path.relative_to(ROOT)
        if name.parts[0] in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
    return folder


def start(image: Path, course: Path, *words: str) -> subprocess.CompletedProcess:
    """The image's entry point with this machine's Python; HOME is where nothing may be written."""
    (entry,) = map(json.loads, arguments("ENTRYPOINT"))
    assert entry[0] == "python"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PATH": path, "HOME": variables()["HOME"], "TRANSFORMER_LESSONS_COURSE": str(course)}
    line = [sys.executable, *entry[1:], *words]
    return subprocess.run(line, cwd=image, env=settings, capture_output=True, text=True, timeout=600)


def test_the_base_is_named_with_its_version():
    (base,) = arguments("FROM")
    assert re.fullmatch(r"docker\.io/library/python:3\.1[1-3]-slim-[a-z]+", base)


def test_what_is_copied_exists_and_keeps_its_name():
    for sources, target in copies():
        assert all((ROOT / source).exists() for source in sources)
        assert target == "./" or sources == [target]


def test_only_make_setup_and_the_systems_own_commands_build_it():
    known = (
        r"apt-get update && apt-get install .* make && rm -rf /var/lib/apt/lists/\*",
        r"useradd .*",
        "make setup",
    )
    runs = arguments("RUN")
    assert [run for run in runs if not any(re.fullmatch(pattern, run) for pattern in known)] == []
    assert runs[-1] == "make setup"


def test_it_does_not_run_as_root():
    names = [name for name, _ in instructions()]
    assert arguments("USER") == ["grader"]
    assert names.index("USER") < names.index("WORKDIR") < names.index("ENTRYPOINT")
    assert "useradd --create-home grader" in TEXT


def test_setup_needs_no_file_that_comes_later(image):
    """All that `make setup` and the build of the package read is copied before it."""
    before = TEXT.partition("RUN make setup")[0]
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    read = re.findall(r'"(README\.md|LICENSE(?:-text)?|transformer_lessons)"', settings)
    for name in {"Makefile", "pyproject.toml", "requirements.txt", *read}:
        assert re.search(rf"^COPY .*(?<![\w-]){re.escape(name)}(?![\w-])", before, re.MULTILINE), name
    done = subprocess.run(["make", "--dry-run", "setup"], cwd=image, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_git_ignores_stays_out_and_grades_above_all():
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    kept_out = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert "exercises/_nbgrader" in kept_out
    assert ignored <= kept_out


def test_the_course_is_a_volume_that_the_grader_uses():
    assert arguments("VOLUME") == [variables()["TRANSFORMER_LESSONS_COURSE"]]


def test_its_first_word_is_the_doctors(image, tmp_path):
    (command,) = map(json.loads, arguments("CMD"))
    done = start(image, tmp_path / "course", *command)
    assert done.returncode == (0 if doctor.problem() is None else 1), done.stderr
    assert "  files: " in done.stdout or "NO  " in done.stdout


@pytest.mark.skipif(doctor.problem() is not None, reason=f"no isolation: {doctor.problem()}")
def test_it_grades_with_these_files_alone(image, tmp_path):
    notebook = "exercises/release/ps02_masks/ps02_masks.ipynb"
    handed_in = tmp_path / "ann__ps02_masks.ipynb"
    shutil.copyfile(image / notebook, handed_in)
    done = start(image, tmp_path / "course", "grade", str(handed_in), "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ann  ps02_masks  0 of \d+$", done.stdout, re.MULTILINE), done.stdout
    assert (tmp_path / "course" / "gradebook.db").is_file()
    assert not (image / "exercises" / "_nbgrader").exists()


def test_the_guide_names_the_options_that_the_file_names():
    guide = (ROOT / "book" / "instructors.md").read_text(encoding="utf-8")
    for option in ("seccomp=unconfined", "apparmor=unconfined", "--network none", "--file Containerfile"):
        assert option in TEXT
        assert option in guide
