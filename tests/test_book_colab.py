"""What a notebook gets on Colab, which has its own torch and numpy and must keep them.

`tests/colab/` lists versions of Colab's images. The setup cell is run as if in each of them, and what it asks for
is held against what the course really needs there: nothing is missing, and nothing of Colab's changes.
"""

import ast
import importlib.util
import json
import re
import subprocess
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

from book.notebooks import setup_cell
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

    @property
    def environment(self) -> dict[str, str]:
        """For markers such as ``sys_platform == "win32"``."""
        linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
        return {"python_version": self.python, "python_full_version": f"{self.python}.0", **linux}


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


def run_on_colab(source: str, image: Image, monkeypatch) -> list[str]:
    """Run a cell as Colab's kernel does; the pip commands that it would have started."""
    commands, namespace = [], {"sys": sys, "Path": Path}

    def start(magic: str, line: str) -> None:
        assert magic == "pip"
        commands.append(DollarFormatter().vformat(line, args=[], kwargs=namespace))

    def find_spec(name: str):
        return object() if canonicalize_name(name) in image.versions else None

    kernel = types.SimpleNamespace(run_line_magic=start)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
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
            if needed.marker and not needed.marker.evaluate(image.environment):
                continue
            if other in image.versions:
                here = image.versions[other]
                assert needed.specifier.contains(here), f"{name} needs {needed}, the image has {here}"
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


def test_elsewhere_the_setup_cell_does_nothing(capsys):
    assert "google.colab" not in sys.modules
    exec(TransformerManager().transform_cell(setup_cell()), {})  # a magic would fail: there is no get_ipython
    assert capsys.readouterr().out == ""


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


@pytest.fixture
def colab_with_drive(monkeypatch):
    """As if on Colab: what was mounted, what was installed, and which commands were given."""
    done = {"mounted": [], "installed": [], "commands": []}
    colab, drive = types.ModuleType("google.colab"), types.SimpleNamespace(mount=done["mounted"].append)
    colab.drive = drive
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setattr(cli, "main", lambda command: done["commands"].append(command) or 0)
    return done


def train(done: dict, on_drive: bool, drive: Path) -> None:
    """Run chapter 16's cell with its switches set, and with `drive` where Colab would mount one."""
    cell = installing_cells()["16"].replace("/content/drive/MyDrive", str(drive))
    switched = cell.replace("TRAIN, ON_DRIVE = False, False", f"TRAIN, ON_DRIVE = True, {on_drive}")
    assert switched != cell
    kernel = types.SimpleNamespace(run_line_magic=lambda _, line: done["installed"].append(line))
    namespace = {"sys": sys, "Path": Path, "get_ipython": lambda: kernel}
    exec(TransformerManager().transform_cell(switched), namespace)


def test_a_run_on_drive_goes_on_from_its_checkpoint(colab_with_drive, tmp_path):
    """The first machine went away: before its first checkpoint, or after one."""
    runs = []
    for name in (None, "config.json", "checkpoint.pt"):
        if name:
            (tmp_path / "multi30k").mkdir(exist_ok=True)
            (tmp_path / "multi30k" / name).touch()
        train(colab_with_drive, True, tmp_path)
        trained, translated = colab_with_drive["commands"][-2:]
        folder = str(tmp_path / "multi30k")
        assert trained[:5] == ["train", "--task", "multi30k", "--output", folder]
        assert translated[:3] == ["translate", "--model", folder]
        runs += trained[5:]
    assert runs == ["--resume-or-start"] * 3  # which of the two: see tests/test_runs.py
    assert colab_with_drive["mounted"] == ["/content/drive"] * 3
    for arguments in colab_with_drive["commands"]:  # as the command line understands them
        assert cli.make_parser().parse_args(arguments).command == arguments[0]


def test_without_drive_nothing_is_mounted(colab_with_drive, tmp_path):
    train(colab_with_drive, False, tmp_path)
    assert colab_with_drive["mounted"] == []
    assert colab_with_drive["commands"][0][4] == str(Path("runs/multi30k"))
    assert len(colab_with_drive["installed"]) == 1


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
    extras = [PROJECT["optional-dependencies"][name] for name in ("plot", "subwords", "multi30k")]
    bounds = [Requirement(line) for line in sum(extras, PROJECT["dependencies"])]
    checked = {bound.name for bound in bounds if bound.name in image.versions}
    assert {"torch", "numpy", "matplotlib"} <= checked
    for bound in bounds:
        if bound.name in image.versions:
            assert bound.specifier.contains(image.versions[bound.name]), bound


# ---- With a package index: does an installer agree?


@pytest.fixture
def index():
    """Skips where there is none; `uv` reads addresses and certificates from its own and pip's settings."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "-"]
    done = subprocess.run(command, input="wadler_lindig", capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("needs a package index")


def imitate(image: Image, folder: Path) -> Path:
    """A folder that says of itself that all of the image's packages are installed in it."""
    for name, version in image.versions.items():
        about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (about / "INSTALLER").write_text("pip\n")
        (about / "RECORD").write_text("")
    return folder


def dry_run(image: Image, folder: Path, *asked: str) -> dict[str, set[str]]:
    """What an installer that follows dependencies would install (+) and remove (-) on such a machine."""
    target = ["--target", str(imitate(image, folder)), "--python-version", image.python]
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", *target, *asked]
    command += ["--python-platform", "x86_64-unknown-linux-gnu", "--color", "never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    changes = re.findall(r"^ ([-+~]) ([^=\s]+)", done.stderr, re.MULTILINE)
    return {sign: {canonicalize_name(name) for kind, name in changes if kind == sign} for sign in "+-~"}


@pytest.mark.full
@on_every_image
def test_a_dry_run_on_colab_lists_only_ours(image, tmp_path, index, monkeypatch):
    """It may follow all dependencies, and comes to what the cell asks for without."""
    (command,) = run_on_colab(setup_cell(), image, monkeypatch)
    ours = asked_for(command) - {OURS}
    found = dry_run(image, tmp_path, "--requirements", "pyproject.toml")
    assert found == {"+": ours, "-": set(), "~": set()}


@pytest.mark.full
def test_a_dry_run_of_what_chapter_15_installs_lists_only_that(tmp_path, index):
    found = dry_run(LISTED, tmp_path, "sacrebleu")
    assert found == {"+": {"sacrebleu", "portalocker", "colorama"}, "-": set(), "~": set()}
