"""The house rules: who may import whom, what an import costs, and that public names are documented."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_lessons"
CANON = "config masks encodings embeddings attention feed_forward norms layers model losses"
CANON += " schedule decoding training"
# What each room builds on; all build on the canon. The package's own name stands for its version.
ROOMS = {
    "": set(),
    "data": set(),
    "variants": set(),
    "fast": {"data"},
    "trainer": {"data", "fast"},
    "checks": {"variants"},
    "oracles": {"variants", "fast"},
    "records": set(),
    "tools": {"data", "fast", "trainer", "oracles", "checks", "records", "variants"},
}
HEAVY = set(
    "matplotlib transformers tokenizers hypothesis nbgrader IPython pandas num2words nbformat pooch "
    "sacrebleu datasets".split()
)
MODULES = sorted(PACKAGE.rglob("*.py"))


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> set[str]:
    """The full names of everything a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{label(path)}: a relative import hides its room"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_who_imports_whom(path):
    parts = path.relative_to(PACKAGE).parts
    room = parts[0] if len(parts) > 1 else ""
    if parts == ("__main__.py",):
        return  # which is the command line
    for name in imports(path):
        package, *rest = name.split(".")
        if package != PACKAGE.name:
            is_light = package in sys.stdlib_module_names or package in ("torch", "jaxtyping")
            assert room or is_light, f"the canon imports {name}"
        elif rest and rest[0] != room:
            is_canon = rest[0] in (*CANON.split(), "__version__")
            assert is_canon or rest[0] in ROOMS[room], f"{label(path)} imports {name}"


def test_the_top_is_the_canon_and_every_room_has_its_rule():
    names = {path.stem for path in PACKAGE.glob("*.py")}
    assert names == {*CANON.split(), "__init__", "__main__"}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS) - {""}


def test_an_import_loads_nothing_heavy():
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.stem not in ("plotting", "__main__")
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


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_every_public_name_is_documented(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module"
    assert [name for name, node in public(tree) if not ast.get_docstring(node)] == []
    assert "__future__.annotations" not in imports(
        path
    )  # jaxtyping reads annotations when a function is made


def forgotten_asserts(source: str) -> list[int]:
    """Lines that compare and throw the answer away: `a == b` where `assert a == b` was meant."""
    statements = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    return [node.lineno for node in statements if isinstance(node.value, ast.Compare)]


def test_no_assert_is_forgotten():
    assert forgotten_asserts("def test():\n    assert 1 == 1\n    f(a == b)\n    a == b\n") == [4]
    for path in (ROOT / "tests").rglob("*.py"):
        assert forgotten_asserts(path.read_text(encoding="utf-8")) == [], label(path)
