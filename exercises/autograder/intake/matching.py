"""Of which assignment a submission is, and which cell is which, though names were lost, changed or copied.

A cell is known by the grader's marks or by its id; a locked cell also by its text; an answer also by the names
that it defines and, at last, by its place: between the cells that stood around the released one.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from nbformat import NotebookNode

from exercises.autograder.intake.cells import FRESH, CannotBeGraded, Cell, normalize_source
from transformer_lessons.tools.submission import grade_id

__all__ = ["Catalogue", "Match", "is_answer", "match", "named", "same"]


def named(released: NotebookNode) -> dict[str, NotebookNode]:
    """The cells of an assignment that the grader knows, by grade id, in their order."""
    return {grade_id(cell): cell for cell in released.cells if grade_id(cell)}


def is_answer(released: NotebookNode) -> bool:
    """Whether a released cell is where an answer belongs."""
    return not released.metadata.nbgrader.locked


def same(cell: Cell, released: NotebookNode) -> bool:
    """Whether a text is as released, but for what editors change of themselves."""
    return cell.normalized == normalize_source(released.source)


class Catalogue:
    """What tells the assignments of a course apart: the names of cells, and the texts of locked ones.

    Args:
        assignments: by name, as they are handed out now.
        earlier: by name, versions that were handed out before and count as well.
    """

    def __init__(self, assignments: dict[str, NotebookNode], earlier: Mapping[str, list[NotebookNode]]):
        self.assignments, self._earlier = assignments, earlier
        found: dict[str, set[str]] = {}
        for assignment, notebook in assignments.items():
            for name, cell in named(notebook).items():
                for key in {name} if is_answer(cell) else {name, normalize_source(cell.source)}:
                    found.setdefault(key, set()).add(assignment)
        # Some texts, such as that of the setup, are in several.
        self._of = {key: min(those) for key, those in found.items() if len(those) == 1}

    def assignment_of(self, cells: list[Cell], said: Collection[str]) -> str:
        """The assignment that most cells are of, each by its name or else its text.

        Args:
            cells: of the notebook.
            said: what its name and folder say; they decide where the cells do not.

        Raises:
            CannotBeGraded: if it is of none, or as much of another.
        """
        # A set, as copies of a cell say nothing more.
        keys = {
            next((name for name in (cell.grade_id, *cell.ids) if name in self._of), cell.normalized)
            for cell in cells
        }
        votes = Counter(self._of[key] for key in keys if key in self._of)
        if not votes:
            names = ", ".join(self.assignments)
            raise CannotBeGraded(
                f"The notebook holds no cell of an assignment that is graded here ({names}). {FRESH}"
            )
        # Somebody may have copied a helper from another assignment, but not half of it.
        likely = [name for name, number in votes.most_common() if 2 * number > max(votes.values())]
        confirmed = [name for name in likely if name in said] if len(likely) > 1 else likely
        if len(confirmed) != 1:
            both = " and ".join(likely)
            raise CannotBeGraded(f"The notebook holds cells of {both}. Hand in one notebook for each.")
        return confirmed[0]

    def version_of(self, cells: list[Cell], assignment: str) -> NotebookNode:
        """The version of which most locked texts are in a submission; of equals the present one."""
        texts = {cell.normalized for cell in cells}

        def there(version: NotebookNode) -> int:
            locked = [cell for cell in named(version).values() if not is_answer(cell)]
            return sum(normalize_source(cell.source) in texts for cell in locked)

        return max([self.assignments[assignment], *self._earlier.get(assignment, [])], key=there)


@dataclass
class Match:
    """Of each released cell, by grade id, the one that stands for it, how it was recognised, and its copies."""

    cells: dict[str, Cell] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)  # "marks", "id", "text", "definition" or "place"
    copies: dict[str, list[Cell]] = field(default_factory=dict)

    def take(self, name: str, fitting: list[Cell], rest: list[Cell], by: str) -> None:
        """The first of the cells that fit, if any do, is no longer among the rest."""
        if fitting:
            self.cells[name], self.by[name] = fitting[0], by
            rest.remove(fitting[0])


def match(cells: list[Cell], released: NotebookNode) -> Match:
    """Recognise the cells of a submission.

    Args:
        cells: of the submission, in its order.
        released: the assignment as it was handed out.
    """
    known, found = named(released), Match()
    claims = {
        cell: next((name for name in (cell.grade_id, *cell.ids) if name in known), None) for cell in cells
    }
    for name in known:
        claiming = [cell for cell in cells if claims[cell] == name]
        if claiming:
            cell = found.cells[name] = _that_counts(claiming, known[name])
            found.by[name] = "marks" if cell.grade_id == name else "id"
            found.copies[name] = [copy for copy in claiming if copy is not cell]
    # What was released for trying things out is no answer, wherever it stands.
    trials = {normalize_source(cell.source) for cell in released.cells if not grade_id(cell)}
    rest = [cell for cell in cells if not claims[cell] and cell.normalized not in trials]
    for name, locked in _missing(known, found, answers=False):
        found.take(name, [cell for cell in rest if same(cell, locked)], rest, "text")
    for name, answer in _missing(known, found, answers=True):
        wanted = defined(answer.source) if answer.cell_type == "code" else set()
        # Of several the last, which is in force at the end.
        found.take(
            name, [cell for cell in reversed(rest) if defined(cell.source) & wanted], rest, "definition"
        )
    for name, answer in _missing(known, found, answers=True):
        fitting = [
            cell for cell in _in_place(name, rest, list(known), found) if cell.type == answer.cell_type
        ]
        fitting.sort(key=lambda cell, answer=answer: same(cell, answer))
        found.take(name, [cell for cell in fitting if cell.normalized], rest, "place")
    return found


def _that_counts(copies: list[Cell], released: NotebookNode) -> Cell:
    """Of copies of an answer the last that was filled in; of a locked cell the first that was not changed."""
    if is_answer(released):
        filled = [cell for cell in copies if cell.normalized and not same(cell, released)]
        return filled[-1] if filled else copies[0]
    return next((cell for cell in copies if same(cell, released)), copies[0])


def _missing(known: dict, found: Match, *, answers: bool) -> Iterator[tuple[str, NotebookNode]]:
    for name, released in known.items():
        if name not in found.cells and is_answer(released) == answers:
            yield name, released


def defined(source: str) -> set[str]:
    """The functions, classes and variables that a cell defines at its left margin.

    A pitfall: an answer need not be valid Python, so only the beginnings of its lines are looked at.
    """
    definitions = re.findall(r"^(?:async +)?(?:def|class) +(\w+)", source, re.MULTILINE)
    return {*definitions, *re.findall(r"^(\w+) *(?::[^=\n]*)?=(?!=)", source, re.MULTILINE)}


def _in_place(name: str, rest: list[Cell], names: list[str], found: Match) -> list[Cell]:
    """The cells between those that stood before and after a released one.

    One of the released cells beside must be recognised, or there is no telling where that is.
    """
    number = names.index(name)
    if not {*names[:number][-1:], *names[number + 1 :][:1]} & found.cells.keys():
        return []
    places = [found.cells[other].number if other in found.cells else 0 for other in names]
    after = next((place for place in reversed(places[:number]) if place), 0)
    before = next((place for place in places[number + 1 :] if place > after), float("inf"))
    return [cell for cell in rest if after < cell.number < before]
