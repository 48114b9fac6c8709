"""nbgrader's `Execute`, replaced: the same place in its autograde preprocessors, other ways.

What runs as a test is the master's text from the gradebook, never what the submitted file says a test is. The
learner's code runs in its box, and what its process sends is shown, but decides nothing.
"""

import atexit
import json
import platform
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Enum, Float, Int, Unicode

import transformer_lessons
from exercises.autograder import result as results
from exercises.autograder.box.confine import Limits
from exercises.autograder.examiner import Cell
from exercises.autograder.flags.calls import from_calls
from exercises.autograder.inert import written_bytes
from exercises.autograder.intake.cells import whole
from exercises.autograder.result import CellResult, Flag, Result
from exercises.autograder.worker import Worker

__all__ = ["IsolatedExecute", "record_path", "worker"]


class IsolatedExecute(NbGraderPreprocessor):
    """Runs a submission in processes of its own, and writes a `Result` besides."""

    isolation = Enum(
        ["full", "none"], default_value="full", help="none: run it unprotected, and mark all grades so"
    ).tag(config=True)
    records = Unicode(help="the folder for results; by default records/ beside the gradebook").tag(
        config=True
    )
    cell_seconds = Float(30.0, help="the wall-clock time that a cell may take").tag(config=True)
    seconds = Float(240.0, help="the wall-clock time that a submission may take").tag(config=True)
    memory = Int(2 << 30, help="bytes that a submission may use beyond Python and torch").tag(config=True)

    def preprocess(self, nb, resources):
        """Run all code cells of a notebook that nbgrader has sanitised."""
        about = resources["nbgrader"]
        cells = _cells(nb, about)
        limits = Limits(cell_seconds=self.cell_seconds, seconds=self.seconds, memory=self.memory)
        found = worker(limits, self.isolation == "full").grade([cell for cell, _ in cells])
        outcomes = list(found)
        took = outcomes.pop()
        result = _Notebook(cells, limits).apply(outcomes)
        result = replace(
            result,
            student=about["student"],
            assignment=about["assignment"],
            isolation=self.isolation,
            flags=(*result.flags, *_noted(result, took["notes"]), *self._unprotected()),
            seconds=round(took["seconds"], 3),
            cpu_seconds=round(took["cpu_seconds"], 3),
            versions=_versions(),
        )
        results.write(record_path(self._folder(about), result, about["notebook"]), result)
        return nb, resources

    def _folder(self, about: dict) -> Path:
        return Path(self.records or Path(about["db_url"].removeprefix("sqlite:///")).parent / "records")

    def _unprotected(self) -> tuple[Flag, ...]:
        text = "Graded without isolation: the student's code could have changed anything, these marks too."
        return () if self.isolation == "full" else (Flag("unsafe", text),)


def record_path(folder: Path, result: Result, notebook: str) -> Path:
    """Where the result of a submission's notebook is kept."""
    return folder / result.student / result.assignment / f"{notebook}.json"


@cache
def worker(limits: Limits, isolated: bool) -> Worker:
    """The forking process of these limits; one serves all submissions of this process."""
    made = Worker(limits, isolated=isolated)
    atexit.register(made.close)
    return made


def _cells(nb: nbformat.NotebookNode, about: dict) -> list[tuple[Cell, nbformat.NotebookNode]]:
    """What is to be run, with the notebook's cell that shows it; a locked cell once, in the master's words."""
    with Gradebook(about["db_url"]) as gradebook:
        notebook = gradebook.find_notebook(about["notebook"], about["assignment"])
        known = {cell.name: (cell.cell_type, cell.locked, cell.source) for cell in notebook.source_cells}
        points = {cell.name: float(cell.max_score) for cell in notebook.grade_cells}
    found, seen = [], set()
    for shown in nb.cells:
        if shown.cell_type != "code":
            continue
        shown.outputs, shown.execution_count = [], None
        name = shown.metadata.get("nbgrader", {}).get("grade_id") or ""
        type_, locked, source = known.get(name, (None, False, None))
        if not locked:
            found.append((Cell(name if type_ else "", "learner", shown.source), shown))
        elif name not in seen and type_ == "code":
            role = "test" if name in points else "instructor"
            found.append((Cell(name, role, source, points.get(name, 0.0)), shown))
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


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformer_lessons": transformer_lessons.__version__,
    }
