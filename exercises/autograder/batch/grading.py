"""Submissions of a course on their way to marks: run where needed, kept, and entered by this process alone.

The order of writing is what makes a batch safe to stop: first what a grading gave goes to the journal, then the
graded notebook to its place, then the marks to the gradebook in one transaction, at last the record that says so.
Whatever is missing at the end of this row, the next batch does again, from where it was.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from traitlets.config import Config

from exercises import release
from exercises.autograder import result as results
from exercises.autograder.batch import stopping
from exercises.autograder.batch.journal import Journal
from exercises.autograder.batch.pool import Pool, outcomes
from exercises.autograder.course.assignments import Assignments
from exercises.autograder.course.collect import Origin, collect, origin
from exercises.autograder.course.folders import Course
from exercises.autograder.course.gradebook import Entry, Writer
from exercises.autograder.course.roster import known
from exercises.autograder.execute import IsolatedExecute
from exercises.autograder.intake import Quarantined, Received
from exercises.autograder.result import Flag, Result
from exercises.autograder.running.job import AFTERWARDS, LAST, Job, Outcome
from transformer_lessons.data.files import replacing

__all__ = ["Grading", "Submission"]

Submission = tuple[str, str]  # student and assignment
STEPS = {
    "sanitize_preprocessors": ("ClearOutput", "DeduplicateIds", "OverwriteKernelspec", "RestoreTests"),
    "autograde_preprocessors": (
        *("IsolatedExecute", "IgnorePattern", "ClearMetadataPreprocessor", "LimitOutput"),
        *("SaveAutoGrades", "AssignLatePenalties", "InertNotebook"),
    ),
}


class Grading:
    """A course while it is graded; a context manager that closes its gradebook.

    Args:
        course: its folder.
        isolated: False runs the students' code unprotected, and marks every grade so.
        changes: of nbgrader's configuration.

    Raises:
        ValueError: if nbgrader is configured to do other steps than these.
    """

    def __init__(self, course: Course, *, isolated: bool = True, changes: Config | None = None):
        self.course = course
        config = Config(IsolatedExecute=Config(isolation="full" if isolated else "none"))
        config.CourseDirectory.submitted_directory = str(course.folder / "received")
        config.IsolatedExecute.records = str(course.folder / "records")
        config.merge(changes or Config())
        api = release.course(course.folder, config)
        _check_steps(api.config)
        self.assignments = Assignments(course, api)
        self._execution = IsolatedExecute(config=api.config)
        self._told = {one.__name__: _plain(api.config[one.__name__]) for one in (*AFTERWARDS, LAST)}
        self._journal, self._writer = Journal(course.journal), Writer(course.gradebook, api.config)

    def __enter__(self) -> "Grading":
        return self

    def __exit__(self, *_) -> None:
        self._writer.close()

    def collect(self, source: Path) -> tuple[list[Received], list[Quarantined]]:
        """Take submissions in; what was taken in, without the notebooks, and what was put aside."""
        released, earlier = self.assignments.released, self.assignments.earlier()
        return collect(source, self.course, released, earlier, known(self.course))

    def job(self, student: str, assignment: str) -> Job:
        """What is to be done for a submission that was taken in."""
        return self._job(self.course.received(student, assignment).read_text(encoding="utf-8"), assignment)

    def _job(self, text: str, assignment: str) -> Job:
        return Job(
            text,
            self.assignments.master(assignment),
            self._execution.limits(),
            self._execution.isolation,
            self._told,
        )

    def check_masters(self, names: Iterable[str], pool: Pool) -> None:
        """Have the masters graded as if a student had handed them in; a class should not find out first.

        Raises:
            ValueError: if one does not earn all its points on this machine.
        """
        for name in sorted(set(names)):
            text = nbformat.writes(nbformat.read(self.assignments.masters[name], as_version=4))
            job = replace(self._job("", name), notebook=text)
            outcome = self._journal.find(job.key)
            if outcome is None:
                [(_, outcome)] = outcomes(pool, iter([job]))
                if isinstance(outcome, Exception):
                    raise outcome
                self._journal.keep(job.key, outcome)
            lost = [cell.cell for cell in outcome.result.cells if cell.earned < cell.worth]
            if lost:
                raise ValueError(
                    f"{name}: expected its master to earn all points, got {outcome.result.earned:g} of "
                    f"{outcome.result.worth:g} (less in {', '.join(lost)}): no student is graded like that"
                )

    def state(self, student: str, assignment: str) -> str:
        """Of a submission that was taken in: "graded" as it is; "waiting" if it is new, or was handed in anew;
        "behind" if an earlier master or grader graded it."""
        path = self.course.record(student, assignment)
        if not path.exists():
            return "waiting"
        before, job = results.read(path), self.job(student, assignment)
        if before.key == job.key:
            return "graded"
        return "behind" if before.submission == job.submission else "waiting"

    def outcomes(
        self, wanted: Iterable[Submission], pool: Pool
    ) -> Iterator[tuple[Submission, Outcome | Exception]]:
        """What each submission's grading gives, from the journal where it is there, else from the pool.

        A pitfall: they come in no particular order.
        """
        alike: dict[str, list[Submission]] = {}
        for one in wanted:
            alike.setdefault(self.job(*one).key, []).append(one)
        for key in list(alike):
            if outcome := self._journal.find(key):
                yield from ((one, outcome) for one in alike.pop(key))
        jobs = (self.job(*those[0]) for those in list(alike.values()))
        for job, outcome in outcomes(pool, jobs):
            if isinstance(outcome, Outcome):
                self._journal.keep(job.key, outcome)
            stopping.check()
            yield from ((one, outcome) for one in alike[job.key])

    def found(self, key: str) -> Outcome | None:
        """What a grading gave that is in the journal."""
        return self._journal.find(key)

    def enter(self, student: str, assignment: str, outcome: Outcome) -> Result:
        """Give a student what their submission got; marks of a person stay."""
        known = origin(self.course, student, assignment)
        result = replace(
            outcome.result,
            student=student,
            assignment=assignment,
            repairs=known.repairs,
            path=known.path,
            timestamp=known.timestamp,
            flags=(*outcome.result.flags, *_flags(known)),
        )
        path = self.course.autograded(student, assignment)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(outcome.notebook, encoding="utf-8")
        new = {
            name for name, text in result.answers.items() if self._seen(student, assignment).get(name) != text
        }
        unanswered = frozenset(outcome.unanswered)
        self._writer.enter(Entry(student, assignment, outcome.scores, unanswered, new, known.timestamp))
        results.write(self.course.record(student, assignment), result)
        return result

    def _seen(self, student: str, assignment: str) -> dict[str, str]:
        """The answers that a person may have marked, as digests."""
        path = self.course.record(student, assignment)
        return results.read(path).answers if path.exists() else {}


def _flags(known: Origin) -> list[Flag]:
    """What a person should know of how a submission came in."""
    late = [Flag("late", "Canvas marks it as handed in late.")] if known.late else []
    return [*late, *(Flag("repair", sentence) for sentence in known.repairs)]


def _check_steps(config: Config) -> None:
    """Whoever has nbgrader do something else would wait for it here in vain."""
    for name, expected in STEPS.items():
        found = tuple(one.__name__ for one in config.Autograde[name])
        if found != expected:
            raise ValueError(
                f"Autograde.{name}: expected {', '.join(expected)}, got {', '.join(found)}: "
                "with other steps, grade by `nbgrader autograde`"
            )


def _plain(section: Any) -> dict:
    """A part of nbgrader's configuration without what is lazy in it."""
    return {
        name: value for name, value in dict(section).items() if isinstance(value, str | int | float | list)
    }
