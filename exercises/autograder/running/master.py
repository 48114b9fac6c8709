"""An assignment's cells as the gradebook keeps them: what is run and counted, whatever a submission says."""

import hashlib
import json
from dataclasses import asdict, dataclass

from nbgrader.api import Gradebook

__all__ = ["MasterCell", "digest", "master_of"]


@dataclass(frozen=True)
class MasterCell:
    """A cell that nbgrader knows.

    Attributes:
        name: its grade id.
        type: "code" or "markdown".
        locked: whether it is the course's text, not the student's.
        source: the text, hidden tests and all; of an answer, what was handed out.
        checksum: nbgrader's, by which it knows an answer that was not touched.
        points: the most it gives.
        is_graded: whether it gives points, by a test or by a person.
        is_answer: whether it is where an answer belongs.
    """

    name: str
    type: str
    locked: bool
    source: str
    checksum: str | None
    points: float = 0.0
    is_graded: bool = False
    is_answer: bool = False


def master_of(url: str, assignment: str, notebook: str) -> tuple[MasterCell, ...]:
    """The cells of an assignment's notebook.

    Args:
        url: of the gradebook's database.

    Raises:
        MissingEntry: if the gradebook does not know it.
    """
    with Gradebook(url) as gradebook:
        known = gradebook.find_notebook(notebook, assignment)
        points = {cell.name: float(cell.max_score) for cell in known.grade_cells}
        answers = {cell.name for cell in known.solution_cells}
        return tuple(
            MasterCell(
                cell.name,
                cell.cell_type,
                cell.locked,
                cell.source,
                cell.checksum,
                points.get(cell.name, 0.0),
                cell.name in points,
                cell.name in answers,
            )
            for cell in known.source_cells
        )


def digest(master: tuple[MasterCell, ...]) -> str:
    """Changes with all that a mark depends on; not with the course's prose."""
    counted = [asdict(cell) for cell in master if cell.type == "code" or cell.is_graded or cell.is_answer]
    return hashlib.sha256(json.dumps(counted).encode()).hexdigest()
