"""Running a notebook: its code cells run in separate processes; outputs and points come back into it.

What runs as a test is the master's text, never what the submitted file says a test is. The learner's code
runs in its box; what its process sends is shown, but decides nothing.
"""

import atexit
import json
import platform
import re
import threading
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import nbformat
import torch
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook

import transformer_lessons
from exercises.autograder.box.confine import Limits
from exercises.autograder.intake.cells import clip, replace_surrogates
from exercises.autograder.result import CellResult, Flag, Result, rebuilt
from exercises.autograder.running import flags
from exercises.autograder.running.inert import inert_output, is_picture
from exercises.autograder.running.runner import Cell
from exercises.autograder.running.worker import Worker
from transformer_lessons.tools.submission import grade_id, is_ungraded

IMPORTS = 5  # the most imports that failed and are told of
PICTURE = 10_000  # the fewest bytes that a picture counts as, because re-encoding it takes time


@dataclass(frozen=True)
class MasterCell:
    """A cell of an assignment as the gradebook has it: this runs and counts, whatever a submission says."""

    name: str  # its grade id
    type: str  # "code" or "markdown"
    locked: bool  # whether it is the course's text, not the student's
    source: str  # the text, with hidden tests; of an answer, what was handed out
    points: float = 0.0  # the most it gives
    is_graded: bool = False  # whether it gives points, by a test or by a person
    is_answer: bool = False  # whether an answer belongs here


def master_of(url: str, assignment: str) -> tuple[MasterCell, ...]:
    """The cells of an assignment, whose notebook has the same name, in the gradebook at an address.

    Raises:
        MissingEntry: if the gradebook does not know the assignment.
    """
    with Gradebook(url) as gradebook:
        known = gradebook.find_notebook(assignment, assignment)
        points = {cell.name: float(cell.max_score) for cell in known.grade_cells}
        answers = {cell.name for cell in known.solution_cells}
        return tuple(
            MasterCell(
                *(cell.name, cell.cell_type, cell.locked, cell.source),
                points.get(cell.name, 0.0),
                is_graded=cell.name in points,
                is_answer=cell.name in answers,
            )
            for cell in known.source_cells
        )


