"""What made-up students write: the master's answers, known mistakes, or nothing; and a class of such students."""

import ast
import builtins
import copy
import itertools
import keyword
import random
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import nbformat
from nbformat import NotebookNode

from exercises import release

__all__ = [
    "ABSENT",
    "COPIED",
    "SHARES",
    "TWICE",
    "TYPICAL",
    "UNREADABLE",
    "Student",
    "passing",
    "renamed",
    "students",
]

TYPICAL = release.HERE.parent / "tests" / "typical_answers.py"
MARKS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
ABSENT, COPIED, TWICE, UNREADABLE = "hands in nothing", "copied", "handed in twice", "cut off"
# The share of the class with each trouble; at least one, as far as there are students for all.
SHARES = {
    UNREADABLE: 0.02,
    "a test is deleted": 0.04,
    COPIED: 0.04,
    ABSENT: 0.06,
    TWICE: 0.04,
    "a cell cannot be parsed": 0.04,
    "a cell of their own": 0.06,
}
LATE = 0.15
PROGRAMS = {"JupyterLab": 5, "Colab": 3, "VS Code": 2}  # how many of ten use it
NAMING = ("id", "arg", "name", "asname", "attr", "rest")  # fields that hold names, whatever they stand for


@dataclass(frozen=True)
class Student:
    """A made-up student."""

    student: str  # the id, "student-001" and so on
    notebook: NotebookNode | None  # before their program saves it; None if they hand in nothing
    program: str = "JupyterLab"
    trouble: str = ""  # with the file; see `SHARES`
    is_late: bool = False
    kinds: dict[str, str] = field(default_factory=dict)  # of each answer: "right", "typical" or "untouched"
    copied_from: str = ""  # the student whose answers these are, a little disguised
    draft: NotebookNode | None = None  # what they had handed in before, if that was twice


def students(number: int, assignment: str) -> list[Student]:
    """A class; the same arguments give the same.

    Raises:
        ValueError: for a number below 1, or an assignment that is not there.
    """
    if number < 1:
        raise ValueError(f"number: expected at least 1, got {number}")
    seed = f"{assignment} {number}"
    chance = random.Random(seed)
    troubles = _troubles(number, chance)
    others = [n for n in range(number) if n not in troubles]
    late = chance.sample(range(number), max(round(LATE * number), int(number > 4)))
    found = []
    for n in range(number):
        trouble, chance = troubles.get(n, ""), random.Random(f"{seed} {n}")
        if trouble == ABSENT:
            found.append(Student(_id(n), None, "", ABSENT))
            continue
        source = chance.choice(others) if trouble == COPIED else n
        notebook, kinds = _answered(assignment, random.Random(f"{seed} {source} answers"))
        if trouble == COPIED:
            _disguise(notebook, kinds, chance)
        found.append(
            Student(
                _id(n),
                notebook,
                chance.choices(list(PROGRAMS), list(PROGRAMS.values()))[0],
                trouble,
                n in late,
                kinds,
                _id(source) if trouble == COPIED else "",
                _answered(assignment, chance)[0] if trouble == TWICE else None,
            )
        )
    return found


def _id(n: int) -> str:
    return f"student-{n + 1:03}"


