"""What a notebook gets on Colab, which has its own torch and numpy and must keep them.

`tests/colab/` lists versions of Colab's images. The setup cell is run as if in each of them, and what it asks for
is held against what the course really needs there: nothing is missing, and nothing of Colab's changes.
"""

import ast
import importlib.util
import json
import re
import sys
import tomllib
import types
from dataclasses import dataclass
from functools import cache
from importlib.metadata import requires
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.utils.text import DollarFormatter
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from test_book_chapters import setup_cell

from transformer_lessons.tools import cli

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOTEBOOKS = sorted([*ROOT.glob("book/chapters/*.ipynb"), *ROOT.glob("exercises/*/*/*.ipynb")])
PIP = re.compile(r"^ *[%!]+ *pip +(.*)$", re.MULTILINE)
OURS = canonicalize_name(PROJECT["name"])
IMPORTED_AS = {"IPython": "ipython"}  # where a distribution has another name than its module


@dataclass(frozen=True)
class Image:
    """What is on a Colab machine: its Python, and versions by canonical name."""

    name: str
    python: str
    versions: dict[str, str]


def image(path: Path) -> Image:
    text = path.read_text(encoding="utf-8")
    lines = (line.partition("==") for line in text.splitlines() if not line.startswith("#"))
    python = re.search(r"Python (3\.\d+)", text)[1]
    return Image(path.stem, python, {canonicalize_name(name): version for name, _, version in lines})


IMAGES = [image(path) for path in sorted((ROOT / "tests" / "colab").glob("*.txt"))]
LISTED = next(each for each in IMAGES if each.name == "2026.01")  # the one whose whole list was at hand
on_every_image = pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)


# ---- What is asked for


@cache
def notebook_cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook_cells(path) if cell["cell_type"] == "code"]


def run_on_colab(source: str, image: Image, monkeypatch, **colab: object) -> list[str]:
    """Run a cell as Colab does, with these modules of `google.colab`; the pip commands that it would start."""
    commands, namespace = [], {"sys": sys, "Path": Path}

    def start(magic: str, line: str) -> None:
        assert magic == "pip"
        commands.append(DollarFormatter().vformat(line, args=[], kwargs=namespace))

    def find_spec(name: str):
        return object() if canonicalize_name(name) in image.versions else None

    kernel = types.SimpleNamespace(run_line_magic=start)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "google.colab", types.SimpleNamespace(**colab))
        patch.setattr(importlib.util, "find_spec", find_spec)
        namespace["get_ipython"] = lambda: kernel
        exec(TransformerManager().transform_cell(source), namespace)
    return commands


def asked_for(command: str) -> set[str]:
    """The distributions that a pip command names; the course's own package by its address."""
    words = [word for word in command.split() if not word.startswith("-")]
    assert words.pop(0) == "install"
    return {OURS if word.startswith("git+https://") else canonicalize_name(word) for word in words}


def added(asked: set[str], image: Image) -> set[str]:
    """All that has to be installed for `asked` to work: itself, and whatever it needs that the image lacks.

    Raises:
        AssertionError: if the image has a version that does not do.
    """
    found, waiting = set(), sorted(asked)
    while waiting:
        name = waiting.pop()
        found.add(name)
        lines = PROJECT["dependencies"] if name == OURS else requires(name) or []
        for needed in map(Requirement, lines):
            other = canonicalize_name(needed.name)
            here = {"python_version": image.python, "extra": ""}
            if needed.marker and not needed.marker.evaluate(here):
                continue
            if other in image.versions:
                version = image.versions[other]
                assert needed.specifier.contains(version), f"{name} needs {needed}, the image has {version}"
            elif other not in found:
                waiting.append(other)
    return found


@on_every_image
def test_the_setup_cell_asks_for_what_is_missing_and_nothing_else(image, monkeypatch, capsys):
    (command,) = run_on_colab(setup_cell(), image, monkeypatch)
    assert "--no-deps" in command.split()
    assert asked_for(command) == added({OURS}, image)
    said = capsys.readouterr().out
    assert said.startswith(f"Python {sys.version.split()[0]}, torch ")
    assert said.endswith("CPU (for a GPU: Runtime, Change runtime type)\n")


