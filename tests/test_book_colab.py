"""What notebooks install on Colab, which has its own torch and numpy and must keep them.

`tests/colab/` lists versions of Colab's images. The setup cell is run as if in each of them, and what it asks for
is compared with what the course needs there: nothing is missing, and none of Colab's packages changes.
"""

import ast
import importlib.util
import re
import sys
import tomllib
import types
from importlib.metadata import requires
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.utils.text import DollarFormatter
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from test_book_chapters import code, setup_cell

from book.notebooks import chapters
from transformer_lessons.tools import cli

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOTEBOOKS = sorted([*ROOT.glob("book/chapters/*.ipynb"), *ROOT.glob("exercises/*/*/*.ipynb")])
PIP = re.compile(r"^ *[%!]+ *pip +(.*)$", re.MULTILINE)
OURS = canonicalize_name(PROJECT["name"])


def image(path: Path) -> dict[str, str]:
    """A Colab machine's versions, of Python too, by canonical name."""
    text = path.read_text(encoding="utf-8")
    found = {canonicalize_name(name): version for name, version in re.findall(r"(?m)^(\w.*)==(.+)$", text)}
    return found | {"python": re.search(r"Python (3\.\d+)", text)[1]}


IMAGES = {path.stem: image(path) for path in sorted((ROOT / "tests" / "colab").glob("*.txt"))}
LISTED = IMAGES["2026.01"]  # the image with a complete list
on_every_image = pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)


# ---- What is installed


def sources(path: Path) -> list[str]:
    return [cell.source for cell in code(path)]


def run_on_colab(source: str, image: dict, monkeypatch, **colab: object) -> list[str]:
    """Run a cell as Colab does, with these modules of `google.colab`; return its pip commands."""
    commands, namespace = [], {"sys": sys, "Path": Path}

    def start(magic: str, line: str) -> None:
        assert magic == "pip"
        commands.append(DollarFormatter().vformat(line, args=[], kwargs=namespace))

    namespace["get_ipython"] = lambda: types.SimpleNamespace(run_line_magic=start)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "google.colab", types.SimpleNamespace(**colab))
        patch.setattr(importlib.util, "find_spec", lambda name: image.get(canonicalize_name(name)))
        exec(TransformerManager().transform_cell(source), namespace)
    return commands


def asked_for(command: str) -> set[str]:
    """The distributions that a pip command names; the course's own package by its address.

    Raises:
        AssertionError: if it lets pip replace torch or numpy, which are already loaded.
    """
    assert "--no-deps" in command.split(), command
    words = [word for word in command.split() if not word.startswith("-")]
    assert words.pop(0) == "install"
    names = {OURS if word.startswith("git+https://") else canonicalize_name(word) for word in words}
    assert not names & {"torch", "numpy"}, command
    return names


def lacking(requirements: list[str], image: dict) -> set[str]:
    """The distributions that the image lacks to meet these requirements, and those that they need in turn.

    Raises:
        AssertionError: if the image has a version that a requirement excludes.
    """
    found, waiting = set(), [*map(Requirement, requirements)]
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        if needed.marker and not needed.marker.evaluate({"python_version": image["python"], "extra": ""}):
            continue
        if name in image:
            assert needed.specifier.contains(image[name]), f"{needed}: {image[name]}"
        elif name not in found:
            found.add(name)
            waiting += map(Requirement, requires(name) or [])
    return found


@on_every_image
def test_the_setup_cell_asks_for_what_is_missing_and_nothing_else(image, monkeypatch, capsys):
    (command,) = run_on_colab(setup_cell(), image, monkeypatch)
    assert asked_for(command) == {OURS} | lacking(PROJECT["dependencies"], image)
    said = capsys.readouterr().out
    assert said.startswith(f"Python {sys.version.split()[0]}, torch ")
    assert said.endswith("CPU (for a GPU: Runtime, Change runtime type)\n")


