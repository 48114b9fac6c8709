"""A course's submissions on their way to marks: run where needed, stored, and entered by this process alone.

The order of writing is what makes a batch safe to stop: first an outcome goes to the journal, then the graded
notebook to its place, then the marks to the gradebook in one transaction, and finally the record that says
so. The next batch does again whatever is missing at the end of this row, from where it was.
"""

import hashlib
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import MissingEntry

from exercises import release
from exercises.autograder import result as results
from exercises.autograder.batch.pool import Pool, run_jobs
from exercises.autograder.box.confine import Limits
from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import Writer, marks
from exercises.autograder.course.roster import known_ids
from exercises.autograder.intake import Arrival, ingest
from exercises.autograder.intake.repair import Catalogue
from exercises.autograder.result import Flag, Result
from exercises.autograder.running.job import Job, Outcome
from exercises.autograder.running.notebook import MasterCell, master_of
from transformer_lessons.data.files import read_json, write_json, write_text

Submission = tuple[str | None, str]  # student, None for the master itself, and assignment
_interrupted = threading.Event()


def handle_interrupts() -> None:
    """Keep Ctrl-C from getting lost: Python drops what a signal raises while it disposes of an object."""

    def interrupt(*_: object) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    _interrupted.clear()
    signal.signal(signal.SIGINT, interrupt)


