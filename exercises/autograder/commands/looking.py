"""From the marks to people: what is graded, pages, tables, and pairs to look at."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from exercises.autograder import report as reports
from exercises.autograder import similarity as similarities
from exercises.autograder.batch import grade as grades
from exercises.autograder.batch import status as states
from exercises.autograder.commands.said import FINE, LEFT, ME, RefusedError, Said, known_course, known_names
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import Mark
from exercises.autograder.course.pseudonyms import Pseudonyms
from exercises.autograder.export import csv_text, template_text
from exercises.autograder.result import Result
from exercises.autograder.running.transformer import boxed_transformer
from transformer_lessons.data.files import replacing

__all__ = ["export", "feedback", "my_transformer", "report", "similarity", "status"]


@dataclass(frozen=True)
class _Seen:
    """A course as it is shown: with the students' names, or with others in their place.

    Attributes:
        course: its folder.
        pseudonyms: or None.
    """

    course: Course
    pseudonyms: Pseudonyms | None

    @classmethod
    def of(cls, options: argparse.Namespace) -> "_Seen":
        """What the command line asks for."""
        course = known_course(options.course)
        return cls(course, Pseudonyms(options.course) if options.pseudonyms else None)

    def name(self, student: str) -> str:
        """How a student is called here."""
        return self.pseudonyms.of(student) if self.pseudonyms else student

    def marks(self, assignment: str) -> list[Mark]:
        """Of an assignment."""
        found = marks.marks(self.course.gradebook, assignment)
        return [self.pseudonyms.mark(one) for one in found] if self.pseudonyms else found

    def results(self, assignment: str) -> list[Result]:
        """Likewise."""
        found = list(self.course.results(assignment))
        return [self.pseudonyms.result(one) for one in found] if self.pseudonyms else found

    def aside(self) -> dict[str, list[dict]]:
        """What was not graded."""
        found = self.course.aside()
        if not self.pseudonyms:
            return found
        return {kind: [self.pseudonyms.not_graded(one) for one in those] for kind, those in found.items()}

    def assignments(self, wanted: list[str]) -> list[str]:
        """Those that are asked for, or else all of which there are submissions."""
        return known_names(wanted, sorted({assignment for _, assignment in self.course.submissions()}))


def status(options: argparse.Namespace) -> Said:
    """What is graded, and what waits for whom."""
    seen = _Seen.of(options)
    with grades.opened(options.course) as grading:
        found = [_renamed(one, seen.name) for one in states.statuses(grading)]
    lines = [line for one in found for line in _status_lines(one)]
    return Said(
        lines or [f"Nothing was taken in yet: {ME} grade SOURCE"], {"assignments": [*map(asdict, found)]}
    )


def _renamed(one: states.Status, name: Callable[[str], str]) -> states.Status:
    return replace(one, missing=tuple(sorted(map(name, one.missing))))


def _status_lines(one: states.Status) -> Iterator[str]:
    yield f"{one.assignment}: {one.graded} of {one.received} graded"
    todo = {
        f"new, for {ME} grade": one.waiting,
        f"graded by an earlier master or grader, for {ME} regrade": one.behind,
        "with answers to read, for nbgrader formgrader": one.by_hand,
        f"flagged for you to look at, in {ME} report": one.flagged,
        "put aside or failed, in not_graded.json": one.aside,
    }
    yield from (f"  {number:4} {what}" for what, number in todo.items() if number)
    if one.missing:
        yield f"  {len(one.missing):4} students of whom there is nothing: {', '.join(one.missing[:20])}"


def feedback(options: argparse.Namespace) -> Said:
    """Write all pages anew."""
    summary = grades.Summary()
    with grades.opened(options.course) as grading:
        course = grading.course
        wanted = [one for one in course.submissions() if course.record(*one).exists()]
        grades.feed_back(grading, wanted, summary)
    lines = [f"FAILED: {one.path}: {one.reason}" for one in summary.failed]
    lines.append(f"{len(wanted) - len(summary.failed)} pages are in {course.folder / 'feedback'}.")
    data = {"pages": len(wanted) - len(summary.failed), "failed": [one._asdict() for one in summary.failed]}
    return Said(lines, data, LEFT if summary.failed else FINE)


def report(options: argparse.Namespace) -> Said:
    """A page about the class, for each assignment."""
    seen, lines, data = _Seen.of(options), [], {}
    aside = seen.aside()
    for name in seen.assignments(options.assignments):
        counted = reports.numbers(
            name, seen.marks(name), seen.results(name), aside["quarantined"], aside["failed"]
        )
        path = seen.course.report(name)
        _write(path, reports.page(counted).encode())
        lines.append(str(path))
        data[name] = asdict(counted)
    return Said(lines, data)


def export(options: argparse.Namespace) -> Said:
    """Marks as CSV."""
    seen = _Seen.of(options)
    if options.template and not options.template.is_file():
        raise RefusedError(f"--template: expected a CSV file, got {options.template}")
    template = template_text(options.template) if options.template else None
    known = {name: seen.marks(name) for name in seen.assignments(options.assignments)}
    columns = dict(one.split("=", 1) for one in options.column) or None
    made = csv_text(options.format, known, template, columns=columns, missing_as_zero=options.missing_as_zero)
    path = options.to or seen.course.folder / "export" / f"{options.format}.csv"
    _write(path, made.data)
    lines = [*made.notes, *(f"no row for {student}" for student in made.unmatched), str(path)]
    data = {"file": str(path), "notes": made.notes, "unmatched": made.unmatched}
    return Said(lines, data, LEFT if made.unmatched else FINE)


def similarity(options: argparse.Namespace) -> Said:
    """Pairs of submissions that a person should look at; or two of them side by side."""
    seen = _Seen.of(options)
    seen.assignments([options.assignment])
    if options.students:
        return _side_by_side(options, seen)
    skipped: list[str] = []
    found = similarities.of_course(seen.course, options.assignment, tell=skipped.append)
    renamed = [replace(one, first=seen.name(one.first), second=seen.name(one.second)) for one in found]
    lines = [
        f"{one.score:4.0%}  {one.first}  {one.second}  {'the same text' if one.exact else _cells(one)}"
        for one in renamed
    ]
    lines += [] if seen.pseudonyms else skipped
    last = f"{len(found)} pairs that stand out; side by side: {ME} similarity {options.assignment} ONE OTHER"
    return Said([*lines, last], {"pairs": [asdict(one) for one in renamed]})


def _side_by_side(options: argparse.Namespace, seen: _Seen) -> Said:
    if len(options.students) != 2 or seen.pseudonyms:
        raise RefusedError("STUDENT: expected two ids, without --pseudonyms, as their code may name them")
    text = similarities.of_two(seen.course, options.assignment, *options.students)
    return Said([text], {"text": text})


def _cells(pair: similarities.Pair) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in sorted(pair.cells.items()))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def my_transformer(options: argparse.Namespace) -> Said:
    """A model of a student's parts, trained in a box."""
    said = boxed_transformer(options.files, fill=options.fill, output=options.output)
    return Said(said.splitlines(), {"said": said, "output": str(options.output)}, FINE)
