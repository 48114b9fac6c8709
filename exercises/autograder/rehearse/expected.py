"""What marks to expect: of answers as textbooks have them, and of one known slip among right answers.

The tests hold the checks to the same answers: ``tests/checks/answers`` and ``tests/typical_answers.py``.
"""

import ast
import importlib
import inspect
import re
import runpy
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from exercises.autograder.batch import grade
from exercises.autograder.batch.pool import Pool
from exercises.autograder.rehearse.answers import TYPICAL, passing
from exercises.autograder.result import Result

__all__ = ["Row", "answered", "paragraph", "rows", "textbook"]

TEXTBOOK = "As textbooks have it"
REQUIRED = re.compile(r'checks\.require\("(\w+)", (\w+)\)')


class Row(NamedTuple):
    """What was handed in, its points and the most there are, and by test cell those lost and the names given."""

    what: str
    earned: float
    worth: float
    lost: dict[str, float]
    named: tuple[str, ...]


def rows(assignment: str, folder: Path, *, isolated: bool = True, pool: Pool | None = None) -> list[Row]:
    """Of an assignment, graded in a folder of its own: the textbooks' answers first, then each known slip."""
    handed_in = dict(answered(assignment))
    for number, notebook in enumerate(handed_in.values()):
        path = folder / "submitted" / f"answer-{number:02}" / assignment / f"{assignment}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    with grade.opened(folder) as grading:
        grading.assignments.master(assignment)
    summary = grade.grade(folder / "submitted", folder, isolated=isolated, pool=pool)
    graded = sorted(summary.graded, key=lambda result: result.student)
    return [_row(what, result) for what, result in zip(handed_in, graded, strict=True)]


def paragraph(assignment: str, found: list[Row]) -> str:
    """For the page for instructors: an assignment's points, and what each slip costs, and where."""
    first, *slips = found
    graded = [cell.metadata.get("nbgrader", {}) for cell in passing(assignment).cells]
    by_person = sum(one["points"] for one in graded if one.get("grade") and one.get("solution"))
    said = (
        f"**{assignment}**: {first.worth:g} points by tests, {by_person:g} by a person. Answers as textbooks"
    )
    costs = [f"{row.what} −{row.worth - row.earned:g} (task {_where(row)})" for row in slips if row.lost]
    return f"{said} have them get {first.earned:g}. Known slips: {'; '.join(costs)}."


def _where(row: Row) -> str:
    return " and ".join(dict.fromkeys(cell.split("-")[1] for cell in row.lost))


def _row(what: str, result: Result) -> Row:
    lost = {cell.cell: cell.worth - cell.earned for cell in result.cells if cell.earned < cell.worth}
    named = tuple(dict.fromkeys(name for cell in result.cells for name in cell.mistakes))
    return Row(what, result.earned, result.worth, lost, named)


def answered(assignment: str) -> Iterator[tuple[str, NotebookNode]]:
    """What is handed in, and the notebook."""
    notebook = passing(assignment)
    yield TEXTBOOK, _with(notebook, dict(textbook(notebook)))
    cells = {cell.id for cell in notebook.cells}
    for check, what, text, _ in runpy.run_path(str(TYPICAL))["WRONG"]:
        if check in cells:
            yield what, _with(passing(assignment), {_answer_of(check): text.strip("\n")})


def _answer_of(check: str) -> str:
    return check.replace("-check", "-answer")


def _with(notebook: NotebookNode, texts: dict[str, str]) -> NotebookNode:
    for cell in notebook.cells:
        cell.source = texts.get(cell.id, cell.source)
    return notebook


def textbook(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """Of each task with a check, but for repairs, the cell of its answer and a textbook's text."""
    for cell in notebook.cells:
        found = REQUIRED.search(cell.source) if cell.id.endswith("-check") else None
        if found and found[2].lower() != "repaired":
            yield _answer_of(cell.id), _standing_alone(*found.groups())


def _standing_alone(task: str, public: str) -> str:
    """A right answer's text under the name that the notebook wants, with all it needs."""
    for module in importlib.import_module("tests.checks.answers").MODULES:
        if task in module.RIGHT:
            name = module.RIGHT[task][0].__name__
            return "\n".join([*_needed(module, name), f"{public} = {name}"])
    raise LookupError(f"tests/checks/answers: expected a right answer for {task}, got none")


def _needed(module: ModuleType, name: str) -> Iterable[str]:
    """A module's imports, and the definition of a name with those that it uses."""
    text = inspect.getsource(module)
    tree, wanted = ast.parse(text), {name}
    own = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    for node in reversed(own):  # what is used stands above
        if wanted & set(_defines(node)):
            wanted |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    chosen = [node for node in tree.body if node not in own or wanted & set(_defines(node))]
    return [ast.get_source_segment(text, node) for node in chosen]


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
