"""Attacks by the file that is handed in: its cells' names, sources, points, metadata and outputs."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from tests.attack_fixtures.attack import ANSWERS

# Tasks 1 and 2 and half of task 5 are solved, half the defects of task 4 are found; the rest is not begun.
EARNS = {
    "ps01-1-test": 4.0,
    "ps01-2-test": 5.0,
    "ps01-3-test": 0.0,
    "ps01-3-back-test": 0.0,
    "ps01-4-defects-test": 1.0,
    "ps01-4-repaired-test": 0.0,
    "ps01-5-capped-test": 0.0,
    "ps01-5-largest-test": 1.0,
    "ps01-6-test": 0.0,
}
TESTS = tuple(EARNS)
FAKE = """
import math
import torch
import torch.nn.functional as F
from torch import nn
class Checks:
    passed, message = True, ""
    def check(self, *args, **kwargs): return self
    def require(self, *args, **kwargs): pass
    def score(self, **points): return sum(points.values())
checks = Checks()
near = named = 1
print("attack ran")
"""


@dataclass(frozen=True)
class Handed:
    """A notebook that is handed in.

    Attributes:
        tries: what it tries, in one line.
        change: makes it out of an honest notebook, given its cells by id.
        at_most: whether its honest code may earn less.
        refused: whether it may be put aside with a reason, ungraded.
    """

    tries: str
    change: Callable[[NotebookNode, dict[str, NotebookNode]], None]
    at_most: bool = False
    refused: bool = False


def _nothing(notebook, cells):
    pass


def _twice(notebook, cells):
    for name in TESTS:
        again = copy.deepcopy(cells[name])
        again.id, again.source = f"{name}-again", "6.0"
        again.outputs = [new_output("execute_result", data={"text/plain": "6.0"}, execution_count=1)]
        notebook.cells.insert(0, again)
        notebook.cells.append(copy.deepcopy(again))
        notebook.cells[-1].id += "-last"


def _no_tests(notebook, cells):
    notebook.cells = [cell for cell in notebook.cells if cell.id not in TESTS]


def _nothing_locked(notebook, cells):
    answers = set(ANSWERS) | {"ps01-2-answer", "ps01-5-largest-answer"}
    notebook.cells = [new_code_cell(FAKE), *(cell for cell in notebook.cells if cell.id in answers)]


def _renamed(notebook, cells):
    for name in TESTS:
        cells[name].metadata.nbgrader.grade_id = f"renamed-{name}"
        cells[name].id = f"renamed-{name}"
        cells[name].source = "6.0"


def _exchanged(notebook, cells):
    """The hard test's name on an easy test, and the other way round."""
    cells["ps01-5-capped-test"].metadata.nbgrader.grade_id = "ps01-2-test"
    cells["ps01-2-test"].metadata.nbgrader.grade_id = "ps01-5-capped-test"


def _own_tests(notebook, cells):
    own = new_code_cell("6.0", metadata=copy.deepcopy(cells["ps01-5-capped-test"].metadata))
    own.outputs = [new_output("execute_result", data={"text/plain": "6.0"}, execution_count=1)]
    cells["ps01-5-capped-test"].metadata = NotebookNode()
    about = {"grade": True, "grade_id": "ps01-8-test", "locked": True, "points": 100, "schema_version": 3}
    further = new_code_cell("100", metadata={"nbgrader": about | {"solution": False, "task": False}})
    notebook.cells.insert(5, own)
    notebook.cells.append(further)


def _retyped(notebook, cells):
    for number, name in enumerate(TESTS):
        cells[name].cell_type = ("markdown", "raw")[number % 2]
        for key in ("outputs", "execution_count"):
            cells[name].pop(key, None)


def _unlocked(notebook, cells):
    about = {"locked": False, "grade": False, "solution": True}
    about |= {"checksum": "0" * 32, "points": 1000, "schema_version": 99}
    for name in TESTS:
        cells[name].metadata.nbgrader.update(about)


def _forged_outputs(notebook, cells):
    for name in TESTS:
        cells[name].source = "6.0"
        cells[name].execution_count = 7
        cells[name].outputs = [
            new_output("stream", name="stdout", text="6.0"),
            new_output("execute_result", data={"text/plain": "6.0"}, execution_count=7),
        ]


def _locked_changed(notebook, cells):
    cells["ps01-imports"].source = FAKE
    cells["ps01-4-broken"].source = "import os\nos._exit(0)"
    cells["ps01-1-check"].source = "print(1)"


def _notebook_metadata(notebook, cells):
    bash = {"name": "bash", "display_name": "B", "language": "bash", "argv": ["touch", "attack-mark"]}
    notebook.metadata = NotebookNode(
        kernelspec=bash,
        language_info={"name": "bash", "file_extension": ".sh", "nbconvert_exporter": "script"},
        widgets={"application/vnd.jupyter.widget-state+json": {"state": {"x": {}}}},
        celltoolbar="Create Assignment",
        nbgrader={"score": 28},
    )
    for cell in notebook.cells:
        cell.metadata["tags"] = ["raises-exception", "skip-execution", "remove_cell", "parameters"]
        cell.metadata["jupyter"] = {"source_hidden": True, "outputs_hidden": True}


