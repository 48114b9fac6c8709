"""The answers to compare, from a course's folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises import release
from exercises.autograder.course.folders import Course
from exercises.autograder.intake.cells import cells_of, normalize_source
from exercises.autograder.intake.contents import CannotBeGraded, content_of
from exercises.autograder.intake.matching import is_answer, named
from exercises.autograder.similarity.outliers import LEAST, Pair, compare, pairs
from exercises.autograder.similarity.rendering import side_by_side

__all__ = ["OWN", "Answers", "answers_of", "of_course", "of_two"]

OWN = "own cells"  # under which a student's own code cells are compared


@dataclass
class Answers:
    """What there is to compare.

    Attributes:
        texts: of each student the texts of their answers, by cell.
        released: what was handed out, by cell.
        words: the cells that are answers in words.
        unreadable: by student, why their notebook was left out.
    """

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    released: dict[str, str] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)


def of_course(
    course: Course, assignment: str, *, least: float = LEAST, tell: Callable[[str], object] | None = None
) -> list[Pair]:
    """The pairs of an assignment that a person should look at; who is left out, is told.

    Args:
        course: its folder.
        assignment: its name.
        least: the least score.
        tell: what is called with a sentence for each notebook that cannot be read; by default they are written
            to standard error.

    Raises:
        FileNotFoundError: if there is no such assignment.
    """
    found = answers_of(course, assignment)
    for student, why in found.unreadable.items():
        (tell or _tell)(f"{student}: not compared: {why}")
    return pairs(found.texts, found.released, words=found.words, least=least)


def of_two(course: Course, assignment: str, first: str, second: str, width: int = 120) -> str:
    """Two submissions side by side, with what they have in common.

    Raises:
        FileNotFoundError: if there is no such assignment, or no submission of one of the two.
        ValueError: if one of these cannot be read.
    """
    found = answers_of(course, assignment, [first, second])
    for student, why in found.unreadable.items():
        raise ValueError(f"{student}: {why}")
    texts = found.texts[first], found.texts[second]
    pair = compare(*texts, found.released, found.words)
    exact = ", the same text" if pair.exact else ""
    head = f"{assignment}: {pair.score:.0%} of what both answered is the same{exact}"
    return f"{head}\n{side_by_side((first, second), texts, pair.cells, width)}"


def answers_of(course: Course, assignment: str, students: list[str] | None = None) -> Answers:
    """The answers to an assignment.

    Args:
        course: its folder.
        assignment: its name.
        students: whose; of all by default.

    Raises:
        FileNotFoundError: if there is no such assignment, or no submission of one who was named.
    """
    versions = _versions(course, assignment)
    known = {name: cell for version in versions for name, cell in named(version).items()}
    cells = [cell for version in versions for cell in version.cells]
    found = Answers(
        released={f"{number}": cell.source for number, cell in enumerate(cells)},
        words={name for name, cell in known.items() if is_answer(cell) and cell.cell_type == "markdown"},
    )
    given = {normalize_source(cell.source) for cell in cells}
    for student in students or [student for student, _ in course.submissions(assignment)]:
        path = course.received(student, assignment)
        if not path.exists():
            raise FileNotFoundError(f"{student}: expected a submission of {assignment}, there is none")
        try:
            found.texts[student] = _texts(path, known, given)
        except (CannotBeGraded, OSError) as error:
            found.unreadable[student] = str(error)
    return found


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _versions(course: Course, assignment: str) -> list[NotebookNode]:
    """All that was handed out under this name; a student may have worked on any."""
    paths = [*sorted((course.folder / "released" / assignment).rglob("*.ipynb"))]
    current = release.HERE / "release" / assignment / f"{assignment}.ipynb"
    paths += [current] if current.exists() else []
    if not paths:
        raise FileNotFoundError(f"assignment: expected one that was released, got {assignment}")
    return [nbformat.read(path, as_version=4) for path in paths]


def _texts(path: Path, known: dict[str, NotebookNode], given: set[str]) -> dict[str, str]:
    """The texts of a student's answers, and of their own code cells together."""
    texts: dict[str, str] = {}
    own = []
    for cell in cells_of(content_of(path.read_bytes())[0])[0]:
        name = next((name for name in (cell.grade_id, *cell.ids) if name in known), None)
        if cell.normalized in given:
            continue
        if name and is_answer(known[name]):
            texts[name] = cell.source
        elif not name and cell.type == "code":
            own.append(cell.source)
    return {**texts, OWN: "\n\n".join(own)} if own else texts
