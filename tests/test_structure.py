"""The house rules: who may import whom, what an import costs, and how files look."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_lessons"
NAME = PACKAGE.name

# A module imports only lower floors. The modules of a folder (`data`, `checks`) may know each other.
FLOORS = [
    "expect",
    "config masks cache schedule interruption distributed files records configs",
    "encodings dropout norms attention losses data training_config",
    "embeddings feed_forward costs",
    "layers",
    "model",
    "decoding_steps checkpoints sharding checkpoint_folder prefetching",
    "decoding",
    "training_loss evaluation web_export resuming",
    "parallel optimizer text_tasks",
    "training tasks",
    "checks oracles runs submission clone",
    "doctor",
    "cli",
    "__main__ plotting",  # which nobody imports
]
FLOOR = {part: number for number, parts in enumerate(FLOORS) for part in parts.split()}
HEAVY = set(
    "matplotlib transformers tokenizers hypothesis nbgrader IPython pandas num2words nbformat pooch "
    "sacrebleu datasets".split()
)

MODULES = sorted(PACKAGE.rglob("*.py"))
READ = [path for path in MODULES if path.name != "guarded.py"]  # copies that nobody reads, and that go again
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def part_of(path: Path) -> str:
    """masks.py is `masks`, data/batches.py is `data`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The full names of everything a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{label(path)}: a relative import hides its floor"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_parts(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    names = [name.split(".") for name in imports(path)]
    # What is no part is a name of the package itself, such as its version.
    return {name[1] for name in names if name[0] == NAME and len(name) > 1 and name[1] in FLOOR}


@pytest.mark.parametrize("path", [path for path in MODULES if path != PACKAGE / "__init__.py"], ids=label)
def test_imports_go_down(path):
    part = part_of(path)
    assert part in FLOOR, f"{part}: give it a floor"
    up = {other for other in imported_parts(path) - {part} if FLOOR[other] >= FLOOR[part]}
    assert not up, f"{label(path)} imports {up}, which {'is' if len(up) == 1 else 'are'} not below it"


def test_checks_stand_alone():
    parts = [imported_parts(path) for path in MODULES if part_of(path) == "checks"]
    assert set().union(*parts) == {"checks"}


def test_floors_name_what_exists():
    assert set(FLOOR) == {part_of(path) for path in MODULES} - {"__init__"}


def test_only_plotting_draws():
    drawing = {part_of(path) for path in MODULES if any("matplotlib" in name for name in imports(path))}
    assert drawing <= {"plotting"}


def test_an_import_loads_nothing_heavy():
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if part_of(path) not in ("plotting", "__main__")
    ]
    code = f"import sys, {', '.join(names)}; print(*{HEAVY!r} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.stdout.split() == [], run.stdout
    assert run.returncode == 0, run.stderr


def public(node: ast.AST, name: str = ""):
    """Public functions, classes and methods with their full names; what a function contains is its own affair."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            yield f"{name}{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{name}{child.name}.")


@pytest.mark.parametrize("path", READ, ids=label)
def test_every_public_name_is_documented(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module"
    assert [name for name, node in public(tree) if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_annotations_are_real(path):
    # jaxtyping reads them when a function is made.
    assert "__future__.annotations" not in imports(path)


@pytest.mark.parametrize("path", READ, ids=label)
def test_files_are_short(path):
    # A catalogue is a list of mistakes: as long as there are some.
    most = 480 if path.parent.name == "catalogue" else 240
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most


def lengths(source: str) -> dict[str, int]:
    """Lines of every function, from the first statement after its docstring to the last."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    bodies = {node.name: node.body[1:] if ast.get_docstring(node) else node.body for node in functions}
    return {name: body[-1].end_lineno - body[0].lineno + 1 for name, body in bodies.items() if body}


def test_a_functions_length_is_that_of_its_statements():
    source = 'def f(a,\n      b):\n    """Two\n    lines."""\n    a = (1,\n         2)\n\n    return a\n'
    assert lengths(source) == {"f": 4}


@pytest.mark.parametrize("path", READ, ids=label)
def test_functions_are_short(path):
    # A dozen lines is the rule; four fifths keep it. A catalogue's probes are a list.
    most = 45 if path.parent.name == "catalogue" else 30
    found = lengths(path.read_text(encoding="utf-8"))
    assert {name: lines for name, lines in found.items() if lines > most} == {}


def test_most_functions_are_a_dozen_lines_or_fewer():
    sources = [path.read_text(encoding="utf-8") for path in MODULES]
    found = [lines for source in sources for lines in lengths(source).values()]
    assert sum(n <= 12 for n in found) >= 0.8 * len(found)


def forgotten_asserts(source: str) -> list[int]:
    """Lines that compare and throw the answer away: `a == b` where `assert a == b` was meant."""
    statements = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    return [node.lineno for node in statements if isinstance(node.value, ast.Compare)]


def test_a_forgotten_assert_is_found():
    assert forgotten_asserts("def test():\n    assert 1 == 1\n    f(a == b)\n    a == b\n") == [4]


@pytest.mark.parametrize("path", TESTS, ids=label)
def test_no_assert_is_forgotten(path):
    assert forgotten_asserts(path.read_text(encoding="utf-8")) == []


def test_no_assert_is_forgotten_in_notebooks():
    for path in (ROOT / "tests").rglob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                assert forgotten_asserts("".join(cell["source"])) == [], label(path)
