"""Of which assignment a submission is, and which cell is which, though names were lost, changed or copied.

A cell is known by the grader's marks or by its id; a locked cell also by its text; an answer also by its place:
between the cells that stood around the released one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from nbformat import NotebookNode

from exercises.autograder.intake.cells import FRESH, CannotBeGraded, Cell, normalize_source
from transformer_lessons.tools.submission import grade_id

__all__ = ["Catalogue", "Match", "Released", "is_answer", "match", "named"]


def named(released: NotebookNode) -> dict[str, NotebookNode]:
    """The cells of an assignment that the grader knows, by grade id, in their order."""
    return {grade_id(cell): cell for cell in released.cells if grade_id(cell)}


def is_answer(released: NotebookNode) -> bool:
    """Whether a released cell is where an answer belongs."""
    return not released.metadata.nbgrader.locked


class Released:
    """An assignment: its cells as they are handed out now, by grade id, and each text that these have had.

    Args:
        notebook: as it is handed out now.
        earlier: what was handed out before and counts as well.
    """

    def __init__(self, notebook: NotebookNode, earlier: Iterable[NotebookNode] = ()):
        self.notebook, self.cells = notebook, named(notebook)
        self.now = {name: normalize_source(cell.source) for name, cell in self.cells.items()}
        self._texts = {name: {text} for name, text in self.now.items()}
        # What was released for trying things out.
        self.trials: set[str] = set()
        for version in (notebook, *earlier):
            self.trials |= {normalize_source(cell.source) for cell in version.cells if not grade_id(cell)}
            for name, cell in named(version).items():
                self._texts.get(name, set()).add(normalize_source(cell.source))

    def is_answer(self, name: str) -> bool:
        """Whether an answer belongs there."""
        return is_answer(self.cells[name])

    def has(self, name: str, cell: Cell) -> bool:
        """Whether a text is as it was released, but for what editors change of themselves."""
        return cell.normalized in self._texts[name]

    def tokens(self) -> Iterator[str]:
        """What tells it from other assignments: the names of cells, and the texts of locked ones."""
        for name, texts in self._texts.items():
            yield from {name} if self.is_answer(name) else {name, *texts}


class Catalogue:
    """The assignments of a course.

    Args:
        assignments: by name, as they are handed out now.
        earlier: by name, versions that were handed out before and count as well.
    """

    def __init__(self, assignments: dict[str, NotebookNode], earlier: Mapping[str, list[NotebookNode]]):
        self.assignments = {name: Released(now, earlier.get(name, [])) for name, now in assignments.items()}
        found: dict[str, set[str]] = {}
        for name, released in self.assignments.items():
            for key in released.tokens():
                found.setdefault(key, set()).add(name)
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


@dataclass
class Match:
    """Of each released cell, by grade id, the one that stands for it, how it was recognised, and its copies."""

    cells: dict[str, Cell] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)  # "marks", "id", "text" or "place"
    copies: dict[str, list[Cell]] = field(default_factory=dict)

    def take(self, name: str, fitting: list[Cell], rest: list[Cell], by: str) -> None:
        """The first of the cells that fit, if any do, is no longer among the rest."""
        if fitting:
            self.cells[name], self.by[name] = fitting[0], by
            rest.remove(fitting[0])


def match(cells: list[Cell], released: Released) -> Match:
    """Recognise the cells of a submission, which are given in its order."""
    found, names = Match(), list(released.cells)
    claims = {
        cell: next((name for name in (cell.grade_id, *cell.ids) if name in released.cells), None)
        for cell in cells
    }
    for name in names:
        claiming = [cell for cell in cells if claims[cell] == name]
        if claiming:
            cell = found.cells[name] = _that_counts(claiming, name, released)
            found.by[name] = "marks" if cell.grade_id == name else "id"
            found.copies[name] = [copy for copy in claiming if copy is not cell]
    # What was released for trying things out is no answer, wherever it stands.
    rest = [cell for cell in cells if not claims[cell] and cell.normalized not in released.trials]
    for name in names:
        if name not in found.cells and not released.is_answer(name):
            found.take(name, [cell for cell in rest if released.has(name, cell)], rest, "text")
    for name in names:
        if name not in found.cells and released.is_answer(name):
            fitting = [cell for cell in _in_place(name, rest, names, found) if cell.normalized]
            fitting = [cell for cell in fitting if cell.type == released.cells[name].cell_type]
            found.take(name, sorted(fitting, key=partial(released.has, name)), rest, "place")
    return found


def _that_counts(copies: list[Cell], name: str, released: Released) -> Cell:
    """Of copies of an answer the last that was filled in; of a locked cell the first that was not changed."""
    if released.is_answer(name):
        filled = [cell for cell in copies if cell.normalized and not released.has(name, cell)]
        return filled[-1] if filled else copies[0]
    return next((cell for cell in copies if released.has(name, cell)), copies[0])


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
