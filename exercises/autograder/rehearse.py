"""Made-up students of mixed quality: an instructor tries the whole way before the first real deadline.

They write the master's answers, known mistakes, or nothing; programs, people and Canvas do to their notebooks
what these do to real ones.
"""

import ast
import builtins
import copy
import itertools
import json
import keyword
import random
import re
import runpy
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from exercises import release
from exercises.autograder.export.templates import written
from transformer_lessons.data.files import replacing, write_json

KEY = "what_is_in_it.json"  # beside what is handed in, for a comparison
TEMPLATE = "gradebook.csv"  # likewise, for `export` to fill in
MARKS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
ABSENT, COPIED, UNREADABLE = "hands in nothing", "copied", "cut off"
DELETED, UNPARSABLE = "a test is deleted", "a cell cannot be parsed"
# The share of the class with each trouble; at least one, as far as there are students for all.
SHARES = {UNREADABLE: 0.02, DELETED: 0.04, COPIED: 0.04, ABSENT: 0.06, UNPARSABLE: 0.04}
LATE = 0.15
FIRST_USER, FIRST_FILE = 1_000, 50_000  # Canvas's numbers
NAMING = ("id", "arg", "name", "asname", "attr", "rest")  # fields that hold names, whatever they stand for


# ---- A class and what it writes


def students(number: int, assignment: str) -> list[tuple[dict[str, Any], NotebookNode | None]]:
    """A class; the same arguments give the same.

    Returns:
        of each student what there is to know of them, as `KEY` has it, and what they hand in, if anything, before
        their program saves it. "kinds" says of each answer if it is "right", "typical" (a known mistake) or
        "untouched"; "copied_from", whose answers these are, with comments before them.
    """
    seed = f"{assignment} {number}"
    chance = random.Random(seed)
    troubles = _troubles(number, chance)
    others = [n for n in range(number) if n not in troubles]
    late = chance.sample(range(number), max(round(LATE * number), int(number > 4)))
    found = []
    for n in range(number):
        trouble, chance = troubles.get(n, ""), random.Random(f"{seed} {n}")
        program, user = chance.choices(list(PROGRAMS), (5, 3, 2))[0], FIRST_USER + n + 1
        about = {"student": f"{_name(n)}_{user}", "name": _name(n), "user": user}  # first the intake's id
        about |= {"program": program, "trouble": trouble, "is_late": n in late}
        about |= {"copied_from": "", "kinds": {}}
        notebook = None
        if trouble != ABSENT:
            source = chance.choice(others) if trouble == COPIED else n
            notebook, about["kinds"] = _answered(assignment, random.Random(f"{seed} {source} answers"))
        if trouble == COPIED:
            about["copied_from"] = _name(source)
            for cell in _answers(notebook, "code"):
                if about["kinds"][cell.id] != "untouched":
                    cell.source = f"# my solution\n{cell.source}"
        found.append((about, notebook))
    return found


def _name(n: int) -> str:
    """As Canvas has it."""
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
    for cell in _answers(notebook):
        weights = {"right": well, "typical": 0.6 * (1 - well), "untouched": 0.4 * (1 - well)}
        kind = chance.choices(list(weights), list(weights.values()))[0]
        mistakes = [text for answer, _, text in wrong() if answer == cell.id]
        kinds[cell.id] = kind = "right" if kind == "typical" and not mistakes else kind
        if kind == "typical":
            cell.source = chance.choice(mistakes)
        elif kind == "right":
            text = MARKS.sub("", solved[cell.id]).strip("\n")
            cell.source = renamed(text, chance, 0.5) if cell.cell_type == "code" else text
    return notebook, kinds


def passing(assignment: str) -> NotebookNode:
    """A submission with the master's answers."""
    notebook, solved = copy.deepcopy(_both(assignment))
    for cell in _answers(notebook, "code"):
        cell.source = solved[cell.id]
    return notebook


def _answers(notebook: NotebookNode, *types: str) -> list[NotebookNode]:
    answers = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return [cell for cell in answers if not types or cell.cell_type in types]