def _troubles(number: int, chance: random.Random) -> dict[int, str]:
    """Who has which trouble, of two thirds of the class at most; one of each before there are more of any."""
    more = [trouble for trouble, share in SHARES.items() for _ in range(round(share * number) - 1)]
    order = chance.sample(range(number), number)
    return dict(zip(order[: number * 2 // 3], [*SHARES, *more], strict=False))


def _answered(assignment: str, chance: random.Random) -> tuple[NotebookNode, dict[str, str]]:
    """A notebook by somebody of some skill, and of each answer of what kind it is."""
    notebook, solved = copy.deepcopy(_both(assignment))
    well, kinds = 0.2 + 0.7 * chance.random(), {}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            weights = {"right": well, "typical": 0.6 * (1 - well), "untouched": 0.4 * (1 - well)}
            kind = chance.choices(list(weights), list(weights.values()))[0]
            typical = _typical().get(cell.id, ())
            kinds[cell.id] = kind = "right" if kind == "typical" and not typical else kind
            if kind == "typical":
                cell.source = chance.choice(typical)
            elif kind == "right":
                text = MARKS.sub("", solved[cell.id]).strip("\n")
                cell.source = renamed(text, chance, 0.5) if cell.cell_type == "code" else text
    return notebook, kinds


def _disguise(notebook: NotebookNode, kinds: dict[str, str], chance: random.Random) -> None:
    """Other names in every answer in code, and a comment."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and kinds.get(cell.id, "untouched") != "untouched":
            said = chance.choice(("my solution", "checked, works", "done"))
            cell.source = f"# {said}\n{renamed(cell.source, chance)}"


def passing(assignment: str) -> NotebookNode:
    """A submission with the master's answers.

    Raises:
        ValueError: for an assignment that is not there.
    """
    notebook, solved = copy.deepcopy(_both(assignment))
    for cell in _in_code(notebook):
        cell.source = solved[cell.id]
    return notebook


def submission(number: int) -> tuple[str, NotebookNode]:
    """An assignment and an honest submission of it; the same number gives the same."""
    masters = release.masters()
    assignment, chance = masters[number % len(masters)].parent.name, random.Random(number)
    notebook, solved = copy.deepcopy(_both(assignment))
    for cell in _in_code(notebook):
        right, wrong = solved[cell.id], _typical().get(cell.id)
        mistaken = chance.choice(wrong) if wrong else right
        cell.source = chance.choice((right, right, cell.source, mistaken, mistaken))
    return assignment, notebook


def _in_code(notebook: NotebookNode) -> list[NotebookNode]:
    answers = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return [cell for cell in answers if cell.cell_type == "code"]


@cache
def _both(assignment: str) -> tuple[NotebookNode, dict[str, str]]:
    """An assignment as it is handed out, and the texts of its master by cell."""
    masters = {path.parent.name: path for path in release.masters()}
    if assignment not in masters:
        raise ValueError(f"assignment: expected one of {', '.join(masters)}, got {assignment!r}")
    solved = nbformat.read(masters[assignment], as_version=4)
    released = nbformat.read(release.released(masters[assignment]), as_version=4)
    return released, {cell.id: cell.source for cell in solved.cells}


@cache
def _typical() -> dict[str, list[str]]:
    """What learners are known to get wrong, by answer; the tests hold the checks to the same list."""
    found: dict[str, list[str]] = {}
    for check, _, text, _ in runpy.run_path(str(TYPICAL))["WRONG"] if TYPICAL.exists() else ():
        found.setdefault(check.replace("-check", "-answer"), []).append(text.strip("\n"))
    return found


# ---- The same Python with other names: as another would write it, or hide a copy; its layout is lost


def renamed(source: str, chance: random.Random, often: float = 1.0) -> str:
    """A text with other names for the variables that functions have of their own.

    Args:
        source: Python; what cannot be parsed comes back as it is.
        chance: where the names are drawn from.
        often: the chance of each variable to get another name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    words = {getattr(node, field, None) for node in ast.walk(tree) for field in NAMING}
    taken = {*words, *keyword.kwlist, *dir(builtins)}
    new: dict[str, str] = {}
    for name in sorted(_local(tree)):
        if chance.random() < often:
            new[name] = next(other for other in _likely(name, chance) if other not in taken)
            taken.add(new[name])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    return ast.unparse(tree)


def _likely(name: str, chance: random.Random) -> Iterator[str]:
    """What else a variable may be called."""
    shorter = [name[0], name[:3], name.partition("_")[0], name.replace("_", ""), f"{name[0]}_"]
    names = [*shorter, f"{name}s", f"{name}_", f"my_{name}", f"new_{name}"]
    yield from chance.sample(names, len(names))
    yield from (f"{name}{number}" for number in itertools.count(2))


def _local(tree: ast.Module) -> set[str]:
    """Names that are variables of functions wherever they stand, and nothing else as well."""
    local, other = set(), {"_"}
    for part in tree.body:
        names = [node for node in ast.walk(part) if isinstance(node, ast.Name)]
        is_function = isinstance(part, ast.FunctionDef)
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store) and is_function}
        local |= stored
        other |= {node.id for node in names} - stored
        outside = [part.args, *part.decorator_list] if is_function else []
        other |= {node.id for inner in outside for node in ast.walk(inner) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        # Arguments, functions, modules, exceptions and what a pattern catches.
        other |= {getattr(node, field, None) for field in NAMING if field not in ("id", "attr")}
        other |= set(node.names) if isinstance(node, ast.Global | ast.Nonlocal) else set()
    return local - other