class Grading:
    """A course while it is graded; not isolated, students' code runs unprotected, and every grade says so."""

    def __init__(self, course: Course, *, isolated: bool = True):
        self.course, self._api = course, release.course(course.folder)
        self.masters = {path.parent.name: path for path in release.masters()}
        self._known: dict[str, tuple[MasterCell, ...]] = {}
        self.limits = Limits(**self._api.config.get("Limits", {}))
        self._isolation = "full" if isolated else "none"
        self._writer = Writer(course.gradebook, self._api.config)
        # An assignment's marks by student, read once until others are entered
        self.marks = cache(lambda name: {mark.student: mark for mark in marks(course.gradebook, name)})

    def close(self) -> None:
        """Close the gradebook."""
        self._writer.close()

    @cached_property
    def released(self) -> dict[str, NotebookNode]:
        """The assignments as they are handed out now, by name."""
        return {name: nbformat.read(release.released(one), 4) for name, one in self.masters.items()}

    def master(self, name: str) -> tuple[MasterCell, ...]:
        """The current cells of an assignment; if they have changed, the gradebook is told.

        Raises:
            ValueError: if nbgrader refuses the master: once there are marks, no cell may come or go.
        """
        if name not in self._known:
            path = self.course.folder / "released" / name / "master.sha256"
            if not path.exists() or path.read_text() != self._digest(name):
                self._update_gradebook(name)
                write_text(path, self._digest(name))
            self._known[name] = master_of(self.course.gradebook, name)
        return self._known[name]

    def _digest(self, name: str) -> str:
        """A digest of the master, and of what the gradebook has of it, which may be nothing or from a backup."""
        found = self.masters[name].read_bytes()
        with suppress(MissingEntry):
            found += repr(master_of(self.course.gradebook, name)).encode()
        return hashlib.sha256(found).hexdigest()

    def _update_gradebook(self, name: str) -> None:
        """Have nbgrader read the master, and store what is handed out now."""
        try:
            release.generate(self.masters[name], self._api)
        except RuntimeError as error:
            if _interrupted.is_set():  # nbgrader takes Ctrl-C for an error
                raise KeyboardInterrupt from None
            last = str(error).strip().splitlines()[-1]
            refused = re.search("Cannot add or remove cells[^\n]*", str(error))
            why = f"{refused[0]}; make this change in a copy of another name" if refused else last
            raise ValueError(f"{name}: nbgrader refuses its master: {why}") from error
        text = release.released(self.masters[name]).read_text(encoding="utf-8")
        version = hashlib.sha256(text.encode()).hexdigest()[:12]
        write_text(self.course.folder / "released" / name / f"{version}.ipynb", text)

    def collect(self, source: Path) -> tuple[list[Arrival], list[Arrival]]:
        """Take submissions in; each replaces an earlier one of the same student and assignment.

        Returns:
            what was taken in, without the notebooks, and what was put aside.
        """
        received, quarantined = [], []
        versions = {name: [now, *self.course.versions(name)] for name, now in self.released.items()}
        catalogue = Catalogue(versions)
        for arrival in ingest(source, catalogue, known_ids(self.course)):
            if not arrival.reason and arrival.is_blank and self.course.has_other(arrival):
                arrival.quarantine("Nothing in it is answered; what was handed in before counts.")
            if arrival.reason:
                quarantined.append(arrival)
            else:
                self.course.keep(arrival)
                arrival.notebook = None
                received.append(arrival)
        self.course.list_quarantined(source, received, quarantined)
        return received, quarantined

    def job(self, student: str | None, assignment: str) -> Job:
        """The job for a submission that was taken in; the master itself has no student."""
        if student is None:
            text = nbformat.writes(nbformat.read(self.masters[assignment], as_version=4))
        else:
            text = self.course.received(student, assignment).read_text(encoding="utf-8")
        return Job(text, self.master(assignment), self.limits, self._isolation)

    def check_masters(self, names: Iterable[str], pool: Pool) -> None:
        """Grade the masters as if a student had handed them in; a class should not find out first.

        Raises:
            ValueError: if one does not earn all its points on this machine.
        """
        for (_, name), outcome in self.outcomes([(None, name) for name in sorted(set(names))], pool):
            if isinstance(outcome, Exception):
                raise outcome
            if lost := [cell.cell for cell in outcome.result.cells if cell.earned < cell.worth]:
                raise ValueError(
                    f"{name}: expected its master to earn all points, got {outcome.result.earned:g} of "
                    f"{outcome.result.worth:g} (less in {', '.join(lost)}): no submission was graded"
                )

    def state(self, student: str, assignment: str) -> str:
        """The state of a submission: "graded" as it is now; "stale" if an earlier master or grader graded it;
        "waiting" if it is new, was handed in again, or is not in the gradebook, which may be a backup;
        "left" if it is new, but there is no master of this name any more."""
        path = self.course.record(student, assignment)
        if assignment not in self.masters:
            return "graded" if path.exists() else "left"
        job = self.job(student, assignment)
        mark = self.marks(assignment).get(student)
        before = results.read(path) if path.exists() and mark and mark.submitted else None
        if not before or before.submission != job.submission:
            return "waiting"
        if before.key != job.key:
            return "stale"
        same = all(mark.cells[cell.cell].auto == cell.earned for cell in before.cells)
        return "graded" if same else "waiting"

    def outcomes(
        self, wanted: Iterable[Submission], pool: Pool
    ) -> Iterator[tuple[Submission, Outcome | Exception]]:
        """The outcome of each submission's grading, from the journal if it is there, else from the pool.

        A pitfall: they come in no particular order.
        """
        alike: dict[str, list[Submission]] = {}
        for one in wanted:
            alike.setdefault(self.job(*one).key, []).append(one)
        for key in list(alike):
            if outcome := self.in_journal(key):
                yield from ((one, outcome) for one in alike.pop(key))
        jobs = (self.job(*those[0]) for those in list(alike.values()))
        for job, outcome in run_jobs(pool, jobs):
            if isinstance(outcome, Outcome):
                write_json(self._entry(job.key), asdict(outcome))
            if _interrupted.is_set():
                raise KeyboardInterrupt
            yield from ((one, outcome) for one in alike[job.key])

    # The journal: outcomes by what they depend on. An entry is never changed.

    def in_journal(self, key: str) -> Outcome | None:
        """A grading's outcome, or None; a file that cannot be read counts as missing, and is replaced."""
        try:
            return results.rebuilt(Outcome, read_json(self._entry(key)))
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def _entry(self, key: str) -> Path:
        return self.course.folder / "journal" / key[:2] / f"{key}.json"

    def enter(self, student: str, assignment: str, outcome: Outcome) -> Result:
        """Enter a student's outcome; marks of a person stay."""
        about, record = self.course.origin(student, assignment), self.course.record(student, assignment)
        result = replace(outcome.result, student=student, assignment=assignment, **about)
        write_text(self.course.autograded(student, assignment), outcome.notebook)
        before = results.read(record) if record.exists() else Result(student, assignment)
        told = [flag for flag in before.flags if flag.kind == "replaced"]
        if before.submission != result.submission:
            text = f"It replaces a submission that earned {before.earned:g} points by tests: {before.path}."
            told = [Flag("replaced", text)] if before.earned > result.earned else []
        result = replace(result, flags=(*result.flags, *told))
        # A person may have marked what was there before.
        new = {name for name, text in result.answers.items() if before.answers.get(name) != text}
        self._writer.enter(replace(outcome, result=result), new)
        self.marks.cache_clear()
        write_json(record, asdict(result))
        return result
