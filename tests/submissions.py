"""Made-up submissions of one assignment, the points of its cells, and a dump of the resulting gradebook."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook

from exercises import release


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def answers_in(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """The texts of the answer cells, by cell id."""
    return {
        cell.id: cell.source for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")
    }


NAME = "ps01_embeddings_attention"
WRITTEN = "ps01-7-scale-answer"
MASTER = release.HERE / "source" / NAME / f"{NAME}.ipynb"
RELEASED = release.HERE / "release" / NAME / f"{NAME}.ipynb"
# Points and type of each graded cell; TESTED is the sum that tests award, a person marks the rest.
WORTH = {
    cell.id: (cell.metadata.nbgrader.points, cell.cell_type)
    for cell in read(MASTER).cells
    if cell.metadata.get("nbgrader", {}).get("grade")
}
TESTED = sum(points for points, kind in WORTH.values() if kind == "code")
# The master's answers, by cell id.
SOLVED = answers_in(read(MASTER))
SOLVED[WRITTEN] = "because **variance** adds: <i onclick=x>d_k</i>"


def worth(name: str) -> float:
    return WORTH[name][0]


def with_answers(texts: Mapping[str, str] = {}) -> nbformat.NotebookNode:
    """The released notebook, with these texts (by cell id) in place of its own."""
    notebook = read(RELEASED)
    for cell in notebook.cells:
        cell.source = texts.get(cell.id, cell.source)
    return notebook


def hand_in(folder: Path, **notebooks: nbformat.NotebookNode) -> Path:
    for student, notebook in notebooks.items():
        (folder / student).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, folder / student / f"{NAME}.ipynb")
    return folder


def dump(url: str) -> list[str]:
    """All entries about submissions in the gradebook, as sorted lines, without its own ids and times."""
    with Gradebook(url) as book:
        lines = [f"student {student.id}" for student in book.students]
        submissions = (book.assignment_submissions(assignment.name) for assignment in book.assignments)
        for submission in chain.from_iterable(submissions):
            place = f"{submission.assignment.name} {submission.student.id}"
            lines.append(f"submission {place} {submission.timestamp}")
            for notebook in submission.notebooks:
                lines.append(f"notebook {place} {notebook.name} penalty {notebook.late_submission_penalty}")
                for grade in notebook.grades:
                    points = f"{grade.auto_score} {grade.manual_score} {grade.extra_credit}"
                    lines.append(f"grade {place} {grade.name} {points} {grade.needs_manual_grade}")
                for comment in notebook.comments:
                    words = f"{comment.auto_comment!r} {comment.manual_comment!r}"
                    lines.append(f"comment {place} {comment.name} {words}")
    return sorted(lines)


def give(course: Path, name: str, student: str, points: float) -> None:
    """Enter a manual mark for an answer, as formgrader does."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        mark = gradebook.find_grade(name, NAME, NAME, student)
        mark.manual_score, mark.needs_manual_grade = points, False
        gradebook.db.commit()
