"""Do the autograder and plain nbgrader give the same points? ``python -m benchmarks.agreement`` (half an hour).

Honest submissions come from `exercises.autograder.rehearse`: answers that are right, untouched, or known
mistakes. Each is graded in the sandbox and by unmodified nbgrader; the ratio of CPU seconds, all processes
included, is taken within one run. The same is then done several times for one assignment with right answers
only. (``pytest tests/test_autograder_agreement.py`` compares the first one, with ``--full`` all.)

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
PASSING, TIMES = "ps01_embeddings_attention", 20  # the assignment graded with right answers only
PLAIN = Config()  # of plain nbgrader
PLAIN.Autograde.exporter_class = NotebookExporter
PLAIN.Execute.timeout = 30


def passing_submission(assignment: str) -> nbformat.NotebookNode:
    """A submission with the code answers of the master notebook."""
    master = release.HERE / "source" / assignment / f"{assignment}.ipynb"
    solved, notebook = (nbformat.read(path, as_version=4) for path in (master, release.released(master)))
    code = {cell.id: cell.source for cell in solved.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = code.get(cell.id, cell.source)
    return notebook


def submissions(number: int) -> list[tuple[str, nbformat.NotebookNode]]:
    """`number` honest submissions with their assignments, which alternate; always the same ones."""
    names = [master.stem for master in release.masters()]
    classes = [[(name, one) for _, one in students(number, name) if one] for name in names]
    return list(chain.from_iterable(zip(*classes, strict=True)))[:number]


def cpu_seconds(*others: psutil.Process) -> float:
    """The CPU seconds of this process and others, and of all their children that have ended."""
    return sum(sum(process.cpu_times()[:4]) for process in (psutil.Process(), *others))


class Course:
    """A plain nbgrader course in a new folder, which must not exist yet; it logs errors only."""

    def __init__(self, root: Path):
        logging.getLogger("traitlets").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        root.mkdir(parents=True)
        self._root, self._api = root, release.course(root, PLAIN)
        self.gradebook = f"sqlite:///{root / 'gradebook.db'}"

    def grade(self, student: str, assignment: str, notebook: nbformat.NotebookNode) -> tuple[dict, float]:
        """The points by test, and the CPU seconds."""
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


def grade_in_sandbox(gradebook: str, assignment: str, notebook: nbformat.NotebookNode) -> tuple[dict, float]:
    """The points by test, and the CPU seconds without starting the process that forks the others."""
    forking = worker(threading.get_ident())
    forking._start()
    forker = psutil.Process(forking._process.pid)
    before = cpu_seconds(forker)
    outcome = job.run(job.Job(nbformat.writes(notebook), master_of(gradebook, assignment)))
    return outcome.scores, cpu_seconds(forker) - before


def graded_twice(submissions: Iterable[tuple], folder: Path) -> Iterator[dict]:
    """The differences (ours, theirs) and CPU seconds of each submission, graded both ways."""
    course = Course(folder)
    for number, one in enumerate(tqdm(submissions, unit="submission", disable=None)):
        theirs, their_seconds = course.grade(f"student-{number}", *one)
        ours, our_seconds = grade_in_sandbox(course.gradebook, *one)
        by_test = {test: (ours.get(test), theirs.get(test)) for test in sorted(ours.keys() | theirs.keys())}
        yield {
            "submission": number,
            "tests": len(ours),
            "cpu_seconds": {"autograder": our_seconds, "nbgrader": their_seconds},
            "different": {test: both for test, both in by_test.items() if both[0] != both[1]},
        }


def average_cpu_seconds(found: list[dict]) -> dict:
    """The average CPU seconds, and their ratio."""
    took = {name: sum(one["cpu_seconds"][name] for one in found) for name in ("autograder", "nbgrader")}
    return {
        "cpu_seconds_each": {name: round(value / len(found), 2) for name, value in took.items()},
        "ratio": round(took["nbgrader"] / took["autograder"], 2),
    }


if __name__ == "__main__":
    program("agreement", __doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = list(graded_twice(submissions(ALL), Path(name) / "mixed"))
        right = list(graded_twice([(PASSING, passing_submission(PASSING))] * TIMES, Path(name) / "passing"))
    result = {
        "submissions": len(found),
        "tests": sum(one["tests"] for one in found),
        "different": {str(one["submission"]): one["different"] for one in found if one["different"]},
        **average_cpu_seconds(found),
        "passing": {"assignment": PASSING, "times": TIMES, **average_cpu_seconds(right)},
    }
    print(json.dumps(result, indent=1))
    write("agreement", **result)