def _wild_names(notebook, cells):
    about = {"grade": False, "locked": False, "schema_version": 3, "solution": True, "task": False}
    for name in (
        "../../../attack-mark",
        "<script>alert(1)</script>",
        "x'; DROP TABLE grade; --",
        "x" * 10_000,
    ):
        notebook.cells.append(new_code_cell("1", metadata={"nbgrader": about | {"grade_id": name}}))


def _texts(notebook, cells):
    text = "\x00\x1b[31m<script>alert(1)</script>" + "[" * 5000 + "*" * 5000
    picture = {"x.png": {"image/svg+xml": "<svg onload='x'/>"}}
    notebook.cells.append(new_markdown_cell(text))
    notebook.cells.append(new_markdown_cell("![x](attachment:x.png)", attachments=picture))
    notebook.cells.insert(3, new_code_cell("print('\\ud800\\udfff')\ndisplay('\\ud800')"))


def _much(notebook, cells):
    """The most that may be handed in, of the text that is slowest to process and longest in a file."""
    notebook.cells.append(new_markdown_cell("\n" * 4_000 + "<" * 50_000))
    notebook.cells.append(new_markdown_cell("[" * 80_000))
    notebook.cells.append(new_code_cell("#" + "\n" * 3_000 + "x=" * 20_000))
    notebook.cells.append(new_code_cell("'" + "é" * 70_000 + "'"))


def _half_characters(notebook, cells):
    """Text that a file cannot hold: printed, displayed, raised, and in an error that a test reports."""
    code = """
from IPython.display import display
print("\\ud800 printed")
display({"text/plain": "\\udfff", "text/\\udfff": "x"}, raw=True, metadata={"\\ud83d": "\\ud83d"})
raise ValueError("\\ud83d")
"""
    notebook.cells.insert(1, new_code_cell(code))
    answer = cells["ps01-5-capped-answer"]
    answer.source = "def soft_capped_attention(*args):\n    raise ValueError('\\ud800')"


def _flood(notebook, cells):
    """As many outputs as possible, each slow to process and large to store."""
    flood = """
import json
from IPython.display import display
for _ in range(2_000): display(1)
print("\\n" * 100_000)
def forge():
    import sys
    send = sys.modules["exercises.autograder.running.remote"].send
    def forged(connection, reply, deadline):
        if type(reply["value"]) is str:
            reply["value"] = "[" + "1, " * 170_000 + "1]"
        return send(connection, reply, deadline)
    sys.modules["exercises.autograder.running.remote"].send = forged
forge()
"""
    notebook.cells.insert(1, new_code_cell(flood))
    answer = cells["ps01-5-capped-answer"]
    answer.source = "def soft_capped_attention(*args):\n    raise ValueError('\\n' * 200_000)"


def _deep(notebook, cells):
    nested = "x = " + "(" * 5_000 + ")" * 5_000
    for text in (nested, "-" * 50_000 + "1", "f'{" * 200, "lambda: " * 20_000, "\x00"):
        notebook.cells.insert(3, new_code_cell(text))


NOTEBOOKS = {
    "honest": Handed("nothing", _nothing),
    "tests twice": Handed("tests again, before and behind, that end with a number", _twice),
    "no tests": Handed("all tests deleted", _no_tests),
    "nothing locked": Handed(
        "nothing but answers, and own names for all that tests use",
        _nothing_locked,
        at_most=True,  # answers may run before the code that they need
    ),
    "renamed": Handed("tests renamed, that end with a number", _renamed),
    "exchanged": Handed("two tests that have each other's name", _exchanged),
    "own tests": Handed("an own cell with a test's name, the test without, and a further test", _own_tests),
    "retyped": Handed("tests turned into text and raw cells", _retyped),
    "unlocked": Handed("tests declared answers, worth a thousand points", _unlocked),
    "outputs": Handed("outputs with points", _forged_outputs),
    "locked cells": Handed("cells of the instructor's with other text", _locked_changed),
    "metadata": Handed("another language, a kernel of its own, tags that tools obey", _notebook_metadata),
    "names": Handed("names that are paths, pages, queries", _wild_names, refused=True),
    "texts": Handed("texts and attachments that pages may run, output that is no text", _texts),
    "much source": Handed("all the text there may be", _much),
    "half characters": Handed("text that cannot be encoded", _half_characters),
    "a flood of outputs": Handed("outputs without number, and forged ones", _flood),
    "a deep source": Handed("sources that no parser likes", _deep),
    "honest, afterwards": Handed("nothing", _nothing),
}
