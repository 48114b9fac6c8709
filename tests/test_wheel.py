"""The wheel, installed without the rest of the repository, as a notebook on Colab finds it."""

import ast
import functools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "transformer_lessons"
CHAPTERS = sorted((ROOT / "book" / "chapters").glob("*.ipynb"))
RELEASED = sorted((ROOT / "exercises" / "release").glob("*/*.ipynb"))
MASTERS = sorted((ROOT / "exercises" / "source").glob("*/*.ipynb"))
# Modules that an import must not load: they take seconds, or are not installed with the wheel.
HEAVY = set(
    "matplotlib transformers tokenizers hypothesis nbgrader IPython pandas num2words nbformat pooch "
    "sacrebleu datasets".split()
)


def build(kind: str, folder: Path) -> Path:
    """Build without a network: the build tool is one of the tests' own libraries."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@dataclass(frozen=True)
class Machine:
    """A folder with the installed wheel alone, and an empty one to work in."""

    installed: Path
    home: Path

    def run(self, *arguments: str, timeout: int = 120) -> subprocess.CompletedProcess:
        """Start Python with the wheel and the libraries of others, and without the repository.

        -S leaves out `site`, which would follow the .pth file of the editable installation into the repository.
        """
        paths = [str(self.installed), sysconfig.get_path("purelib")]
        environment = {"PYTHONPATH": os.pathsep.join(paths), "HOME": str(self.home), "MPLBACKEND": "Agg"}
        environment |= {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
        command = [sys.executable, "-S", "-P", *arguments]
        return subprocess.run(
            command, cwd=self.home, env=environment, capture_output=True, text=True, timeout=timeout
        )

    def says(self, code: str) -> str:
        """The output of this code, which must not fail."""
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def machine(wheel, tmp_path_factory) -> Machine:
    installed = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(installed), str(wheel)], check=True)
    return Machine(installed, tmp_path_factory.mktemp("home"))


# ---- What is in it


def tracked(folder: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, check=True, capture_output=True)
    return set(listed.stdout.decode().split("\0")) - {""}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(ZipFile(wheel).namelist())
    about = {name for name in names if re.match(rf"{PACKAGE}-[\d.]+\.dist-info/", name)}
    assert names - about == tracked(PACKAGE)
    assert {Path(name).name for name in about} >= {"METADATA", "LICENSE", "LICENSE-text"}
    (commands,) = (ZipFile(wheel).read(name).decode() for name in about if name.endswith("entry_points.txt"))
    assert f"lessons = {PACKAGE}.tools.cli:main" in commands


def test_the_source_distribution_holds_no_exercise_no_test_and_no_book(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        files = {Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()}
    assert {path.parts[0] for path in files} == {
        PACKAGE,
        *("README.md", "LICENSE", "LICENSE-text", "pyproject.toml", "PKG-INFO", ".gitignore"),
    }
    assert {path.as_posix() for path in files if path.parts[0] == PACKAGE} == tracked(PACKAGE)


# ---- What it does without the repository


@functools.cache
def nodes() -> list[ast.AST]:
    """The syntax nodes of the code in all notebooks that learners get."""
    return [node for path in [*CHAPTERS, *RELEASED] for node in ast.walk(ast.parse(code_of(path)))]


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^( *)[%!].*$", r"\1pass", code, flags=re.MULTILINE)


def calls() -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in nodes() if isinstance(node, ast.Call)]


def test_imports_of_notebooks_need_no_repository_and_load_nothing_heavy(machine):
    """Every module can be imported too."""
    lines = {ast.unparse(node) for node in nodes() if isinstance(node, ast.ImportFrom)}
    ours = sorted(line for line in lines if line.startswith(f"from {PACKAGE}"))
    assert len(ours) > 50
    shown = sorted({call.args[0].value for name, call in calls() if name == "records.read"})
    assert len(shown) >= 3
    modules = {re.sub(r"(/__init__)?\.py$", "", name) for name in tracked(PACKAGE) if name.endswith(".py")}
    code = f"""
import importlib, pkgutil, sys, {PACKAGE} as package
from importlib.util import find_spec
print(package.__file__)
print(*(name for name in ("book", "exercises", "tests", "benchmarks") if find_spec(name)))
names = [found.name for found in pkgutil.walk_packages(package.__path__, "{PACKAGE}.")]
for name in names:
    if not name.endswith(("__main__", "drawing", "one_page")):
        importlib.import_module(name)
print(*names)
print(*{HEAVY} & sys.modules.keys())
from {PACKAGE} import records
assert all(len(records.read(name)) for name in {shown})
"""
    place, others, names, heavy = machine.says("\n".join([code, *ours])).splitlines()
    assert Path(place) == machine.installed / PACKAGE / "__init__.py"
    assert (others, heavy) == ("", "")
    assert set(names.split()) == {name.replace("/", ".") for name in modules} - {PACKAGE}


def test_commands_train_and_translate_with_a_new_model_and_the_packaged_one(machine):
    """All commands run in one process, as starting one takes seconds."""
    lines = "train --steps 20 --output run", "translate --model run seven", "evaluate --json", "translate 421"
    code = f"from {PACKAGE}.tools.cli import main\nfor line in {lines}: assert main(line.split()) == 0"
    said = machine.says(code).splitlines()
    steps = (machine.home / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(step)["loss"] for step in steps]
    assert len(losses) == 20
    assert losses[-1] < losses[0] - 0.3
    assert json.loads(said[-2])["exact_match"] >= 0.99
    assert said[-1] == "vierhunderteinundzwanzig"


# Functions that open or name a file, by the last part of their names.
FILES = set(
    "open Path read_text read_bytes write_text glob iterdir listdir load save loadtxt fromfile".split()
)


def test_no_notebook_names_a_file_of_the_repository():
    """On Colab a notebook has no other file beside it."""
    named = {ast.unparse(call) for name, call in calls() if name.rpartition(".")[2] in FILES}
    runs = {"Path('runs/multi30k')", "Path('/content/drive/MyDrive/multi30k')"}  # chapter 16's output
    runs |= {"Path()", "Path().glob('ps0*.ipynb')"}  # the learner's assignments, in ps07
    packaged = {"book.read_text(encoding='utf-8')"}  # of importlib.resources.files, in chapters 19 and 20
    assert named == runs | packaged


@pytest.mark.full
@pytest.mark.parametrize("path", [*CHAPTERS, *MASTERS], ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, machine):
    """A chapter as it is, and an assignment with all answers; without the rest of the repository."""
    done = machine.run("-m", "IPython", "--no-banner", str(path), timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in machine.home.iterdir() if path.name[0] != "."} <= {"run"}  # another test's
