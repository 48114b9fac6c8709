"""What a student wants to know before handing in: ``lessons check-submission FILE.ipynb``.

The file is compared with the assignment as it was released (`assignments.json`, written by `exercises.release`):
is every cell there, once, as it was, and answered? Then nbval runs it from top to bottom in a fresh kernel, and
what the visible checks say is repeated.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

from transformer_lessons.data.libraries import library

__all__ = ["assignments", "problems_of", "run_cells"]

MOST_BYTES = 5_000_000  # a notebook without pictures has 100,000
CELL_SECONDS = 300


def assignments() -> dict[str, dict]:
    """The assignments as they were released, by name: of each cell its type, whether it is locked, and a sum.

    A pitfall: these are the released cells; a notebook of an earlier release may differ without being wrong.
    """
    return json.loads((files("transformer_lessons.tools") / "assignments.json").read_text(encoding="utf-8"))


def digest(source: str | list[str]) -> str:
    """A sum of a cell's text. A pitfall: a notebook may hold a text as one string or as lines."""
    return hashlib.sha256("".join(source).strip().encode()).hexdigest()[:16]


def grade_id(cell: dict) -> str | None:
    """The name that nbgrader knows a cell by; None for a cell of the student's own."""
    return cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")


def is_cell(cell: object) -> bool:
    """Whether this has the parts of a cell that are read here; files are edited by hand, too."""
    if not isinstance(cell, dict) or not isinstance(cell.get("source"), str | list):
        return False
    metadata = cell.get("metadata", {})
    marks = metadata.get("nbgrader", {}) if isinstance(metadata, dict) else None
    return isinstance(marks, dict) and isinstance(cell.get("cell_type"), str)


def problems_of(path: Path) -> list[str]:
    """What is wrong with a file before anything in it runs, a sentence each; none if nothing is.

    A pitfall: no problem does not mean right answers; those only `run_cells` and the grader see.

    Raises:
        ValueError: for a file that is no notebook, or none of this course.
        OSError: if it cannot be read.
    """
    cells, name = read(path)
    released = assignments()[name]["cells"]
    found = []
    if path.name != f"{name}.ipynb":
        found.append(f"the file should be called {name}.ipynb, but is {path.name}")
    if path.stat().st_size > MOST_BYTES:
        size = path.stat().st_size / 1e6
        found.append(f"the file has {size:.1f} MB, more than {MOST_BYTES / 1e6:.0f}: clear large outputs")
    count = Counter(map(grade_id, cells))
    found += [f"{cell} is missing: copy it from a fresh notebook" for cell in released if not count[cell]]
    found += [f"{cell} is there {n} times: delete the copies" for cell, n in count.items() if cell and n > 1]
    unknown = [cell for cell in count if cell and cell not in released]
    found += [f"{cell} is no cell of {name}: was it renamed, or is it another's?" for cell in unknown]
    seen = {grade_id(cell): cell for cell in cells if grade_id(cell) in released}
    texts = [problem(cell, seen[cell], released[cell]) for cell in released if cell in seen]
    return found + [text for text in texts if text]


def problem(name: str, cell: dict, released: dict) -> str | None:
    """What is wrong with one cell that is there."""
    if cell["cell_type"] != released["type"]:
        return f"{name} should be a {released['type']} cell, but is a {cell['cell_type']} cell"
    is_released = digest(cell["source"]) == released["sum"]
    if released["locked"]:
        return (
            None if is_released else f"{name} was changed: it is locked, and the grader puts the old one back"
        )
    if is_released:
        return f"{name} is not answered yet"
    if cell["cell_type"] == "code" and cell.get("execution_count") is None:
        return f"{name} was changed but not run: run all cells from the top before you hand in"
    return None


def read(path: Path) -> tuple[list[dict], str]:
    """The cells of a notebook, and the name of its assignment: the one that most of its cells belong to."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = content["cells"]
        usable = isinstance(cells, list) and all(map(is_cell, cells))
    except (ValueError, KeyError, TypeError):
        usable = False
    if not usable:
        raise ValueError(f"file: expected a notebook (.ipynb, format 4), got {path}")
    known = {cell: name for name, one in assignments().items() for cell in one["cells"]}
    votes = Counter(known[grade_id(cell)] for cell in cells if grade_id(cell) in known)
    if not votes:
        expected = f"one of {', '.join(assignments())}"
        raise ValueError(f"file: expected {expected}, got a notebook with no cell of these")
    return cells, votes.most_common(1)[0][0]


def run_cells(path: Path) -> list[str]:
    """Run a copy from top to bottom; what each failing cell says, unless its task is not answered at all.

    A pitfall: cells that take longer than five minutes count as failing.

    Raises:
        ImportError: without nbval.
        ValueError: if the notebook could not be run at all, with the reason.
        OSError: if the file cannot be read.
    """
    library("nbval", extra="submission")
    cells, name = read(path)
    names = [grade_id(cell) for cell in cells if cell["cell_type"] == "code"]
    released = assignments()[name]["cells"]
    waiting = {grade_id(cell) for cell in cells if is_waiting(cell, released.get(grade_id(cell), {}))}
    return [
        f"{names[number] or f'code cell {number + 1}'}: {said}"
        for number, said in complaints_of(path)
        if not {names[number], answer_of(names[number])} & waiting
    ]


def complaints_of(path: Path) -> list[tuple[int, str]]:
    """The number of each code cell that fails in a fresh kernel, and what its error says."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        copy = Path(folder, "submission.ipynb")
        copy.write_bytes(path.read_bytes())
        options = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", str(CELL_SECONDS)]
        alone = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder]
        command = [sys.executable, "-m", "pytest", *options, *alone, "--junitxml", str(report), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode not in (0, 1):
            raise ValueError(f"file: {path} could not be run: {done.stdout[-400:]}{done.stderr[-400:]}")
        return complaints(report)


def is_waiting(cell: dict, released: dict) -> bool:
    """Whether a cell still holds what was released where an answer belongs."""
    return not released.get("locked", True) and digest(cell["source"]) == released["sum"]


def answer_of(name: str | None) -> str | None:
    """The answer that a check is about: ``ps03-2-causal-check`` looks at ``ps03-2-causal-answer``."""
    return name and re.sub("-[a-z]+$", "-answer", name)


def complaints(report: Path) -> list[tuple[int, str]]:
    """The number of each code cell that failed, and the error's message, from pytest's report."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for failure in case.iter("failure"):
            text = re.sub(r"(#x1B|\x1b)\[[0-9;]*m", "", failure.text or "")
            # A whole traceback, or, of a failed check, the message alone.
            head = r"^(\w+) +Traceback \(most recent call last\)$|^Traceback:\s+(\w+): "
            named = re.search(head, text, re.MULTILINE)
            kind = named and (named[1] or named[2])
            message = text.rpartition(f"\n{kind}: ")[2] if kind else text.strip().splitlines()[-1]
            said = message if kind in (None, "AssertionError") else f"{kind}: {message}"
            found.append((int(case.get("name").split()[-1]), said.strip()))
    return found
