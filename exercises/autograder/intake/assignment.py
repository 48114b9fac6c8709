"""Which assignment a notebook is of, by what it holds; its name may say anything."""

from collections import Counter
from collections.abc import Collection

from nbformat import NotebookNode

from exercises.autograder.intake.cells import Cell, bare
from exercises.autograder.intake.contents import FRESH, CannotBeGraded
from exercises.autograder.intake.matching import is_answer, named

__all__ = ["Catalogue"]

MOST_NAMES = 12  # that a sentence lists


class Catalogue:
    """What tells the assignments of a course apart: the names of cells, and the texts of locked ones.

    Args:
        assignments: by name, as they were handed out.
    """

    def __init__(self, assignments: dict[str, NotebookNode]):
        self.assignments = assignments
        found: dict[str, set[str]] = {}
        for assignment, notebook in assignments.items():
            for name, cell in named(notebook).items():
                found.setdefault(name, set()).add(assignment)
                if not is_answer(cell):
                    found.setdefault(bare(cell.source), set()).add(assignment)
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
            next((name for name in (cell.grade_id, *cell.ids) if name in self._of), cell.bare)
            for cell in cells
        }
        votes = Counter(self._of[key] for key in keys if key in self._of)
        if not votes:
            names = ", ".join(list(self.assignments)[:MOST_NAMES])
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
