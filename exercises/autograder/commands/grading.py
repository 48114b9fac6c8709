"""The commands that change a course: from the assignment to the marks."""

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from nbgrader.api import Gradebook

from exercises.autograder import doctor as doctors
from exercises.autograder import rehearse as rehearsals
from exercises.autograder.batch import grade as grades
from exercises.autograder.batch.pool import DaskPool, ProcessPool
from exercises.autograder.commands import INCOMPLETE, ME, OK, CommandOutput, course_in, failures, select_names
from exercises.autograder.course.roster import Enrolled, enrol, read_roster
from exercises.autograder.intake import in_utc
from exercises.autograder.rehearse import KEY, TEMPLATE
from exercises.autograder.result import Result
from exercises.release import masters
from transformer_lessons.data.files import read_json


def doctor(options: argparse.Namespace) -> CommandOutput:
    """Report whether students' code can be confined on this machine."""
    if missing := doctors.problem():
        said = [missing, doctors.ADVICE, "", "Learners' code CANNOT be confined here."]
        return CommandOutput(said, INCOMPLETE)
    return CommandOutput(["Learners' code can be confined here."])


def release(options: argparse.Namespace) -> CommandOutput:
    """Enter assignments, and when they are due, into the gradebook."""
    due = _due(options.due)
    names = select_names(options.assignments, [path.parent.name for path in masters()])
    with grades.open_course(options.course) as grading:
        for name in names:
            grading.master(name)
        if due:
            with Gradebook(grading.course.gradebook) as gradebook:
                for name in names:
                    gradebook.update_or_create_assignment(name, duedate=due)
    until = f", due {due:%Y-%m-%d %H:%M} UTC" if due else ""
    lines = [f"Assignments entered into the gradebook: {len(names)}{until}. Hand out:"]
    lines += [f"exercises/release/{name}/{name}.ipynb" for name in names]
    return CommandOutput([*lines, f"Next: {ME} grade SOURCE"])


def collect(options: argparse.Namespace) -> CommandOutput:
    """Take submissions in, without grading them."""
    people = _people(options)
    with grades.open_course(options.course) as grading:
        enrol(grading.course, people)
        taken, aside = grading.collect(options.source)
    mended = sum(bool(one.repairs) for one in taken)
    lines = [f"Taken in: {len(taken)}, {mended} of them repaired. Put aside: {len(aside)}."]
    lines += [f"  {one.path}: {one.reason}" for one in aside]
    return CommandOutput([*lines, f"Next: {ME} grade"], INCOMPLETE if aside else OK)


def grade(options: argparse.Namespace) -> CommandOutput:
    """Grade what is new."""
    people = _people(options)
    with _grading_arguments(options) as arguments:
        if not options.source:
            course_in(options.course)
        return _summary_output(grades.grade(options.source, options.course, people=people, **arguments))


def _summary_output(summary: grades.Summary) -> CommandOutput:
    lines = [_result_line(result) for result in summary.graded]
    lines += [f"not graded: {one.path}: {one.reason}" for one in summary.quarantined] + failures(summary)
    before = f" Graded before: {summary.unchanged}." if summary.unchanged else ""
    lines.append(f"Graded: {len(summary.graded)}.{before}")
    if summary.stale:
        earlier = f"By an earlier master or grader (old points, today's maxima): {len(summary.stale)}."
        lines.append(f"{earlier} To compare: {ME} regrade")
    lines.append(f"Next: mark written answers (nbgrader formgrader); then {ME} feedback; … report; … export")
    return CommandOutput(lines, INCOMPLETE if summary.quarantined or summary.failed else OK)


def _result_line(result: Result) -> str:
    about = {"late": result.late, "repair": result.repairs, "unsafe": result.isolation != "full"}
    kinds = {flag.kind for flag in result.flags} | {kind for kind, is_so in about.items() if is_so}
    noted = f"  look at: {', '.join(sorted(kinds))}" if kinds else ""
    return f"{result.student}  {result.assignment}  {result.earned:g} of {result.worth:g}{noted}"


