"""What was mended in a submission, in sentences for its student."""

from collections.abc import Iterator

from exercises.autograder.intake.cells import Cell
from exercises.autograder.intake.contents import shown
from exercises.autograder.intake.matching import Match, is_answer, same

__all__ = ["about_contents", "about_names"]

MARKS = ("grade", "locked", "points", "solution", "task")
MOST_NAMES = 8  # that a sentence lists
REASONS = {"definition": "because of what it defines", "place": "because of where it stands"}


def about_names(cells: list[Cell], known: dict, found: Match) -> Iterator[str]:
    """Of cells that were marked as what they are not, had lost their marks, or were there more than once."""
    for cell in cells:
        if cell.grade_id is not None and cell.grade_id not in known:
            marked = f"Cell {cell.number} was marked as “{shown(cell.grade_id)}”"
            yield f"{marked}, which is no cell of the assignment; the mark was taken off."
        elif cell.marks and cell.grade_id is None:
            yield f"Cell {cell.number} had marks of the grader without a name; they were taken off."
    lost = [name for name, by in found.by.items() if by in ("id", "text")]
    if lost:
        yield f"{_listed(lost)} had lost the grader's marks and got them back."
    for name, by in found.by.items():
        if by in REASONS:
            number = found.cells[name].number
            yield f"Cell {number} had no marks of the grader; it was taken as {name}, {REASONS[by]}."
    for name, copies in found.copies.items():
        if copies:
            yield _about_copies(name, len(copies) + 1, is_answer(known[name]), found.cells[name].number)


def _about_copies(name: str, times: int, is_an_answer: bool, number: int) -> str:
    which = ", the last that was filled in," if is_an_answer else ""
    return (
        f"{name} was there {times} times; cell {number}{which} counts. Other texts stay as cells of your own."
    )


def about_contents(known: dict, found: Match, moved: list[str]) -> Iterator[str]:
    """Of cells that were missing, of another type, with other marks, changed though locked, or out of order."""
    missing = [name for name in known if name not in found.cells]
    if missing:
        yield f"{_listed(missing)} {_was(missing)} missing and {_was(missing)} put back."
    for name, cell in found.cells.items():
        released = known[name]
        if cell.type != released.cell_type:
            yield f"{name} was a {cell.type} cell and was turned back into a {released.cell_type} cell."
        marks = released.metadata.nbgrader
        changed = [mark for mark in MARKS if (cell.marks.get(mark) or 0) != (marks.get(mark) or 0)]
        if found.by[name] == "marks" and changed:
            yield f"{name} had other marks for the grader ({', '.join(changed)}) and got its own back."
        if not is_answer(released) and not same(cell, released):
            kept = " and what you wrote there stands behind it" if cell.bare else ""
            yield f"{name} is locked but was changed; the text was put back{kept}."
    if moved:
        what = _was(moved, "the answer it tests", "the answers they test")
        yield f"{_listed(moved)} stood before {what} and {_was(moved)} moved behind."


def _listed(names: list[str]) -> str:
    """A few cells by name, many by their number."""
    if len(names) > MOST_NAMES:
        return f"{len(names)} cells"
    if len(names) == 1:
        return f"The cell {names[0]}"
    return f"The cells {', '.join(names[:-1])} and {names[-1]}"


def _was(names: list[str], one: str = "was", more: str = "were") -> str:
    return one if len(names) == 1 else more
