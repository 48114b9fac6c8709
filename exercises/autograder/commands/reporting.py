"""The commands that show a course: what is graded, pages, tables, and pairs to look at."""

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace

from nbgrader.api import MissingEntry

from exercises import release
from exercises.autograder import report as reports
from exercises.autograder import similarity as similarities
from exercises.autograder.batch import grade as grades
from exercises.autograder.batch.grading import Grading
from exercises.autograder.commands import INCOMPLETE, ME, OK, CommandOutput, course_in, failures, select_names
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.course.roster import template_text
from exercises.autograder.export import csv_text
from exercises.autograder.running.transformer import boxed_transformer
from transformer_lessons.data.files import replacing, write_text


def _up_to_date(options: argparse.Namespace) -> Course:
    """The course, with late penalties recomputed for the current points by hand, dates and policy."""
    course = course_in(options.course)
    with closing(marks.Writer(course.gradebook, release.course(course.folder).config)) as writer:
        writer.renew_penalties()
    return course


def _assignments(course: Course, wanted: list[str]) -> list[str]:
    """The assignments that are asked for, or else all that have submissions."""
    return select_names(wanted, sorted({assignment for _, assignment in course.submissions()}))


def _marks(course: Course, name: str) -> list[marks.Mark]:
    """The marks for an assignment; students with a file, which may not be graded yet, are marked as such."""
    files = {(one["student"], one["assignment"]) for those in course.left_out().values() for one in those}
    files.update(course.submissions(name))
    known = marks.marks(course.gradebook, name)
    return [replace(one, set_aside=bool(files & {(one.student, name), (one.student, None)})) for one in known]


def status(options: argparse.Namespace) -> CommandOutput:
    """Show what is graded, and what waits for whom."""
    course = _up_to_date(options)
    aside = Counter(one["assignment"] for those in course.left_out().values() for one in those)
    wanted = sorted({assignment for _, assignment in course.submissions()} | (aside.keys() - {None}))
    with grades.open_course(options.course) as grading:
        lines = [line for name in wanted for line in _status(grading, name, aside[name])]
    return CommandOutput(lines or [f"Nothing was taken in yet. Next: {ME} grade SOURCE"])


def _status(grading: Grading, name: str, aside: int) -> Iterator[str]:
    """Lines about one assignment: what is graded, and what waits for `grade`, `regrade` or a person."""
    course, submissions = grading.course, grading.course.submissions(name)
    states = Counter(grading.state(*one) for one in submissions)
    known = []
    with suppress(MissingEntry):
        known = _marks(course, name)
    yield f"{name}: {states['graded']} of {len(submissions)} graded"
    todo = {
        f"new: run {ME} grade": states["waiting"],
        "not graded: exercises/source has no master of this name": states["left"],
        f"by an earlier master or grader (old points, today's maxima): run {ME} regrade": states["stale"],
        "with written answers to mark, in nbgrader formgrader": sum(mark.waits for mark in known),
        f"flagged for you to look at: run {ME} report": sum(bool(one.flags) for one in course.results(name)),
        "put aside or failed: see not_graded.json": aside,
    }
    yield from (f"  {number:4} {what}" for what, number in todo.items() if number)
    if missing := [one.student for one in known if not one.set_aside]:
        more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
        yield f"  {len(missing):4} students without a submission: {', '.join(missing[:20])}{more}"


def feedback(options: argparse.Namespace) -> CommandOutput:
    """Write all pages again."""
    _up_to_date(options)
    summary = grades.Summary()
    with grades.open_course(options.course) as grading:
        written = grades.write_feedback(grading, summary, rewrite=True)
    failed = failures(summary)
    message = f"Pages written to {options.course / 'feedback'}: {written}."
    return CommandOutput([*failed, message], INCOMPLETE if failed else OK)


def report(options: argparse.Namespace) -> CommandOutput:
    """Write a page about the class for each assignment."""
    course, lines = _up_to_date(options), []
    aside = course.left_out()
    for name in _assignments(course, options.assignments):
        known, results = marks.marks(course.gradebook, name), course.results(name)
        numbers = reports.numbers(name, known, results, aside["quarantined"], aside["failed"])
        write_text(course.report(name), reports.page(numbers))
        lines.append(str(course.report(name)))
    return CommandOutput(lines)


def export(options: argparse.Namespace) -> CommandOutput:
    """Write marks as CSV."""
    course = _up_to_date(options)
    if options.template and not options.template.is_file():
        raise ValueError(f"--template: expected a CSV file, got {options.template}")
    template = template_text(options.template) if options.template else None
    known = {name: _marks(course, name) for name in _assignments(course, options.assignments)}
    if wrong := [one for one in options.column if "=" not in one]:
        raise ValueError(f"--column: expected OURS=THEIRS, got {wrong[0]}")
    columns = dict(one.split("=", 1) for one in options.column)
    made = csv_text(known, template, columns=columns, missing_as_zero=options.missing_as_zero)
    name = f"filled_{options.template.name}" if template else "table.csv"
    path = options.to or course.folder / "export" / name
    with replacing(path) as temporary:
        temporary.write_bytes(made.data)
    lines = [*_earlier(course, known), *made.notes]
    lines += [*(f"no mark filled in for {student}" for student in made.unmatched), str(path)]
    return CommandOutput(lines, INCOMPLETE if made.unmatched else OK)


def _earlier(course: Course, known: dict[str, list[marks.Mark]]) -> Iterator[str]:
    """A sentence for each assignment whose tests are now worth something else than when they were run."""
    for name, those in known.items():
        worth = {cell: of.worth for mark in those for cell, of in mark.cells.items()}
        tests = (cell for one in course.results(name) for cell in one.cells)
        if any(cell.worth != worth.get(cell.cell, cell.worth) for cell in tests):
            yield f"{name}: some points are from before the master changed: run {ME} regrade"


def similarity(options: argparse.Namespace) -> CommandOutput:
    """List pairs of submissions that a person should look at, or show two of them side by side."""
    course = _up_to_date(options)
    _assignments(course, [options.assignment])
    if options.students:
        if len(options.students) != 2:
            raise ValueError(f"STUDENT: expected two ids, got {', '.join(options.students)}")
        return CommandOutput([similarities.compare(course, options.assignment, *options.students)])
    found = similarities.course_pairs(course, options.assignment)
    lines = []
    for one in found:
        shares = (f"{name} {share:.0%}" for name, share in sorted(one.cells.items()))
        how = similarities.EXACT if one.exact else ", ".join(shares)
        lines.append(f"{one.score:4.0%}  {one.first}  {one.second}  {how}")
    last = f"Pairs that stand out: {len(found)}. To see two: {ME} similarity {options.assignment} ONE OTHER"
    return CommandOutput([*lines, last])


def my_transformer(options: argparse.Namespace) -> CommandOutput:
    """Build and train a model of a student's parts in a box."""
    printed = boxed_transformer(options.files, fill=options.fill, output=options.output)
    return CommandOutput(printed.splitlines(), OK)
