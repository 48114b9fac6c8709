"""Which rooms (subpackages) may import which; `test_canon` tests what is at the top."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_lessons"
CANON = {path.stem for path in PACKAGE.glob("*.py")}
# What each room may import besides the canon; all may import the package itself, for its version.
ROOMS = {
    "": set(),
    "data": set(),
    "variants": set(),
    "fast": {"data"},
    "trainer": {"data", "fast"},
    "checks": {"variants", "data", "trainer"},  # answers are tried in the trained translator
    "oracles": {"variants", "fast"},
    # The formats use the oracles' names of weights, and the web page our int8 weights.
    "export": {"data", "fast", "trainer", "oracles"},
    "records": set(),
    "tools": {"data", "fast", "trainer", "oracles", "export", "checks", "records", "variants"},
}


def imports(path: Path) -> set[str]:
    """The full names of everything a file imports, wherever in the file; a relative import begins with a dot."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names}
    return names


def is_allowed(name: str, room: str) -> bool:
    package, *rest = name.split(".")
    if name == "__future__.annotations" or not package:
        return False  # jaxtyping reads annotations at a definition; a relative import hides its room
    if package != PACKAGE.name:
        return bool(room) or package in sys.stdlib_module_names or package in ("torch", "jaxtyping")
    return not rest or rest[0] in (*CANON, "__version__", room) or rest[0] in ROOMS[room]


def test_who_imports_whom():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        *rooms, file = path.relative_to(PACKAGE).parts
        if (rooms, file) != ([], "__main__.py"):  # which is the command line
            names = sorted(imports(path))
            wrong += [(str(path), name) for name in names if not is_allowed(name, *rooms[:1] or [""])]
    assert wrong == []