def regrade(options: argparse.Namespace) -> CommandOutput:
    """Grade again what a changed master or grader affects; enter it if that is confirmed."""
    shown: list[str] = []

    def apply(changes: list[grades.Change]) -> bool:
        shown.extend(_changes(changes))
        return options.yes or _confirmed(shown)

    with _grading_arguments(options) as arguments:
        found = grades.regrade(options.course, options.assignments, apply, **arguments)
    lines = [] if found.applied and not options.yes else shown  # otherwise they were shown already
    lines += failures(found)
    lines.append(f"Affected by a change: {len(found.stale)}; not affected: {found.unchanged}.")
    if found.stale:
        not_yet = f"Nothing was entered; maxima are today's. To enter the changes: {ME} regrade --yes"
        lines.append("The changes were entered." if found.applied else not_yet)
    return CommandOutput(lines, INCOMPLETE if found.failed else OK)


def _changes(changes: list[grades.Change]) -> Iterator[str]:
    for one in changes:
        cells = ", ".join(f"{name} {old:g} → {new:g}" for name, (old, new) in one.cells.items())
        cells = cells or "the same by tests"
        kept = f"; your mark by hand stays, look again: {', '.join(one.marked)}" if one.marked else ""
        yield f"{one.student}  {one.assignment}  {one.before:g} → {one.after:g}  ({cells}{kept})"
    yield f"Submissions that change: {len(changes)}."


def _confirmed(lines: list[str]) -> bool:
    """Whether a person confirms, if there is one to ask."""
    if not sys.stdin.isatty():
        return False
    print("\n".join(lines))
    return input("Enter this into the gradebook? [y/N] ").strip().lower() in ("y", "yes")


def rehearse(options: argparse.Namespace) -> CommandOutput:
    """Rehearse with a class of students who do not exist: they hand in, and are graded."""
    folder = options.course
    if options.number < 1:
        raise ValueError(f"N: expected at least 1, got {options.number}")
    if folder.exists() and not (folder / KEY).exists() and any(folder.iterdir()):  # all in it is deleted
        raise ValueError(
            f"--course: expected a new folder or a rehearsal's, got {folder}, which has other files"
        )
    select_names([options.assignment], [path.parent.name for path in masters()])
    with _grading_arguments(options) as arguments:
        shutil.rmtree(folder, ignore_errors=True)
        source = rehearsals.write(folder, options.number, options.assignment)
        people = [Enrolled("", one["student"]) for one in read_json(folder / KEY)["students"]]
        output = _summary_output(grades.grade(source, folder, people=people, **arguments))
    course, template = (shlex.quote(str(path)) for path in (folder, folder / TEMPLATE))
    output.lines[-1:] = [
        f"Students' pages are in {folder / 'feedback'}. Next:",
        f"  {ME} report --course {course}",
        f"  {ME} export --course {course} --template {template}",
    ]
    return output


# ---- What these share


def _people(options: argparse.Namespace) -> list[Enrolled]:
    """The class, if there is a roster; a missing roster or source is refused before anything is written."""
    expected = {"source": "a notebook, a folder or a zip archive", "roster": "a CSV file"}
    for name, what in expected.items():
        if (path := getattr(options, name)) and not path.exists():
            raise ValueError(f"{name}: expected {what}, got {path}, which does not exist")
    return read_roster(options.roster) if options.roster else []


def _due(text: str | None) -> datetime | None:
    try:
        # 1/12 is in January for some people.
        return in_utc(text if re.match(r"\d{4}-\d", text) else "") if text else None
    except ValueError:
        raise ValueError(f"--due: expected a time such as '2026-12-01 23:59 +0100', got {text!r}") from None


@contextmanager
def _grading_arguments(options: argparse.Namespace) -> Iterator[dict]:
    """The pool, and whether the work is done in a box, as arguments of `grade` and `regrade`.

    Students' code is not run where it cannot be confined, unless a person insists.
    """
    if not options.unsafe_no_isolation and (problem := doctors.problem()):
        raise ValueError(
            f"Students' code cannot be confined here ({problem}).\n"
            f"`{ME} doctor` says what to change. To run it unprotected all the same: --unsafe-no-isolation."
        )
    exposed = doctors.exposed([options.course, getattr(options, "source", None) or options.course])
    if exposed and not options.unsafe_no_isolation:
        raise ValueError(
            f"{exposed[0]} is in a folder of Python's that students' code can read: choose another place."
        )
    if options.workers < 1:
        raise ValueError(f"--workers: expected at least 1, got {options.workers}")
    pool = DaskPool(options.scheduler) if options.scheduler else ProcessPool(options.workers)
    try:
        yield {"isolated": not options.unsafe_no_isolation, "pool": pool}
    finally:
        pool.close()
