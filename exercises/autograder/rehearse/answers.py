"""What made-up students write: the master's answers, these in other words, typical mistakes, small ones, nothing.

`submission` and `passing` are what ``benchmarks.agreement`` grades: their notebooks must stay as they are, as a
committed record says what came of them.
"""

import copy
import random
import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises import release
from exercises.autograder.rehearse.renaming import renamed
from exercises.autograder.rehearse.rewording import reworded
from exercises.autograder.rehearse.small_mistakes import small_mistakes

__all__ = ["Answerer", "master_of", "passing", "submission"]

KINDS = ("right", "right", "untouched", "mistaken")  # of an answer in `submission`, equally likely
TYPICAL = release.HERE.parent / "tests" / "typical_answers.py"
MARKS = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)


def submission(number: int) -> tuple[str, NotebookNode]:
    """An assignment, and an honest submission of it; the same number gives the same."""
    masters = release.masters()
    chance = random.Random(number)
    return _answered(masters[number % len(masters)], lambda *texts: _answer(chance, *texts))


def passing(assignment: str) -> NotebookNode:
    """A submission with the master's answers."""
    return _answered(master_of(assignment), lambda solved, _: solved)[1]


def master_of(assignment: str) -> Path:
    """Where an assignment's master lies.

    Raises:
        ValueError: for an assignment that is not there.
    """
    found = {path.parent.name: path for path in release.masters()}
    if assignment not in found:
        raise ValueError(f"assignment: expected one of {', '.join(found)}, got {assignment!r}")
    return found[assignment]


def _answered(master: Path, answer: Callable[[str, str], str]) -> tuple[str, NotebookNode]:
    """The assignment and a submission, whose answers are made of the master's and of what stood there."""
    solved = {cell.id: cell.source for cell in nbformat.read(master, as_version=4).cells}
    notebook = nbformat.read(release.released(master), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answer(solved[cell.id], cell.source)
    return master.parent.name, notebook


def _answer(chance: random.Random, solved: str, untouched: str) -> str:
    kind = chance.choice(KINDS)
    if kind == "untouched":
        return untouched
    wrong = _mutants(solved) if kind == "mistaken" else ()
    return chance.choice(wrong) if wrong else solved


@cache
def _mutants(solved: str) -> tuple[str, ...]:
    """An answer with one small mistake, for each there is."""
    return tuple(small_mistakes(solved))


@cache
def _typical() -> dict[str, list[str]]:
    """What learners are known to get wrong, by answer; the tests hold the checks to the same list."""
    found: dict[str, list[str]] = {}
    for check, _, text, _ in runpy.run_path(str(TYPICAL))["WRONG"] if TYPICAL.exists() else ():
        found.setdefault(check.replace("-check", "-answer"), []).append(text.strip("\n"))
    return found


class Answerer:
    """Fills in an assignment.

    Args:
        assignment: its name.

    Raises:
        ValueError: for an assignment that is not there.
    """

    def __init__(self, assignment: str):
        master = master_of(assignment)
        self._released = nbformat.read(release.released(master), as_version=4)
        cells = nbformat.read(master, as_version=4).cells
        self._solved = {cell.id: MARKS.sub("", cell.source).strip("\n") for cell in cells}

    def notebook(self, chance: random.Random, skill: float) -> tuple[NotebookNode, dict[str, str]]:
        """A notebook, and of each answer of what kind it is.

        Args:
            chance: where everything is drawn from.
            skill: from 0 to 1; the rest of the answers is wrong or missing.
        """
        notebook, kinds = copy.deepcopy(self._released), {}
        for cell in notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                draw = self._code if cell.cell_type == "code" else self._words
                kinds[cell.id], cell.source = draw(chance, skill, cell)
        return notebook, kinds

    def _code(self, chance: random.Random, skill: float, cell: NotebookNode) -> tuple[str, str]:
        solved = self._solved[cell.id]
        typical, small = _typical().get(cell.id), _mutants(solved)
        well, badly = 0.2 + 0.7 * skill, 0.8 - 0.7 * skill
        weights = {"right": well, "typical": 0.4 * badly, "mistaken": 0.3 * badly, "untouched": 0.3 * badly}
        kind = chance.choices(list(weights), list(weights.values()))[0]
        if kind == "typical" and not typical:
            kind = "mistaken"
        if kind == "mistaken" and not small:
            kind = "right"
        texts = {"right": (solved,), "typical": typical, "mistaken": small, "untouched": (cell.source,)}
        text = chance.choice(texts[kind])
        return kind, renamed(reworded(text, chance), chance, 0.5) if kind == "right" else text

    def _words(self, chance: random.Random, skill: float, cell: NotebookNode) -> tuple[str, str]:
        """The master's answer, some of its sentences, or nothing."""
        solved = self._solved[cell.id]
        kind = chance.choices(("right", "short", "untouched"), (skill, 0.5, 0.6 * (1 - skill)))[0]
        if kind == "untouched":
            return kind, chance.choice((cell.source, ""))
        sentences = re.split(r"(?<=\.)\s+", solved)
        if kind == "right" or len(sentences) == 1:
            return "right", solved
        kept = sorted(chance.sample(range(len(sentences)), chance.randrange(1, len(sentences))))
        return kind, " ".join(sentences[number] for number in kept)
