"""nbgrader's configuration: run its commands in this folder, for example ``nbgrader autograde ps02_masks``.

What nbgrader makes (gradebook, submissions, feedback) lies under `_nbgrader`, which git ignores, or in the folder
that the environment variable `TRANSFORMER_LESSONS_COURSE` names; the student version that is committed is made by
``python -m exercises.release`` instead of ``nbgrader generate_assignment``.
"""

import os
from pathlib import Path

from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbgrader.preprocessors import (
    AssignLatePenalties,
    ClearOutput,
    DeduplicateIds,
    IgnorePattern,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)

from exercises.autograder.running.inert import SanitizeNotebook
from exercises.autograder.running.notebook import IsolatedExecute

HERE = Path(__file__).resolve().parent
SCRATCH = Path(os.environ.get("TRANSFORMER_LESSONS_COURSE") or HERE / "_nbgrader").absolute()


class RestoreTests(OverwriteCells):
    """Test cells that were deleted come back, at the end, and score what they find.

    nbgrader by itself leaves them without a grade. With its own way of putting them back (behind the cell that
    came before in the master), it stops with an error where that cell is read-only or was deleted as well.
    """

    def add_missing_grade_cells(self, nb, resources):
        """Append the test cells and written answers that are missing."""
        source = self.gradebook.find_notebook(self.notebook_id, self.assignment_id)
        cells = {cell.name: cell for cell in source.source_cells}
        written = {cell.name for cell in source.solution_cells}
        present = {cell.metadata.nbgrader.get("grade_id") for cell in nb.cells if "nbgrader" in cell.metadata}
        for grade in source.grade_cells:
            if grade.name not in present:
                self.log.warning("The cell %s is missing, and put back", grade.name)
                is_written = grade.name in written
                nb.cells.append(self.missing_cell_transform(cells[grade.name], grade.max_score, is_written))
        return nb, resources


c = get_config()
c.CourseDirectory.root = str(HERE)
c.CourseDirectory.source_directory = "source"
for step in ("release", "submitted", "autograded", "feedback"):
    c.CourseDirectory[f"{step}_directory"] = str(SCRATCH / step)
SCRATCH.mkdir(parents=True, exist_ok=True)
c.CourseDirectory.db_url = f"sqlite:///{SCRATCH / 'gradebook.db'}"

c.ClearSolutions.code_stub = {"python": 'raise NotImplementedError("your answer goes here")'}
c.ClearSolutions.text_stub = "*Your answer goes here.*"

# CheckCellMetadata, which nbgrader has twice in its lists, is in none: it takes a tenth of the time, and stops
# where the intake mends. What is run as a test, the gradebook says, not the metadata.
c.OverwriteCells.add_missing_cells = True
c.Autograde.sanitize_preprocessors = [
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    RestoreTests,
]
c.Autograde.autograde_preprocessors = [
    IsolatedExecute,
    IgnorePattern,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveAutoGrades,
    AssignLatePenalties,
    SanitizeNotebook,
]