def test_no_notebook_lets_pip_choose_versions():
    """Without --no-deps, pip may put another numpy beside a torch that is already loaded."""
    for path in NOTEBOOKS:
        found = [line for source in sources(path) for line in PIP.findall(source)]
        assert found, path  # the setup cell's at least
        for line in found:
            assert "--no-deps" in line.split(), line
            assert not re.search(r"\b(torch|numpy)\b", line), line


def installing_cells() -> dict[str, str]:
    """The cells other than the setup cell that install something, by chapter."""
    chapters = [path for path in NOTEBOOKS if path.parent.name == "chapters"]
    cells = [(path.stem[:2], source) for path in chapters for source in sources(path)[1:]]
    return {chapter: source for chapter, source in cells if PIP.search(source)}


def test_what_a_chapter_installs_for_itself_is_complete(monkeypatch):
    """sacreBLEU and what it needs; Multi30k's other libraries are there."""
    assert set(installing_cells()) == {"14", "16"}
    (command,) = run_on_colab(installing_cells()["14"], LISTED, monkeypatch)
    assert asked_for(command) == added({"sacrebleu"}, LISTED)
    names = {Requirement(line).name for line in PROJECT["optional-dependencies"]["multi30k"]}
    (line,) = PIP.findall(installing_cells()["16"])
    assert asked_for(line) == added(names - set(LISTED.versions), LISTED)


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
    for arguments in commands:  # as the command line understands them
        assert cli.make_parser().parse_args(arguments).command == arguments[0]


# ---- A GPU where it is used


def test_colab_is_asked_for_a_gpu_where_one_is_used():
    """And nowhere else: free GPUs are rationed, and a line of a table that needs one is no reason to ask."""
    asking = set()
    for path in NOTEBOOKS:
        uses = any('choose_device("auto")' in source for source in sources(path)[1:])
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        asks = (metadata.get("accelerator"), metadata.get("colab", {}).get("gpuType"))
        assert asks == (("GPU", "T4") if uses else (None, None)), path
        asking |= {path.stem} if uses else set()
    assert asking == {"16_training_on_gpus"}


# ---- What is imported


def plain(source: str) -> str:
    """A cell without its magics, whose place an empty statement takes."""
    return re.sub(r"^( *)[%!].*$", r"\1pass", source, flags=re.MULTILINE)


def imported(source: str) -> set[str]:
    """The modules of others that a source imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"transformer_lessons", "google"}


def test_the_package_imports_what_it_declares():
    modules = ROOT.glob("transformer_lessons/**/*.py")
    found = set().union(*(imported(path.read_text(encoding="utf-8")) for path in modules))
    declared = {Requirement(line).name for line in PROJECT["dependencies"]}
    # Oracles name what they lack; drawings need what Colab and Jupyter have.
    assert found - {"transformers", "matplotlib"} == declared


def test_a_notebook_imports_what_colab_has_or_it_has_installed(monkeypatch):
    for path in NOTEBOOKS:
        there = set(LISTED.versions)
        for source in sources(path):
            if PIP.search(source):
                for command in run_on_colab(source, LISTED, monkeypatch):
                    there |= asked_for(command)
            names = {IMPORTED_AS.get(name, canonicalize_name(name)) for name in imported(plain(source))}
            assert names <= there, (path, source)


# ---- What Colab has is new enough


@on_every_image
def test_colabs_versions_are_within_the_packages_bounds(image):
    assert SpecifierSet(PROJECT["requires-python"]).contains(image.python)
    # The extra `submission` looks at a notebook's file, which lies on one's own machine.
    extras = [PROJECT["optional-dependencies"][name] for name in ("chapters", "multi30k")]
    bounds = [Requirement(line) for line in sum(extras, PROJECT["dependencies"])]
    checked = {bound.name for bound in bounds if bound.name in image.versions}
    assert {"torch", "numpy", "matplotlib"} <= checked
    for bound in bounds:
        if bound.name in image.versions:
            assert bound.specifier.contains(image.versions[bound.name]), bound
