"""The wheel, installed where nothing else of the repository is: what a notebook finds on Colab."""

import ast
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
from test_book_site import secrets, words

ROOT = Path(__file__).parents[1]
PACKAGE = "transformer_lessons"
CHAPTERS = sorted((ROOT / "book" / "chapters").glob("*.ipynb"))
RELEASED = sorted((ROOT / "exercises" / "release").glob("*/*.ipynb"))
MASTERS = sorted((ROOT / "exercises" / "source").glob("*/*.ipynb"))
# The first and the last load the trained model, the second a record.
SHORT_CHAPTERS, SHORT_MASTERS = {"09_feed_forward", "16_training_on_gpus"}, {"ps08_decoding"}


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
        """What a program prints that must not fail."""
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
    assert f"lessons = {PACKAGE}.cli:main" in commands


def test_the_wheel_holds_no_solution_and_no_hidden_test(wheel):
    archive, hidden = ZipFile(wheel), secrets()
    assert len(hidden) > 100
    for name in archive.namelist():
        if name.endswith((".py", ".json", ".txt", "METADATA")):
            text = archive.read(name).decode()
            assert "BEGIN HIDDEN TESTS" not in text, name
            assert not [secret for secret in hidden if secret in words(text)], name


def test_the_source_distribution_holds_no_exercise_no_test_and_no_book(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        files = {Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()}
    assert {path.parts[0] for path in files} == {
        PACKAGE,
        *("README.md", "LICENSE", "LICENSE-text", "pyproject.toml", "PKG-INFO", ".gitignore"),
    }
    assert {path.as_posix() for path in files if path.parts[0] == PACKAGE} == tracked(PACKAGE)


# ---- What it does without the repository


def test_the_repository_is_out_of_reach(machine):
    code = f"import {PACKAGE}; from importlib.util import find_spec; print({PACKAGE}.__file__)"
    code += "; print(*(name for name in ('book', 'exercises', 'tests', 'benchmarks') if find_spec(name)))"
    place, others = machine.says(code).split("\n")[:2]
    assert Path(place) == machine.installed / PACKAGE / "__init__.py"
    assert others == ""


def test_every_module_can_be_imported(machine):
    code = f"""
import importlib, pkgutil, {PACKAGE} as package
names = [found.name for found in pkgutil.walk_packages(package.__path__, "{PACKAGE}.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(*names)
"""
    modules = {re.sub(r"(/__init__)?\.py$", "", name) for name in tracked(PACKAGE) if name.endswith(".py")}
    expected = {name.replace("/", ".") for name in modules} - {PACKAGE}
    assert set(machine.says(code).split()) == expected


def test_trains_twenty_steps_and_translates_with_what_it_has_learned(machine):
    trained = machine.run("-m", PACKAGE, "train", "--steps", "20", "--output", "run")
    assert trained.returncode == 0, trained.stderr
    losses = [
        json.loads(line)["loss"] for line in (machine.home / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert len(losses) == 20
    assert losses[-1] < losses[0] - 0.3
    translated = machine.run("-m", PACKAGE, "translate", "--model", "run", "seven")
    assert translated.returncode == 0, translated.stderr


def test_translates_with_the_model_that_it_brings(machine):
    done = machine.run("-m", PACKAGE, "translate", "four hundred and twenty-one")
    assert (done.returncode, done.stdout) == (0, "vierhunderteinundzwanzig\n"), done.stderr


# ---- What chapters and exercises ask of it


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^( *)[%!].*$", r"\1pass", code, flags=re.MULTILINE)


def calls(notebook: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(code_of(notebook))) if isinstance(node, ast.Call)]


def test_every_record_that_a_chapter_shows_is_there(machine):
    shown = {
        call.args[0].value
        for path in CHAPTERS
        for call in calls(path)
        if ast.unparse(call.func) == "records.read"
    }
    assert len(shown) >= 3
    code = f"from {PACKAGE} import records\nfor name in {sorted(shown)}: print(len(records.read(name)))"
    assert all(int(line) for line in machine.says(code).splitlines())


# By their last name: what opens a file, or names one.
FILES = set(
    "open Path read_text read_bytes write_text glob iterdir listdir load save loadtxt fromfile".split()
)


@pytest.mark.parametrize("path", [*CHAPTERS, *RELEASED], ids=lambda path: path.stem)
def test_no_notebook_names_a_file_of_the_repository(path):
    """On Colab a notebook comes alone."""
    found = [call for call in calls(path) if ast.unparse(call.func).rpartition(".")[2] in FILES]
    if path.stem.startswith("16"):  # where a run goes that one starts oneself
        assert {ast.unparse(call) for call in found} == {
            "Path('runs/multi30k')",
            "Path('/content/drive/MyDrive/multi30k')",
        }
    else:
        assert found == []


def test_everything_that_notebooks_import_is_there(machine):
    nodes = [node for path in [*CHAPTERS, *RELEASED] for node in ast.walk(ast.parse(code_of(path)))]
    lines = {ast.unparse(node) for node in nodes if isinstance(node, ast.ImportFrom)}
    ours = sorted(line for line in lines if line.startswith(f"from {PACKAGE}"))
    assert len(ours) > 50
    assert machine.says("\n".join([*ours, "print('all there')"])) == "all there\n"


def in_full_tests(paths: list[Path], short: set[str]) -> list:
    """The notebooks as parameters: of these few in every run, of all in the full one."""
    return [
        pytest.param(path, id=path.stem, marks=[] if path.stem in short else [pytest.mark.full])
        for path in paths
    ]


@pytest.mark.parametrize(
    "path", [*in_full_tests(CHAPTERS, SHORT_CHAPTERS), *in_full_tests(MASTERS, SHORT_MASTERS)]
)
def test_a_notebook_runs_from_top_to_bottom(path, machine):
    """A chapter as it is, and an assignment as one hands it in, with all answers."""
    done = machine.run(str(ROOT / "tests" / "run_notebook.py"), str(path), timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in machine.home.iterdir() if path.name[0] != "."} <= {"run"}  # another test's
