"""The answers to compare, from a course's folder; and two submissions beside each other, for a terminal."""

import difflib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from exercises import release
from exercises.autograder.course.folders import Course
from exercises.autograder.intake.cells import CannotBeGraded, cells_of, content_of, normalize_source
from exercises.autograder.intake.matching import is_answer, named
from exercises.autograder.similarity.fingerprints import tokens
from exercises.autograder.similarity.outliers import Pair, compare, pairs

__all__ = ["OWN", "answers_of", "of_course", "of_two", "side_by_side"]

OWN = "own cells"  # under which a student's own code cells are compared
MOST_LINES = 1_000  # of a cell; comparing takes the square of it at worst
LEGEND = "= the same   ~ the same but for names, texts and layout   | different   < > only there"


class Answers(NamedTuple):
    """What there is to compare."""

    texts: dict[str, dict[str, str]]  # of each student those of their answers, by cell
    released: dict[str, str]  # what was handed out, by cell
    words: set[str]  # the cells that are answers in words
    unreadable: dict[str, str]  # by student, why their notebook was left out


def of_course(course: Course, assignment: str, tell: Callable[[str], object]) -> list[Pair]:
    """The pairs of an assignment that a person should look at.

    Args:
        course: its folder.
        assignment: its name.
        tell: what is called with a sentence for each notebook that cannot be read.

    Raises:
        FileNotFoundError: if there is no such assignment.
    """
    found = answers_of(course, assignment)
    for student, why in found.unreadable.items():
        tell(f"{student}: not compared: {why}")
    return pairs(found.texts, found.released, found.words)


def of_two(course: Course, assignment: str, first: str, second: str) -> str:
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
    return f"{head}\n{side_by_side((first, second), texts, pair.cells)}"


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
    released = {f"{number}": cell.source for number, cell in enumerate(cells)}
    words = {name for name, cell in known.items() if is_answer(cell) and cell.cell_type == "markdown"}
    found = Answers({}, released, words, {})
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


# ---- Side by side


def side_by_side(
    names: tuple[str, str],
    texts: tuple[dict[str, str], dict[str, str]],
    shares: dict[str, float],
    width: int = 120,
) -> str:
    """The answers of two students, cell by cell, with a mark between the lines.

    Args:
        names: of the two.
        texts: of their answers, by cell.
        shares: of what is equal, by cell; cells with the greatest come first.
        width: of the whole, in characters.
    """
    cells = sorted(texts[0].keys() | texts[1].keys(), key=lambda cell: (-shares.get(cell, 0.0), cell))
    half = (width - 3) // 2
    lines = [LEGEND, _row(_shown(names[0]), " ", _shown(names[1]), half)]
    for cell in cells:
        share = f" · {shares[cell]:.0%}" if cell in shares else ""
        lines += ["", f"── {_shown(cell)}{share} ──"]
        lines += _compared(*(_lines(text.get(cell, "")) for text in texts), half)
    return "\n".join(lines) + "\n"


def _lines(text: str) -> list[str]:
    lines = text.splitlines()
    rest = len(lines) - MOST_LINES
    return lines if rest <= 0 else [*lines[:MOST_LINES], f"[lines left out: {rest}]"]


def _compared(ours: list[str], theirs: list[str], half: int) -> Iterator[str]:
    """Lines that say the same stand beside each other."""
    # A line's tokens, or all of it if there are none, as in a comment.
    keys = [[" ".join(tokens(line)) or line.strip() for line in lines] for lines in (ours, theirs)]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        for left, right in zip_longest(ours[a:b], theirs[c:d]):
            if left is None or right is None:
                mark = ">" if left is None else "<"
            else:
                mark = "|" if kind == "replace" else "=" if left.strip() == right.strip() else "~"
            yield from _wrapped(left or "", mark, right or "", half)


def _wrapped(left: str, mark: str, right: str, half: int) -> Iterator[str]:
    parts = [
        [text[start : start + half] for start in range(0, len(text), half)] or [""]
        for text in map(_shown, (left, right))
    ]
    for number, (one, other) in enumerate(zip_longest(*parts, fillvalue="")):
        yield _row(one, mark if number == 0 else " ", other, half)


def _row(left: str, mark: str, right: str, half: int) -> str:
    return f"{left:<{half}} {mark} {right}".rstrip()


def _shown(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in text.expandtabs(4))
