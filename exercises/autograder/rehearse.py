"""Made-up students of mixed quality, for trying the whole process before the first real deadline.

They write the master's answers, known mistakes, or nothing, and hand in through Canvas.
"""

import ast
import copy
import random
import re
import runpy
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from exercises import release
from exercises.autograder.export.templates import to_csv
from transformer_lessons.data.files import replacing, write_json

KEY = "what_is_in_it.json"  # beside the submissions: who did what, for a comparison
TEMPLATE = "gradebook.csv"  # likewise, for `export` to fill in
MARKS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
ABSENT, COPIED, UNREADABLE = "hands in nothing", "copied", "cut off"
DELETED = "a test is deleted"
# Which of every twenty students have which trouble, and which are late.
TROUBLES = {1: DELETED, 6: UNREADABLE, 7: COPIED, 9: ABSENT}
LATE = {5, 14, 18}
FIRST_USER, FIRST_FILE = 1_000, 50_000  # Canvas's numbers


# ---- A class and what it writes


def students(number: int, assignment: str) -> list[tuple[dict[str, Any], NotebookNode | None]]:
    """A class; the same arguments give the same class.

    Returns:
        for each student, the facts that are written to the file `KEY`, and the notebook handed in, if any.
        "kinds" says whether each answer is "right", "typical" (a known mistake) or "untouched"; "copied_from"
        names the student whose answers these are, with a comment added before each.
    """
    seed, found = f"{assignment} {number}", []
    names = [f"student-{n + 1:03}" for n in range(number)]  # as in Canvas
    others = [n for n in range(number) if n % 20 not in TROUBLES]
    for n, name in enumerate(names):
        trouble, generator = TROUBLES.get(n % 20, ""), random.Random(f"{seed} {n}")
        user = FIRST_USER + n + 1
        about = {"student": f"{name}_{user}", "name": name, "user": user}  # first, the intake's id
        about |= {"trouble": trouble, "is_late": n % 20 in LATE, "copied_from": "", "kinds": {}}
        notebook = None
        if trouble != ABSENT:
            source = generator.choice(others) if trouble == COPIED else n
            notebook, about["kinds"] = _fill_in(assignment, random.Random(f"{seed} {source} answers"))
        if trouble == COPIED:
            about["copied_from"] = names[source]
            for cell in notebook.cells:
                if cell.cell_type == "code" and about["kinds"].get(cell.id, "untouched") != "untouched":
                    cell.source = f"# my solution\n{cell.source}"
        found.append((about, notebook))
    return found


def _fill_in(assignment: str, generator: random.Random) -> tuple[NotebookNode, dict[str, str]]:
    """A notebook by a student of random skill, and the kind of each of its answers."""
    notebook, solved = copy.deepcopy(_released_and_solved(assignment))
    skill, kinds = 0.2 + 0.7 * generator.random(), {}
    for cell in (one for one in notebook.cells if one.metadata.get("nbgrader", {}).get("solution")):
        weights = {"right": skill, "typical": 0.6 * (1 - skill), "untouched": 0.4 * (1 - skill)}
        kind = generator.choices(list(weights), list(weights.values()))[0]
        mistakes = [text for answer, _, text in typical_mistakes() if answer == cell.id]
        kinds[cell.id] = kind = "right" if kind == "typical" and not mistakes else kind
        if kind == "typical":
            cell.source = generator.choice(mistakes)
        elif kind == "right":
            text = MARKS.sub("", solved[cell.id]).strip("\n")
            cell.source = rename_variables(text, generator) if cell.cell_type == "code" else text
    return notebook, kinds


@cache
def _released_and_solved(assignment: str) -> tuple[NotebookNode, dict[str, str]]:
    """The released notebook of an assignment, and the texts of its master by cell."""
    [master] = [path for path in release.masters() if path.parent.name == assignment]
    solved = nbformat.read(master, as_version=4)
    released = nbformat.read(release.released(master), as_version=4)
    return released, {cell.id: cell.source for cell in solved.cells}


@cache
def typical_mistakes() -> list[tuple[str, str, str]]:
    """The known mistakes of learners: cell, description and text; the tests check the same list."""
    path = release.HERE.parent / "tests" / "typical_answers.py"
    listed = runpy.run_path(str(path))["WRONG"] if path.exists() else ()
    return [(check.replace("-check", "-answer"), what, text.strip("\n")) for check, what, text, _ in listed]


def rename_variables(source: str, generator: random.Random, probability: float = 0.5) -> str:
    """The code as another student might write it: variables of its functions renamed, and its layout lost."""
    nodes = list(ast.walk(ast.parse(source)))
    inside = {name for node in nodes if isinstance(node, ast.FunctionDef) for name in ast.walk(node)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    # Arguments, functions, modules and attributes keep their names, as does anything named outside functions.
    fixed = {getattr(node, field, None) for node in nodes for field in ("arg", "name", "asname", "attr")}
    fixed |= {name.id for name in names if name not in inside} | {"_"}
    own = sorted({name.id for name in names if isinstance(name.ctx, ast.Store)} - fixed)
    new = {name: f"{name}_{generator.randrange(10)}" for name in own if generator.random() < probability}
    for name in names:
        name.id = new.get(name.id, name.id)
    return ast.unparse(nodes[0])


# ---- What Canvas hands out


def write(folder: Path, number: int, assignment: str) -> Path:
    """Write a class's files and return the archive to grade; the file `KEY` beside it says who did what.

    The same arguments write the same bytes.
    """
    group, source = students(number, assignment), folder / f"{assignment}.zip"
    with replacing(source) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for n, (about, notebook) in enumerate(group, start=FIRST_FILE):
            if notebook is not None:
                late = "_LATE" * about["is_late"]
                name = f"{about['name']}{late}_{about['user']}_{n}_{assignment}.ipynb"
                text = _file_text(about, notebook).encode()
                archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    write_json(folder / KEY, {"assignment": assignment, "students": [about for about, _ in group]})
    header = ["Student", "ID", "SIS Login ID", "Section", f"{assignment} (1)"]
    rows = [[about["name"], str(about["user"]), about["name"], "Rehearsal", ""] for about, _ in group]
    (folder / TEMPLATE).write_bytes(to_csv([header, *rows]).encode())
    return source


def _file_text(about: dict, notebook: NotebookNode) -> str:
    """The text of the file that a student hands in, damaged as the student's trouble says."""
    if about["trouble"] == DELETED:
        tests = [cell for cell in notebook.cells if cell.id.endswith("-test")]
        notebook.cells.remove(random.Random(about["name"]).choice(tests))
    text = nbformat.writes(notebook) + "\n"
    return text[: len(text) * 3 // 5] if about["trouble"] == UNREADABLE else text