def run(notebook: NotebookNode, master: tuple[MasterCell, ...], limits: Limits, isolation: str) -> Result:
    """Run all code cells of a repaired notebook and put their outputs into it; the result names no student.

    If `isolation` is "none" instead of "full", it runs unprotected, and the result says so.
    """
    cells = _cells(notebook, {cell.name: cell for cell in master})
    outcomes, summary = _outcomes([cell for cell, _ in cells], limits, isolation)
    found, noticed = _apply_outcomes(cells, outcomes, limits.output)
    given = {cell.name: cell.source for cell in master if cell.locked and cell.type == "code"}
    code = [(grade_id(cell), cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    theirs = [cell for cell in code if cell[0] not in given]
    said = "\n".join(message for result in found for message in result.messages)
    missing = re.findall("^NameError: name '(.+)' is not defined", said, re.MULTILINE)
    noticed += flags.scan(theirs, given, summary["notes"], missing)
    about = {"isolation": isolation, "seconds": round(summary["seconds"], 3), "versions": versions()}
    return Result("", "", tuple(found), tuple(noticed), **about)


def _outcomes(cells: list[Cell], limits: Limits, isolation: str) -> tuple[list[dict], dict]:
    """The outcome of each cell, and the time and notes of the run.

    If the tests' process was ended before it could report everything, for lack of memory on a busy machine,
    it runs once more; if the student's code had a part in that, it ends again.
    """
    for _ in range(2):
        forking = worker(threading.get_ident())
        *outcomes, summary = forking.grade(cells, limits, isolated=isolation == "full")
        reported = {outcome["cell"] for outcome in outcomes}
        tests = {number for number, cell in enumerate(cells) if cell.role == "test"}
        if tests <= reported or summary["seconds"] > limits.seconds / 2:
            break
    return outcomes, summary


@cache
def worker(thread: int) -> Worker:
    """The forking process of a thread, which serves all its submissions."""
    made = Worker()
    atexit.register(made.close)
    return made


def _cells(notebook: NotebookNode, master: dict[str, MasterCell]) -> list[tuple[Cell, NotebookNode]]:
    """The cells to run, each with the notebook's cell that shows it; a locked one once, by the master's text.

    Experiments are not run, because they take minutes: a person reads what is concluded from the plots that
    the student's notebook holds.
    """
    found, seen = [], set()
    for shown in notebook.cells:
        if shown.cell_type != "code":
            continue
        handed_in = shown.outputs
        shown.outputs, shown.execution_count = [], None
        name = grade_id(shown) or ""
        known = master.get(name)
        if known and is_ungraded(name):
            shown.outputs = [inert_output(plot) for plot in handed_in]  # the intake has kept nothing else
            continue
        if known is None or not known.locked:
            found.append((Cell(name if known else "", "learner", shown.source), shown))
        elif name not in seen and known.type == "code":
            role = "test" if known.is_graded else "instructor"
            found.append((Cell(name, role, known.source, known.points), shown))
        seen.add(name)
    return found


def _apply_outcomes(cells: list, outcomes: list[dict], room: int) -> tuple[list[CellResult], list[Flag]]:
    """Put outputs into the notebook, tests' first, as room may run out; return points and flags."""
    tests = [number for number, (cell, _) in enumerate(cells) if cell.role == "test"]
    found = {n: CellResult(cells[n][0].id, 0.0, cells[n][0].points, "missing") for n in tests}
    flags, imports = [], {}
    for outcome in sorted(outcomes, key=lambda outcome: "result" not in outcome):
        number = outcome["cell"]
        cell, shown = cells[number]
        shown.outputs, room = _within_bounds(_decoded(outcome["outputs"]), room)
        if number in found:
            found[number] = rebuilt(CellResult, outcome["result"])
        else:
            shown.execution_count = number + 1
            failed = [one.evalue for one in shown.outputs if one.get("ename") == "ModuleNotFoundError"]
            if failed and len(imports) < IMPORTS:
                imports[number] = f"A cell was stopped by an import: {clip(failed[0], most=100)}."
                flags.append(Flag("import", imports[number], cell.id or None))
        if outcome.get("lost"):
            flags.append(Flag("ended", outcome["lost"], cell.id or None))
    for number, result in found.items():
        above = tuple(said for place, said in sorted(imports.items()) if place < number)
        if above and result.earned < result.worth:
            found[number] = replace(result, messages=(*above, *result.messages))
        if result.status != "done":
            text = f"This test has no result ({result.status}): no points.\n"
            cells[number][1].outputs.append(new_output("stream", name="stdout", text=text))
        if result.status in ("missing", "timeout"):
            flags.append(Flag(result.status, f"The test {result.cell} has no result.", result.cell))
    return list(found.values()), flags


def _within_bounds(outputs: list, room: int) -> tuple[list[NotebookNode], int]:
    """As many outputs as there is room for, made inert; the rest is not looked at, as each takes time."""
    kept = []
    for output in map(_valid, outputs):
        if room >= 0:
            least = PICTURE if is_picture(output) else 0
            output = inert_output(output)
            text = json.dumps(output, indent=1)
            room -= max(least, len(text) + 8 * text.count("\n"))  # as each line is indented in the file
        if room < 0:
            kept.append(new_output("stream", name="stdout", text="[cut: the notebook has too much output]\n"))
            break
        kept.append(output)
    return kept, room


def _decoded(text: str) -> list:
    """A list of what should be outputs; the learner's process may have sent anything."""
    try:
        # Decoded twice, because an escape can express half a character, which no file can hold.
        found = json.loads(replace_surrogates(json.dumps(json.loads(text), ensure_ascii=False)))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, list) else ["unreadable"]


def _valid(output: Any) -> NotebookNode:
    """The output, if nbformat accepts it and can write it; else a note in its place."""
    try:
        node = nbformat.from_dict(output)
        nbformat.validate(node, ref="output", version=4)
        json.dumps(node)  # fails if it is nested too deep to be written
        return node
    except Exception:
        return new_output("stream", name="stdout", text="[an output that cannot be read]\n")


@cache
def versions() -> dict[str, str]:
    """The versions that marks may depend on, besides the submission and the master."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformer_lessons": transformer_lessons.__version__,
    }
