"""An assignment that was handed out anew in the middle of the term: work that was begun before counts as well."""

import copy
from collections.abc import Iterable

from nbformat import NotebookNode

from exercises.autograder.intake.cells import Cell, bare
from exercises.autograder.intake.matching import is_answer, named

__all__ = ["EARLIER", "brought_up_to_date", "version_of"]

EARLIER = "It was begun with an earlier version of the assignment, which counts as well."


def version_of(cells: list[Cell], versions: Iterable[NotebookNode]) -> NotebookNode:
    """The version of which most locked texts are in a submission; of equals the first.

    Args:
        cells: of the submission.
        versions: the present one first.
    """
    texts = {cell.bare for cell in cells}
    return max(versions, key=lambda one: sum(bare(text) in texts for text in _locked(one)))


def _locked(version: NotebookNode) -> list[str]:
    return [cell.source for cell in named(version).values() if not is_answer(cell)]


def brought_up_to_date(mended: NotebookNode, old: NotebookNode, new: NotebookNode) -> NotebookNode:
    """A submission of the old version as one of the new: answers stay, and what was not answered is as it is now.

    Both have the same cells: nbgrader takes care of that once there are marks.
    """
    before, now = named(old), named(new)
    for place, cell in enumerate(mended.cells):
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in now:
            made = copy.deepcopy(now[name])
            if is_answer(made) and name in before and bare(cell.source) != bare(before[name].source):
                made.source = cell.source
                made |= {"attachments": cell.attachments} if "attachments" in cell else {}
            mended.cells[place] = made
    return mended
