"""The chapters build the package's code word for word, and the package stays small.

The chapter's cell carries a tag, ``canon:masks.padding_mask`` or ``canon:variants.rotary.rotate``. Docstrings and
annotations may differ; nothing else may.
"""

import ast
import difflib
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from book.notebooks import chapters

PACKAGE = Path(__file__).parents[1] / "transformer_lessons"
NOT_BUILT = ("__init__", "__main__", "config")
DEFINITIONS = ast.FunctionDef | ast.ClassDef


class Bare(ast.NodeTransformer):
    """Removes docstrings and annotations."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, DEFINITIONS):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node = node.value and ast.Assign([node.target], node.value, lineno=node.lineno)
        return node and self.generic_visit(node)


def definitions(source: str) -> dict[str, ast.AST]:
    """Functions, classes and CONSTANTS of a module or cell by name, without docstrings and annotations."""
    found = {}
    for node in Bare().visit(ast.parse(source)).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                found[name] = node
    return found


def in_package() -> dict[str, ast.AST]:
    """All definitions of the canon and of the variants, helpers included, by tag."""
    found = {}
    for path in sorted([*PACKAGE.glob("*.py"), *PACKAGE.glob("variants/*.py")]):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if path.stem not in NOT_BUILT:
            for name, node in definitions(path.read_text(encoding="utf-8")).items():
                found[f"canon:{module}.{name}"] = node
    return found


def in_chapters() -> dict[str, list[tuple[Path, str]]]:
    """The cells that carry each tag."""
    found = {}
    for path in chapters():
        for cell in nbformat.read(path, as_version=4).cells:
            for tag in cell.metadata.get("tags", []):
                if tag.startswith("canon:"):
                    found.setdefault(tag, []).append((path, cell.source))
    return found


BUILT, CELLS = in_package(), in_chapters()


@pytest.mark.parametrize("tag", sorted({*BUILT, *CELLS}))
def test_a_chapter_builds_it_word_for_word(tag):
    assert tag in BUILT, "the package has no such definition"
    cells = CELLS.get(tag, [])
    assert len(cells) == 1, f"expected one cell of the chapters with this tag, got {len(cells)}"
    [(path, source)] = cells
    ours, theirs = BUILT[tag], definitions(source).get(tag.rpartition(".")[2], ast.Pass())
    texts = [ast.unparse(node).splitlines() for node in (theirs, ours)]
    difference = "\n".join(difflib.unified_diff(*texts, path.name, "package", lineterm=""))
    is_the_same = ast.dump(theirs) == ast.dump(ours)
    assert is_the_same, f"\n{difference}"


def test_the_package_and_the_grader_stay_small():
    lines = Counter()
    for path in PACKAGE.rglob("*.py"):
        room, *inside = path.relative_to(PACKAGE).parts
        lines[room if inside else "canon"] += len(path.read_text(encoding="utf-8").splitlines())
    assert lines["canon"] <= 1_100
    assert lines.pop("checks") <= 7_355  # Python; what a teacher reads is in `mistakes/*.toml`
    # All but the checks; 740 of these lines are drawings. The aim is 5,500.
    assert sum(lines.values()) <= 7_181
    grader = [*(PACKAGE.parent / "exercises" / "autograder").rglob("*.py")]
    assert len(grader) <= 45
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in grader) <= 7_000
