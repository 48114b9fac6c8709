"""Do the autograder and plain nbgrader give the same points? ``python -m benchmarks.agreement`` (half an hour).

Honest submissions, as `exercises.autograder.rehearse` makes them: answers that are right, untouched, or known
mistakes. Each is graded by the boxed processes and by nbgrader as it comes;
the CPU seconds of both, all processes included, are a ratio of one run. Then the same for one assignment, all
answers right, several times. (``pytest tests/test_autograder_agreement.py`` compares the first two.)

Writes ``transformer_lessons/records/agreement.json``.
"""

import json
import logging
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import nbformat
import psutil
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook
from tqdm import tqdm
from traitlets.config import Config

from benchmarks.measuring import program, write
from exercises import release
from exercises.autograder.rehearse import students
from exercises.autograder.running import job
from exercises.autograder.running.notebook import master_of, worker
from transformer_lessons.tools.submission import grade_id, is_ungraded

ALL = 200
PASSING, TIMES = "ps01_embeddings_attention", 20  # the assignment whose cost is measured when all is right
PLAIN = Config()  # nbgrader's own
PLAIN.Autograde.exporter_class = NotebookExporter
PLAIN.Execute.timeout = 30


def passing(assignment: str) -> nbformat.NotebookNode:
    """A submission with the master's answers in code."""
    master = release.HERE / "source" / assignment / f"{assignment}.ipynb"
    solved, notebook = (nbformat.read(path, as_version=4) for path in (master, release.released(master)))
    code = {cell.id: cell.source for cell in solved.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = code.get(cell.id, cell.source)
    return notebook


def submissions(number: int) -> list[tuple[str, nbformat.NotebookNode]]:
    """So many honest ones, and of which assignment, in turn; the same number gives the same."""
    names = [master.stem for master in release.masters()]
    classes = [[(name, one) for _, one in students(number, name) if one] for name in names]
    return list(chain.from_iterable(zip(*classes, strict=True)))[:number]


def cpu_seconds(*others: psutil.Process) -> float:
    """Of this process and others, and of all their children that have ended."""
    return sum(sum(process.cpu_times()[:4]) for process in (psutil.Process(), *others))


class Course:
    """A course of plain nbgrader in a folder of its own, which must not be there yet; it says errors only."""

    def __init__(self, root: Path):
        logging.getLogger("traitlets").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        root.mkdir(parents=True)
        self._root, self._api = root, release.course(root, PLAIN)
        self.gradebook = f"sqlite:///{root / 'gradebook.db'}"

    def grade(self, student: str, assignment: str, notebook: nbformat.NotebookNode) -> tuple[dict, float]:
        """Points by test, and CPU seconds."""
        if not (self._root / "release" / assignment).exists():
            self._api.generate_assignment(assignment, force=True)
        folder = self._root / "submitted" / student / assignment
        folder.mkdir(parents=True)
        # Experiments take minutes, and only plain nbgrader would run them.
        notebook.cells = [cell for cell in notebook.cells if not is_ungraded(grade_id(cell) or "")]
        nbformat.write(notebook, folder / f"{assignment}.ipynb")
        before = cpu_seconds()
        done = self._api.autograde(assignment, student)
        spent = cpu_seconds() - before
        assert done["success"], done.get("error") or done.get("log")
        with Gradebook(self.gradebook) as gradebook:
            found = gradebook.find_submission_notebook(assignment, assignment, student).grades
            return {grade.name: grade.auto_score for grade in found}, spent


def boxed(gradebook: str, assignment: str, notebook: nbformat.NotebookNode) -> tuple[dict, float]:
    """Points by test, and CPU seconds, without the start of the process that forks the others and lives on."""
    forking = worker(threading.get_ident())
    forking._start()
    forker = psutil.Process(forking._process.pid)
    before = cpu_seconds(forker)
    outcome = job.run(job.Job(nbformat.writes(notebook), master_of(gradebook, assignment)))
    return outcome.scores, cpu_seconds(forker) - before


def graded_twice(submissions: Iterable[tuple], folder: Path) -> Iterator[dict]:
    """Grade assignments and notebooks both ways; of each, what differs (ours, theirs) and what it took."""
    course = Course(folder)
    for number, one in enumerate(tqdm(submissions, unit="submission", disable=None)):
        theirs, their_seconds = course.grade(f"student-{number}", *one)
        ours, our_seconds = boxed(course.gradebook, *one)
        by_test = {test: (ours.get(test), theirs.get(test)) for test in sorted(ours.keys() | theirs.keys())}
        yield {
            "submission": number,
            "tests": len(ours),
            "cpu_seconds": {"autograder": our_seconds, "nbgrader": their_seconds},
            "different": {test: both for test, both in by_test.items() if both[0] != both[1]},
        }


def spent(found: list[dict]) -> dict:
    """What it took on average, and the ratio."""
    took = {name: sum(one["cpu_seconds"][name] for one in found) for name in ("autograder", "nbgrader")}
    return {
        "cpu_seconds_each": {name: round(value / len(found), 2) for name, value in took.items()},
        "ratio": round(took["nbgrader"] / took["autograder"], 2),
    }


def main() -> None:
    """Compare, print what differs, and write the record."""
    program("agreement", __doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = list(graded_twice(submissions(ALL), Path(name) / "mixed"))
        right = list(graded_twice([(PASSING, passing(PASSING))] * TIMES, Path(name) / "passing"))
    result = {
        "submissions": len(found),
        "tests": sum(one["tests"] for one in found),
        "different": {str(one["submission"]): one["different"] for one in found if one["different"]},
        **spent(found),
        "passing": {"assignment": PASSING, "times": TIMES, **spent(right)},
    }
    print(json.dumps(result, indent=1))
    write("agreement", **result)


if __name__ == "__main__":
    main()