@on_every_image
def test_what_colab_has_is_new_enough(image):
    assert SpecifierSet(PROJECT["requires-python"]).contains(image["python"])
    # Without the extra `submission`: it checks a notebook's file on the learner's own machine.
    for extra in ("chapters", "text"):
        lacking(PROJECT["optional-dependencies"][extra], image)


def installing_cells() -> dict[str, str]:
    """The cells other than the setup cell that install something, by chapter."""
    found = [(path.stem[:2], source) for path in chapters() for source in sources(path)[1:]]
    return {chapter: source for chapter, source in found if PIP.search(source)}


def test_what_a_chapter_installs_for_itself_is_complete(monkeypatch):
    """sacreBLEU and its dependencies; Colab has the other libraries for Multi30k."""
    assert set(installing_cells()) == {"14", "16"}
    (command,) = run_on_colab(installing_cells()["14"], LISTED, monkeypatch)
    assert asked_for(command) == lacking(["sacrebleu"], LISTED)
    (line,) = PIP.findall(installing_cells()["16"])
    assert asked_for(line) == lacking(PROJECT["optional-dependencies"]["text"], LISTED)


# ---- Training that outlives a machine


@pytest.mark.parametrize("is_on_drive", [False, True])
def test_a_run_goes_on_from_where_its_checkpoints_are(is_on_drive, monkeypatch, tmp_path):
    """Chapter 16's cell with its switches set, and a folder where Colab would mount a drive."""
    mounted, commands = [], []
    monkeypatch.setattr(cli, "main", lambda command: commands.append(command) or 0)
    cell = installing_cells()["16"].replace("/content/drive/MyDrive", str(tmp_path))
    switched = cell.replace("TRAIN, ON_DRIVE = False, False", f"TRAIN, ON_DRIVE = True, {is_on_drive}")
    assert switched != cell
    drive = types.SimpleNamespace(mount=mounted.append)
    installed = run_on_colab(switched, LISTED, monkeypatch, drive=drive)
    folder = str(tmp_path / "multi30k" if is_on_drive else Path("runs/multi30k"))
    assert (mounted, len(installed)) == (["/content/drive"] * is_on_drive, 1)
    trained, translated = commands
    assert trained == ["train", "--task", "multi30k", "--output", folder, "--resume-or-start"]
    assert translated[:3] == ["translate", "--model", folder]
    for arguments in commands:  # the command line accepts them
        assert cli.make_parser().parse_args(arguments).command == arguments[0]


# ---- A GPU where it is used


def test_colab_is_asked_for_a_gpu_where_one_is_used():
    """And nowhere else: free GPUs are rationed, and one row of a table is not a reason to ask for one."""
    for path in NOTEBOOKS:
        uses = any('choose_device("auto")' in source for source in sources(path)[1:])
        metadata = nbformat.read(path, as_version=4).metadata
        asks = (metadata.get("accelerator"), metadata.get("colab", {}).get("gpuType"))
        assert asks == (("GPU", "T4") if uses else (None, None)), path


# ---- What is imported


def imported(source: str) -> set[str]:
    """The third-party modules that a source imports, at any place."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
    names = {name.partition(".")[0] for name in found}
    return names - sys.stdlib_module_names - {"transformer_lessons", "google"}


def test_the_package_imports_what_it_declares():
    modules = ROOT.glob("transformer_lessons/**/*.py")
    found = set().union(*(imported(path.read_text(encoding="utf-8")) for path in modules))
    declared = {Requirement(line).name for line in PROJECT["dependencies"]}
    # Oracles raise an error that names what is missing; drawings need what Colab and Jupyter have.
    assert found - {"transformers", "matplotlib"} == declared


def test_notebooks_import_only_what_colab_has_or_they_installed(monkeypatch):
    for path in NOTEBOOKS:
        there = set(LISTED)
        for source in sources(path):
            if PIP.search(source):
                for command in run_on_colab(source, LISTED, monkeypatch):
                    there |= asked_for(command)
            names = set(map(canonicalize_name, imported(TransformerManager().transform_cell(source))))
            assert names <= there, (path, source)
