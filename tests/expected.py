"""Marks of textbook answers, and of right answers with one known slip among them.

The tests of the checks use the same answers: ``tests/checks/answers`` and ``tests/typical_answers.py``.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from benchmarks.agreement import passing_submission
from exercises.autograder.batch import grade
from exercises.autograder.result import Result
from tests.checks.answers import MODULES

TEXTBOOK = "As textbooks have it"
REQUIRED = re.compile(r'checks\.require\("(\w+)", (\w+)\)')


def expected(assignment: str, folder: Path, slips: list[tuple[str, str, str]]) -> dict[str, Result]:
    """Grade an assignment's answers: first the textbook ones, then right ones with each known slip.

    Args:
        assignment: the name of the assignment.
        folder: the folder in which it is graded.
        slips: known slips, as `rehearse.typical_mistakes` lists them.
    """
    notebook = passing_submission(assignment)
    texts = {TEXTBOOK: dict(_textbook(notebook))}
    cells = {cell.id for cell in notebook.cells}
    texts |= {what: {answer: text} for answer, what, text in slips if answer in cells}
    for number, changed in enumerate(texts.values()):
        notebook = passing_submission(assignment)
        for cell in notebook.cells:
            cell.source = changed.get(cell.id, cell.source)
        path = folder / "submitted" / f"answer-{number:02}__{assignment}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
    summary = grade.grade(folder / "submitted", folder, isolated=False)
    return dict(zip(texts, sorted(summary.graded, key=lambda result: result.student), strict=True))


def paragraph(assignment: str, results: dict[str, Result]) -> str:
    """Text for the instructors' page: an assignment's points, and what each slip costs in which task."""
    marks = [cell.metadata.get("nbgrader", {}) for cell in passing_submission(assignment).cells]
    by_person = sum(about["points"] for about in marks if about.get("grade") and about.get("solution"))
    first, costs = results[TEXTBOOK], []
    for what, result in results.items():
        lost = dict.fromkeys(cell.cell.split("-")[1] for cell in result.cells if cell.earned < cell.worth)
        if what != TEXTBOOK and lost:
            costs.append(f"{what} −{result.worth - result.earned:g} (task {' and '.join(lost)})")
    return (
        f"**{assignment}**: {first.worth:g} points by tests, {by_person:g} by a person. "
        f"Answers as textbooks have them get {first.earned:g}. Known slips: {'; '.join(costs)}."
    )


def _textbook(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """Yield the answer cell's id and a textbook answer for each task with a check, except for repairs."""
    for cell in notebook.cells:
        found = REQUIRED.search(cell.source) if cell.id.endswith("-check") else None
        if found and found[2].lower() != "repaired":
            task, public = found.groups()
            module = next(module for module in MODULES if task in module.RIGHT)
            # The whole module goes into a function, so that its other names do not clash with the notebook's.
            text = textwrap.indent(inspect.getsource(module), "    ")
            answer = f"    return {module.RIGHT[task][0].__name__}"
            yield (
                cell.id.replace("-check", "-answer"),
                f"def _textbook():\n{text}\n{answer}\n\n{public} = _textbook()",
            )
