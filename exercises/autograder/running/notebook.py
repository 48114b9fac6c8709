"""Running a notebook: its code cells go to processes of their own, and outputs and points come back into it.

What runs as a test is the master's text, never what the submitted file says a test is. The learner's code runs in
its box, and what its process sends is shown, but decides nothing.
"""

import atexit
import json
import platform
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import nbformat
import torch
from nbformat import NotebookNode
from nbformat.v4 import new_output

import transformer_lessons
from exercises.autograder import result as results
from exercises.autograder.box.confine import Limits
from exercises.autograder.flags.calls import from_calls
from exercises.autograder.intake.cells import whole
from exercises.autograder.result import CellResult, Flag, Result
from exercises.autograder.running.examiner import Cell
from exercises.autograder.running.inert import written_bytes
from exercises.autograder.running.master import MasterCell
from exercises.autograder.running.worker import Worker
from transformer_lessons.tools.submission import grade_id, is_ungraded

__all__ = ["run", "worker"]

UNSAFE = "Graded without isolation: the student's code could have changed anything, these marks too."


def run(notebook: NotebookNode, master: tuple[MasterCell, ...], limits: Limits, isolation: str) -> Result:
    """Run all code cells of a notebook, whose outputs are put into it; the result names no student.

    Args:
        notebook: a submission, mended.
        master: the assignment's cells.
        limits: of what it may use.
        isolation: "full", or "none" to run it unprotected and say so in the result.
    """
    cells = _cells(notebook, {cell.name: cell for cell in master})
    outcomes, took = _outcomes([cell for cell, _ in cells], limits, isolation)
    found = _Notebook(cells, limits).apply(outcomes)
    unsafe = () if isolation == "full" else (Flag("unsafe", UNSAFE),)
    return replace(
        found,
        isolation=isolation,
        flags=(*found.flags, *_noted(found, took["notes"]), *unsafe),
        seconds=round(took["seconds"], 3),
        cpu_seconds=round(took["cpu_seconds"], 3),
        versions=versions(),
    )


def _outcomes(cells: list[Cell], limits: Limits, isolation: str) -> tuple[list[dict], dict]:
    """Of each cell, and what it took.

    If the tests' process was ended before it could say all, for want of memory on a busy machine, it is asked
    once more; had the student's code a part in that, it ends again.
    """
    for _ in range(2):
        *outcomes, took = worker(limits, isolation == "full").grade(cells)
        heard = {outcome["cell"] for outcome in outcomes}
        tests = {number for number, cell in enumerate(cells) if cell.role == "test"}
        if tests <= heard or took["seconds"] > limits.seconds / 2:
            break
    return outcomes, took


def worker(limits: Limits, isolated: bool) -> Worker:
    """The forking process of these limits; one serves all submissions of this thread."""
    return _worker(limits, isolated, threading.get_ident())


@cache
def _worker(limits: Limits, isolated: bool, thread: int) -> Worker:
    made = Worker(limits, isolated=isolated)
    atexit.register(made.close)
    return made


def _cells(notebook: NotebookNode, master: dict[str, MasterCell]) -> list[tuple[Cell, NotebookNode]]:
    """What is to be run, with the notebook's cell that shows it; a locked cell once, in the master's words.

    Experiments are not: they take minutes, and a person reads what is concluded from them.
    """
    found, seen = [], set()
    for shown in notebook.cells:
        if shown.cell_type != "code":
            continue
        shown.outputs, shown.execution_count = [], None
        name = grade_id(shown) or ""
        known = master.get(name)
        if known and is_ungraded(name):
            continue
        if known is None or not known.locked:
            found.append((Cell(name if known else "", "learner", shown.source), shown))
        elif name not in seen and known.type == "code":
            role = "test" if known.is_graded else "instructor"
            found.append((Cell(name, role, known.source, known.points), shown))
        seen.add(name)
    return found


class _Notebook:
    """A notebook whose cells are given their outputs.

    Args:
        cells: what was run, each with the notebook's cell.
        limits: of which the output's is kept here.
    """

    def __init__(self, cells: list, limits: Limits):
        self._cells, self._left = cells, limits.output
        self._flags: list[Flag] = []
        self._results: dict[int, CellResult] = {}

    def apply(self, outcomes: list[dict]) -> Result:
        """Put outputs into the notebook, of tests first, as there may not be room for all; points and flags."""
        for outcome in sorted(outcomes, key=lambda outcome: "result" not in outcome):
            cell, shown = self._cells[outcome["cell"]]
            shown.outputs = list(self._within_bounds(_decoded(outcome["outputs"])))
            if cell.role == "test":
                self._results[outcome["cell"]] = results.cell_from_dict(outcome["result"])
            else:
                shown.execution_count = outcome["cell"] + 1
            if outcome.get("lost"):
                self._flags.append(Flag("ended", outcome["lost"], cell.id or None))
        tests = [number for number, (cell, _) in enumerate(self._cells) if cell.role == "test"]
        return Result("", "", tuple(self._settled(number) for number in tests), tuple(self._flags))

    def _settled(self, number: int) -> CellResult:
        """A test's result, and the output from which nbgrader reads it. None is no points, never all of them."""
        cell, shown = self._cells[number]
        found = self._results.get(number, CellResult(cell.id, 0.0, cell.points, "missing"))
        if found.status == "done":
            text = {"text/plain": repr(found.earned)}
            shown.outputs.append(new_output("execute_result", data=text, execution_count=number + 1))
            return found
        text = f"This test has no result ({found.status}): no points."
        shown.outputs.append(new_output("error", ename="NoResult", evalue=text, traceback=[text]))
        if found.status in ("missing", "timeout"):
            self._flags.append(Flag(found.status, f"The test {cell.id} has no result.", cell.id))
        return found

    def _within_bounds(self, outputs: list) -> Iterator[nbformat.NotebookNode]:
        """As many as there is room for; the rest is not even looked at, as that takes time for each."""
        for output in map(_valid, outputs):
            self._left -= written_bytes(output)
            if self._left < 0:
                yield new_output("stream", name="stdout", text="[cut: the notebook has too much output]\n")
                return
            yield output


def _decoded(text: str) -> list:
    """A list of what should be outputs; the learner's process may have sent anything."""
    try:
        # Twice, as an escape can express half a character, which no file can hold.
        found = json.loads(whole(json.dumps(json.loads(text), ensure_ascii=False)))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, list) else ["unreadable"]


def _valid(output: Any) -> nbformat.NotebookNode:
    """An output that nbformat accepts and can write."""
    try:
        node = nbformat.from_dict(output)
        nbformat.validate(node, ref="output", version=4)
        written_bytes(node)
        return node
    except Exception:
        return new_output("stream", name="stdout", text="[an output that cannot be read]\n")


def _noted(result: Result, notes: Any) -> list[Flag]:
    """What the learner's process noted while it ran, for a person."""
    return from_calls(notes, {part.task for cell in result.cells for part in cell.parts})


@cache
def versions() -> dict[str, str]:
    """Of what marks may depend on besides the submission and the master."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformer_lessons": transformer_lessons.__version__,
    }
