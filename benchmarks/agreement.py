"""Do the autograder and plain nbgrader give the same points? ``python -m benchmarks.agreement`` (200: an hour).

Honest submissions, each a mix: answers that are right, untouched, or right but for one small mistake, as
`benchmarks.mutations` makes them. Each is graded by the boxed processes and by nbgrader's own kernel, through
nbgrader both times; the CPU seconds of both, all processes included, are a ratio of one run.

Writes ``transformer_lessons/records/agreement.json`` if all submissions were asked for.
"""

import argparse
import logging
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import nbformat
import torch
from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbgrader import preprocessors as nbgraders
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from tqdm import tqdm
from traitlets.config import Config

from benchmarks.mutations import mutants
from exercises import release
from exercises.autograder.confine import Limits
from exercises.autograder.execute import worker
from exercises.autograder.result import read
from transformer_lessons.files import write_json
from transformer_lessons.runs import versions

RECORD = release.HERE.parent / "transformer_lessons" / "records" / "agreement.json"
ALL = 200
KINDS = ("right", "right", "untouched", "mistaken")  # of an answer, equally likely
PLAIN = Config()
PLAIN.Autograde.autograde_preprocessors = [
    nbgraders.Execute,
    nbgraders.IgnorePattern,
    ClearMetadataPreprocessor,
    nbgraders.LimitOutput,
    nbgraders.SaveAutoGrades,
    nbgraders.AssignLatePenalties,
    nbgraders.CheckCellMetadata,
]
PLAIN.Execute.timeout = 30


def submission(number: int) -> tuple[str, nbformat.NotebookNode]:
    """An assignment, and an honest submission of it; the same number gives the same."""
    masters = release.masters()
    master = masters[number % len(masters)]
    chance = random.Random(number)
    solved = {cell.id: cell.source for cell in nbformat.read(master, as_version=4).cells}
    notebook = nbformat.read(release.released(master), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = _answer(chance, solved[cell.id], cell.source)
    return master.parent.name, notebook


def _answer(chance: random.Random, solved: str, untouched: str) -> str:
    kind = chance.choice(KINDS)
    if kind == "untouched":
        return untouched
    wrong = list(mutants("answer", solved)) if kind == "mistaken" else []
    return chance.choice(wrong).source if wrong else solved


def cpu_seconds() -> float:
    """Of this process and of all its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


class Course:
    """A course in a folder of its own.

    Args:
        root: the folder.
        changes: of nbgrader's configuration.
    """

    def __init__(self, root: Path, changes: Config | None = None):
        root.mkdir()
        self._root, self._api = root, release.course(root, changes)
        self._known: set[str] = set()

    def prepare(self, assignment: str) -> NbGraderAPI:
        """nbgrader, with the assignment in its gradebook."""
        if assignment not in self._known:
            self._api.generate_assignment(assignment, force=True)
            self._known.add(assignment)
        return self._api

    def grade(self, student: str, assignment: str, notebook: nbformat.NotebookNode) -> tuple[dict, float]:
        """Points by test, and CPU seconds, without those of a forking process that lives on."""
        api = self.prepare(assignment)
        folder = self._root / "submitted" / student / assignment
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{assignment}.ipynb")
        before = cpu_seconds()
        done = api.autograde(assignment, student)
        spent = cpu_seconds() - before
        assert done["success"], done.get("error") or done.get("log")
        with Gradebook(f"sqlite:///{self._root / 'gradebook.db'}") as gradebook:
            found = gradebook.find_submission_notebook(assignment, assignment, student).grades
            return {grade.name: grade.auto_score for grade in found}, spent

    def boxed_seconds(self, student: str, assignment: str) -> float:
        """What the forked processes took, which the forking one counts."""
        return read(self._root / "records" / student / assignment / f"{assignment}.json").cpu_seconds


def compare(numbers: range, folder: Path) -> dict:
    """Grade the submissions of these numbers both ways."""
    ours, plain = Course(folder / "ours"), Course(folder / "plain", PLAIN)
    tests, different, spent, wall = 0, [], {"ours": 0.0, "plain": 0.0}, time.monotonic()
    for number in tqdm(numbers, unit="submission", disable=not sys.stderr.isatty()):
        assignment, notebook = submission(number)
        student = f"student-{number}"
        here, own = ours.grade(student, assignment, notebook)
        there, other = plain.grade(student, assignment, notebook)
        spent["ours"] += own + ours.boxed_seconds(student, assignment)
        spent["plain"] += other
        tests += len(here)
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                found = {"autograder": here.get(name), "nbgrader": there.get(name)}
                different.append({"submission": number, "test": name, **found})
    return {
        "submissions": len(numbers),
        "tests": tests,
        "different": different,
        "cpu_seconds": {name: round(value, 1) for name, value in spent.items()},
        "ratio": round(spent["plain"] / spent["ours"], 2),
        "minutes": round((time.monotonic() - wall) / 60, 1),
    }


def main() -> int:
    """Compare, print what differs, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--submissions", type=int, default=ALL, metavar="N")
    number = parser.parse_args().submissions
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    list(worker(Limits(), True).grade([]))  # started before anything is counted
    with tempfile.TemporaryDirectory() as folder:
        found = compare(range(number), Path(folder))
    print(*found.pop("different") or ["all points are the same"], sep="\n") if number != ALL else None
    print(found)
    if number == ALL:
        write_json(RECORD, {**found, **versions(torch.device("cpu"))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
