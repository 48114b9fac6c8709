"""Do the autograder and plain nbgrader give the same points? ``python -m benchmarks.agreement`` (half an hour).

Honest submissions, each a mix: answers that are right, untouched, or right but for one small mistake, as
`exercises.autograder.rehearse` makes them. Each is graded by the boxed processes and by nbgrader's own kernel,
through nbgrader both times; the CPU seconds of both, all processes included, are a ratio of one run. Then the
same for one assignment, all answers right, several times.

Goes on where it was stopped, and writes ``transformer_lessons/records/agreement.json`` when it has all.
"""

import argparse
import json
import logging
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat
import torch
from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbgrader import preprocessors as nbgraders
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from tqdm import tqdm, trange
from traitlets.config import Config

from exercises import release
from exercises.autograder.box.confine import Limits
from exercises.autograder.rehearse import passing, submission
from exercises.autograder.result import read
from exercises.autograder.running.notebook import worker
from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

RECORD = release.HERE.parent / "transformer_lessons" / "records" / "agreement.json"
JOURNAL = release.HERE.parent / "runs" / "agreement" / "journal.jsonl"
ALL = 200
PASSING, TIMES = "ps03_attention", 20  # the assignment whose cost is measured when all is right
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


class Both:
    """The same submissions to two courses, one graded by the autograder and one by plain nbgrader.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path):
        self._ours, self._plain = Course(folder / "ours"), Course(folder / "plain", PLAIN)

    def grade(self, student: str, assignment: str, notebook: nbformat.NotebookNode) -> dict:
        """What differs, and what it took."""
        here, own = self._ours.grade(student, assignment, notebook)
        there, other = self._plain.grade(student, assignment, notebook)
        boxed = self._ours.boxed_seconds(student, assignment)
        names = [name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
        return {
            "assignment": assignment,
            "tests": len(here),
            "cpu_seconds": {"autograder": round(own + boxed, 3), "nbgrader": round(other, 3)},
            "different": {
                name: {"autograder": here.get(name), "nbgrader": there.get(name)} for name in names
            },
        }


def compare(numbers: Iterable[int], folder: Path) -> Iterator[dict]:
    """Grade the submissions of these numbers both ways; of each, what differs and what it took."""
    both = Both(folder)
    for number in numbers:
        yield {"submission": number, **both.grade(f"student-{number}", *submission(number))}


def cost(folder: Path, times: int = TIMES) -> dict:
    """What it takes, on average, to grade `PASSING` when all answers are right."""
    both, notebook = Both(folder), passing(PASSING)
    found = [both.grade(f"student-{n}", PASSING, notebook) for n in trange(times, unit="submission")]
    return {"assignment": PASSING, "times": times, **_spent(found)}


def _spent(found: list[dict]) -> dict:
    spent = {name: sum(one["cpu_seconds"][name] for one in found) for name in ("autograder", "nbgrader")}
    return {
        "cpu_seconds_each": {name: round(value / len(found), 2) for name, value in spent.items()},
        "ratio": round(spent["nbgrader"] / spent["autograder"], 2),
    }


def summary(found: list[dict]) -> dict:
    """The record of many comparisons."""
    return {
        "submissions": len(found),
        "tests": sum(one["tests"] for one in found),
        "different": {str(one["submission"]): one["different"] for one in found if one["different"]},
        **_spent(found),
    }


def main() -> int:
    """Compare, print what differs, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--submissions", type=int, default=ALL, metavar="N")
    parser.add_argument("--again", action="store_true", help="forget what was compared before")
    options = parser.parse_args()
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    JOURNAL.parent.mkdir(parents=True, exist_ok=True)
    JOURNAL.unlink(missing_ok=True) if options.again else None
    found = [json.loads(line) for line in JOURNAL.open()] if JOURNAL.exists() else []
    numbers = sorted(set(range(options.submissions)) - {one["submission"] for one in found})
    list(worker(Limits(), True).grade([]))  # started before anything is counted
    with tempfile.TemporaryDirectory() as folder, JOURNAL.open("a") as journal:
        (Path(folder) / "mixed").mkdir()
        for one in tqdm(compare(numbers, Path(folder) / "mixed"), total=len(numbers), unit="submission"):
            found.append(one)
            journal.write(json.dumps(one) + "\n")
            journal.flush()
        (Path(folder) / "passing").mkdir()
        result = summary(found) | {"passing": cost(Path(folder) / "passing")}
    print(json.dumps(result, indent=1))
    if len(found) >= ALL:
        write_json(RECORD, {**result, **versions(torch.device("cpu"))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