@cache
def _both(assignment: str) -> tuple[NotebookNode, dict[str, str]]:
    """An assignment as it is handed out, and the texts of its master by cell."""
    [master] = [path for path in release.masters() if path.parent.name == assignment]
    solved = nbformat.read(master, as_version=4)
    released = nbformat.read(release.released(master), as_version=4)
    return released, {cell.id: cell.source for cell in solved.cells}


@cache
def wrong() -> list[tuple[str, str, str]]:
    """What learners are known to get wrong: the cell, what it is, and the text; the tests check the same list."""
    path = release.HERE.parent / "tests" / "typical_answers.py"
    listed = runpy.run_path(str(path))["WRONG"] if path.exists() else ()
    return [(check.replace("-check", "-answer"), what, text.strip("\n")) for check, what, text, _ in listed]


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


# ---- What programs and people do to a notebook


def _run(notebook: dict) -> dict:
    """As JupyterLab saves it after all cells were run."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "code":
            printed = {"output_type": "stream", "name": "stdout", "text": ["right\n"]}
            cell.update(execution_count=number, outputs=[printed] if cell["source"] else [])
    return notebook


def _of_colab(notebook: dict) -> dict:
    """Format 4.0, ids in the metadata, a kernel without a language, and Colab's own fields."""
    for cell in _run(notebook)["cells"]:
        cell["metadata"].update(id=cell.pop("id"), colab={"base_uri": "https://localhost:8080/"})
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook["metadata"] = {"colab": {"provenance": []}, "kernelspec": kernel}
    return {**notebook, "nbformat": 4, "nbformat_minor": 0}


def _of_vs_code(notebook: dict) -> dict:
    """Format 4.2, without ids and without the grader's marks."""
    for cell in _run(notebook)["cells"]:
        del cell["id"]
        cell["metadata"] = {"vscode": {"languageId": "python"}}
    return {**notebook, "nbformat_minor": 2}


PROGRAMS = {"JupyterLab": _run, "Colab": _of_colab, "VS Code": _of_vs_code}


def _trouble(trouble: str, cells: list[dict], chance: random.Random) -> None:
    """What a person does to a notebook's cells; most troubles are none with these."""
    marks = [(cell, cell["metadata"].get("nbgrader", {})) for cell in cells if cell["cell_type"] == "code"]
    if trouble == DELETED:
        cells.remove(chance.choice([cell for cell, about in marks if about.get("grade")]))
    elif trouble == UNPARSABLE:
        answer = chance.choice([cell for cell, about in marks if about.get("solution")])
        answer["source"] = "".join(answer["source"]) + "\nprint('done'"


# ---- What Canvas hands out


def write(folder: Path, number: int, assignment: str) -> Path:
    """Write a class's files; the archive to hand to the grader. `KEY` beside it says who did what.

    The same arguments write the same bytes.

    Args:
        folder: made if it is not there.
        number: of students.
        assignment: its name.
    """
    group, source = students(number, assignment), folder / f"{assignment}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(source) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for n, (about, notebook) in enumerate(group, start=FIRST_FILE):
            if notebook is not None:
                late, copied = "_LATE" * about["is_late"], "Copy of " * (about["program"] == "Colab")
                name = f"{about['name']}{late}_{about['user']}_{n}_{copied}{assignment}.ipynb"
                text = _saved(about, notebook).encode()
                archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    write_json(folder / KEY, {"assignment": assignment, "students": [about for about, _ in group]})
    header = ["Student", "ID", "SIS Login ID", "Section", f"{assignment} (1)"]
    rows = [[about["name"], str(about["user"]), about["name"], "Rehearsal", ""] for about, _ in group]
    (folder / TEMPLATE).write_bytes(written([header, *rows]).encode())
    return source


def _saved(about: dict, notebook: NotebookNode) -> str:
    """What a student hands in, as their program saves it."""
    content = json.loads(nbformat.writes(notebook))
    _trouble(about["trouble"], content["cells"], random.Random(about["name"]))
    text = json.dumps(PROGRAMS[about["program"]](content), indent=1, ensure_ascii=False) + "\n"
    return text[: len(text) * 3 // 5] if about["trouble"] == UNREADABLE else text
