"""What becomes of a class's notebooks on their way to the grader: by programs, by people, and in an archive."""

import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises.autograder.export.tables import written
from exercises.autograder.rehearse.answers import TWICE, UNREADABLE, Student, students
from transformer_lessons.data.files import replacing, write_json

__all__ = ["KEY", "TEMPLATE", "write"]

KEY = "what_is_in_it.json"  # beside what is handed in, for whoever wants to compare
TEMPLATE = "gradebook.csv"  # likewise, for `export` to fill in
FIRST_USER, FIRST_FILE = 1_000, 50_000  # Canvas's numbers


def _run(notebook: dict) -> dict:
    """As JupyterLab saves it after all cells were run."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "code":
            printed = {"output_type": "stream", "name": "stdout", "text": ["right\n"]}
            cell.update(execution_count=number, outputs=[printed] if cell["source"] else [])
    return notebook


def _of_colab(notebook: dict) -> dict:
    """Format 4.0, ids in the metadata, a kernel without a language, and Colab's own fields."""
    for cell in _run(notebook)["cells"]:
        cell["metadata"].update(id=cell.pop("id"), colab={"base_uri": "https://localhost:8080/"})
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook["metadata"] = {"colab": {"provenance": []}, "kernelspec": kernel}
    return {**notebook, "nbformat": 4, "nbformat_minor": 0}


def _of_vs_code(notebook: dict) -> dict:
    """Format 4.2, without ids and without the grader's marks."""
    for cell in _run(notebook)["cells"]:
        del cell["id"]
        cell["metadata"] = {"vscode": {"languageId": "python"}}
    return {**notebook, "nbformat_minor": 2}


def _answer(notebook: dict, chance: random.Random) -> dict:
    """A code cell that is a student's, filled in if there is any."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    answers = [cell for cell in cells if cell["metadata"].get("nbgrader", {}).get("solution")]
    filled = [cell for cell in answers if "your answer goes here" not in "".join(cell["source"])]
    return chance.choice(filled or answers)


def _without_a_test(notebook: dict, chance: random.Random) -> None:
    marks = [(cell, cell["metadata"].get("nbgrader", {})) for cell in notebook["cells"]]
    tests = [cell for cell, about in marks if about.get("grade") and about["locked"]]
    notebook["cells"].remove(chance.choice(tests))


def _that_cannot_be_parsed(notebook: dict, chance: random.Random) -> None:
    cell = _answer(notebook, chance)
    cell["source"] = "".join(cell["source"]) + "\nprint('done'"


def _with_a_helper(notebook: dict, chance: random.Random) -> None:
    """A cell of the student's own before an answer."""
    cells, answer = notebook["cells"], _answer(notebook, chance)
    text = "def show(name, x):\n    print(name, tuple(x.shape), x.dtype, x.min().item(), x.max().item())"
    own = {"cell_type": "code", "id": f"own-{chance.randrange(10**6):06}", "metadata": {}, "source": text}
    cells.insert(cells.index(answer), {**own, "execution_count": None, "outputs": []})


# How files are saved, and what is done to a notebook before, by name.
PROGRAMS = {"JupyterLab": _run, "Colab": _of_colab, "VS Code": _of_vs_code}
TROUBLES = {
    "a test is deleted": _without_a_test,
    "a cell cannot be parsed": _that_cannot_be_parsed,
    "a cell of their own": _with_a_helper,
}


def write(folder: Path, number: int, assignment: str) -> Path:
    """Write a class's files; the archive to hand to the grader. `KEY` beside it says who did what.

    The same arguments write the same bytes.

    Args:
        folder: made if it is not there.
        number: of students.
        assignment: its name.

    Raises:
        ValueError: for a number below 1, or an assignment that is not there.
    """
    group, source = students(number, assignment), folder / f"{assignment}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    files = [(student, name, text) for student in group for name, text in _files(student, assignment)]
    with replacing(source) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for n, (student, name, text) in enumerate(files, start=FIRST_FILE):
            late = "_LATE" if student.is_late else ""
            member = f"{student.student}{late}_{_user(student)}_{n}_{name}.ipynb"
            archive.writestr(zipfile.ZipInfo(member), text.encode(), zipfile.ZIP_DEFLATED)
    write_json(folder / KEY, {"assignment": assignment, "students": [_about(student) for student in group]})
    (folder / TEMPLATE).write_bytes(_gradebook(group, assignment).encode())
    return source


def _gradebook(group: list[Student], assignment: str) -> str:
    """As Canvas exports it, without marks."""
    header = ["Student", "ID", "SIS Login ID", "Section", f"{assignment} (1)"]
    rows = [[one.student, str(_user(one)), one.student, "Rehearsal", ""] for one in group]
    return written([header, *rows])


def _files(student: Student, assignment: str) -> Iterator[tuple[str, str]]:
    """What a student hands in, by name, as their program saves it."""
    if student.notebook is None:
        return
    chance = random.Random(student.student)
    if student.draft is not None:
        yield assignment, _text(student, student.draft, chance)
    text = _text(student, student.notebook, chance)
    cut = text[: len(text) * 3 // 5] if student.trouble == UNREADABLE else text
    is_copy = student.program == "Colab" and student.trouble != TWICE and chance.random() < 0.5
    again = "-1" if student.trouble == TWICE else ""
    yield f"{'Copy of ' if is_copy else ''}{assignment}{again}", cut


def _text(student: Student, notebook: NotebookNode, chance: random.Random) -> str:
    content = json.loads(nbformat.writes(notebook))
    if student.trouble in TROUBLES:
        TROUBLES[student.trouble](content, chance)
    return json.dumps(PROGRAMS[student.program](content), indent=1, ensure_ascii=False) + "\n"


def _user(student: Student) -> int:
    return FIRST_USER + int(student.student.rpartition("-")[2])


def _about(student: Student) -> dict:
    """What there is to know of a student; the id is the one that the intake gives."""
    fields = ("program", "trouble", "is_late", "copied_from", "kinds")
    known = {"student": f"{student.student}_{_user(student)}", "name": student.student}
    return known | {name: getattr(student, name) for name in fields}
