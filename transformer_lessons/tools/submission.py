"""Checks of a notebook before it is handed in: ``lessons check-submission FILE.ipynb``.

The file is compared with the assignment as it was released (`assignments.json`, written by
`exercises.release`): is every cell there, only once, unchanged if locked, and answered? Then the file is run
from top to bottom in a fresh kernel, and the messages of the visible checks are reported.
"""

import json
import re
import signal
import subprocess
import tempfile
from collections import Counter
from importlib.resources import files
from pathlib import Path

from transformer_lessons.data.files import digest
from transformer_lessons.data.libraries import library

CELL_SECONDS = 300


def assignments() -> dict[str, dict]:
    """The released assignments by name, with each cell's type, whether it is locked, and its checksum."""
    return json.loads((files("transformer_lessons.tools") / "assignments.json").read_text(encoding="utf-8"))


def grade_id(cell: dict) -> str | None:
    """The name of a cell in nbgrader; None for a cell that the student added."""
    return cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")


def is_ungraded(name: str) -> bool:
    """Whether grading skips a cell: an experiment, its given code, or what the translator says."""
    return name.endswith(("-given", "-run", "-heard", "-own"))


def read(path: Path) -> tuple[list[dict], str]:
    """The cells of a notebook, and the name of its assignment: the one that most of its cells belong to.

    ValueError for a file that is not a notebook, or not one of this course.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        names = [grade_id(cell) for cell in cells if cell["cell_type"] and digest(cell["source"])]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"file: expected a notebook (.ipynb, format 4), got {path}") from None
    known = {cell: name for name, one in assignments().items() for cell in one["cells"]}
    votes = Counter(known[name] for name in names if name in known)
    if not votes:
        raise ValueError(f"file: expected one of {', '.join(assignments())}, got a notebook of none of them")
    return cells, votes.most_common(1)[0][0]


def problems_of(path: Path) -> list[str]:
    """The problems of a file before anything in it runs, one sentence each; none does not mean right."""
    cells, name = read(path)
    released = assignments()[name]["cells"]
    found = []
    if path.name != f"{name}.ipynb":
        found.append(f"the file should be called {name}.ipynb, not {path.name}")
    if (size := path.stat().st_size / 1e6) > 5:  # a notebook without pictures has 0.1
        found.append(f"the file is {size:.1f} MB, larger than 5 MB: clear large outputs")
    count = Counter(map(grade_id, cells))
    found += [f"{cell} is missing: copy it from a fresh notebook" for cell in released if not count[cell]]
    found += [f"{cell} occurs {n} times: delete the copies" for cell, n in count.items() if cell and n > 1]
    unknown = [cell for cell in count if cell and cell not in released]
    found += [f"{cell} is not a cell of {name}: was it renamed or copied from elsewhere?" for cell in unknown]
    seen = {grade_id(cell): cell for cell in cells}
    texts = [problem(cell, seen[cell], released[cell]) for cell in released if cell in seen]
    return found + [text for text in texts if text]


def problem(name: str, cell: dict, released: dict) -> str | None:
    """The problem of one cell that is there, if any."""
    if cell["cell_type"] != released["type"]:
        return f"{name} should be a {released['type']} cell, but is a {cell['cell_type']} cell"
    is_released = digest(cell["source"]) == released["sum"]
    if released["locked"]:
        changed = f"{name} was changed: it is locked, and the grader restores the original"
        return None if is_released else changed
    if is_released:
        return f"{name} is not answered yet"
    if cell["cell_type"] == "code" and cell.get("execution_count") is None:
        return f"{name} was changed but not run: run all cells from the top before you hand in"
    return None


def run_cells(path: Path) -> list[str]:
    """The errors of the cells, run from top to bottom, except for tasks that are not answered at all.

    A pitfall: cells that take longer than five minutes are interrupted and count as failing.
    """
    cells, name = read(path)
    released = assignments()[name]["cells"]
    sums = {grade_id(cell): digest(cell["source"]) for cell in cells}
    answers = [name for name, one in released.items() if not one["locked"]]
    unanswered = {name for name in answers if sums.get(name) == released[name]["sum"]}
    code = [c for c in cells if c["cell_type"] == "code" and not is_ungraded(grade_id(c) or "")]
    found = []
    for number, (cell, error) in enumerate(zip(code, errors_of(code), strict=True), start=1):
        own = grade_id(cell) or f"code cell {number}"
        answer = re.sub("-[a-z]+$", "-answer", own)  # the answer that a check is about
        if error and not {own, answer} & unanswered:
            found.append(f"{own}: {error}")
    return found


def errors_of(code: list[dict]) -> list[str | None]:
    """The error that each cell ends with in a fresh kernel, or None."""
    needed = "nbclient", "nbformat", "ipykernel"
    nbclient, nbformat, _ = (library(name, extra="submission") for name in needed)
    cells = [nbformat.v4.new_code_cell("".join(cell["source"])) for cell in code]
    notebook = nbformat.v4.new_notebook(cells=cells)
    options = {"timeout": CELL_SECONDS, "interrupt_on_timeout": True, "allow_errors": True}
    # On Ctrl-C, nbclient would end the kernel and then stumble over its absence.
    options["on_notebook_start"] = lambda **_: signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options)
        try:
            client.execute(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except nbclient.exceptions.DeadKernelError:
            raise ValueError("file: expected cells that can be run, got one that ends the kernel") from None
    return [error_of(cell) for cell in notebook.cells]


def error_of(cell: dict) -> str | None:
    """The kind and message of a cell's error; for a failed check, the message alone."""
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            if output["ename"] == "KeyboardInterrupt":
                return f"it took longer than {CELL_SECONDS:,} seconds"
            kind = "" if output["ename"] == "AssertionError" else f"{output['ename']}: "
            return (kind + output["evalue"]).strip()
    return None
