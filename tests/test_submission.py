"""`lessons check-submission`, on notebooks made from the released one of ps01."""

import copy
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

from transformer_lessons.tools import submission

NAME = "ps01_embeddings_attention"
RELEASED = Path(__file__).parent.parent / "exercises" / "release" / NAME / f"{NAME}.ipynb"
RIGHT = """class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(vocab_size, d_model) / d_model**0.5)

    def forward(self, ids):
        if ids.dim() != 2 or ids.is_floating_point():
            raise ValueError("ids")
        return self.rows[ids] * self.rows.size(1) ** 0.5
"""
UNSCALED = """def scaled_dot_product_attention(query, key, value, mask=None):
    scores = query @ key.mT
    scores = scores if mask is None else scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    return weights @ value, weights
"""


@pytest.fixture
def notebook() -> dict:
    """The released notebook with every answer filled in and every cell run."""
    content = json.loads(RELEASED.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if is_answer(cell):
            cell["source"] = "answered = True"
        if cell["cell_type"] == "code":
            cell["execution_count"] = 1
    return content


@pytest.fixture
def check(tmp_path, lessons):
    """The command, run on a notebook written to a file; returns its exit code, output and error output."""

    def command(content: dict | str, *more: str, name: str = f"{NAME}.ipynb") -> tuple[int, str, str]:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return lessons("check-submission", str(path), *more)

    return command


def is_answer(cell: dict) -> bool:
    return cell["metadata"].get("nbgrader", {}).get("solution", False)


def cell_of(content: dict, name: str) -> dict:
    return next(cell for cell in content["cells"] if cell["id"] == name)


def test_a_complete_notebook_is_ready_to_hand_in(notebook, check):
    for cell in notebook["cells"][::2]:  # the format also allows a list of lines
        cell["source"] = "".join(cell["source"]).splitlines(keepends=True)
    assert check(notebook, "--no-run") == (0, f"{NAME}.ipynb is ready to be handed in\n", "")
    assert check(notebook, "--no-run", name="other.ipynb")[1].endswith("\n1 thing to look at\n")


def test_as_released_nothing_is_answered(check):
    text = RELEASED.read_text(encoding="utf-8")
    answers = [cell["id"] for cell in json.loads(text)["cells"] if is_answer(cell)]
    code, out, _ = check(text, "--no-run")
    assert code == 1
    assert len(answers) > 9
    assert out.splitlines() == [
        *(f"- {name} is not answered yet" for name in answers),
        f"{len(answers)} things to look at",
    ]


def spoil(nb: dict) -> None:
    nb["cells"].remove(cell_of(nb, "ps01-3-test"))
    nb["cells"].extend(copy.deepcopy(cell_of(nb, "ps01-5-largest-answer")) for _ in "ab")
    cell_of(nb, "ps01-5-capped-answer")["metadata"]["nbgrader"].update(grade_id="mine")
    cell_of(nb, "ps01-1-test").update(source="3")
    cell_of(nb, "ps01-1-answer").update(cell_type="markdown")
    cell_of(nb, "ps01-6-answer").update(execution_count=None)
    cell_of(nb, "ps01-0-try").update(outputs=["x" * 6_000_000])


def test_all_that_is_wrong_is_named(notebook, check):
    spoil(notebook)
    code, out, _ = check(notebook, "--no-run", name="ps01_embeddings_attention (1).ipynb")
    assert code == 1
    assert out.splitlines() == [
        "- the file should be called ps01_embeddings_attention.ipynb, not ps01_embeddings_attention (1).ipynb",
        "- the file is 6.0 MB, larger than 5 MB: clear large outputs",
        "- ps01-3-test is missing: copy it from a fresh notebook",
        "- ps01-5-capped-answer is missing: copy it from a fresh notebook",
        "- ps01-5-largest-answer occurs 3 times: delete the copies",
        "- mine is not a cell of ps01_embeddings_attention: was it renamed or copied from elsewhere?",
        "- ps01-1-answer should be a code cell, but is a markdown cell",
        "- ps01-1-test was changed: it is locked, and the grader restores the original",
        "- ps01-6-answer was changed but not run: run all cells from the top before you hand in",
        "9 things to look at",
    ]


NO_NOTEBOOK = ["{", '{"cells": 3}', '{"cells": [7]}', '{"cells": [{"cell_type": "code", "source": 3}]}']
NO_NOTEBOOK += ['{"cells": [{"cell_type": "code", "source": "", "metadata": 7}]}']


def test_a_file_that_is_no_notebook_of_the_course_is_refused(check, lessons):
    for text in [*NO_NOTEBOOK, '{"cells": []}']:
        code, out, error = check(text, "--no-run")
        wanted = "a notebook (.ipynb, format 4), got " if text in NO_NOTEBOOK else "one of ps01"
        assert (code, out) == (2, "")
        assert error.startswith(f"lessons check-submission: file: expected {wanted}")
        assert error.count("\n") == 1
    code, _, error = lessons("check-submission", "nowhere.ipynb")
    assert (code, "nowhere.ipynb" in error) == (2, True)


def test_the_visible_checks_are_run_and_repeated(check):
    """One right answer, one wrong, one that crashes; unanswered tasks are not mentioned again.

    Ungraded cells, some of which take long, are left out.
    """
    content = json.loads(RELEASED.read_text(encoding="utf-8"))
    content["cells"] = [cell for cell in content["cells"] if not submission.is_ungraded(cell["id"])]
    wrong = {
        "ps01-2-answer": RIGHT,
        "ps01-3-answer": UNSCALED,
        "ps01-6-answer": "def row_entropy(weights):\n    return 1 / 0",
    }
    for name, source in wrong.items():
        cell_of(content, name).update(source=source, execution_count=1)
    code, out, error = check(content)
    assert code == 1
    assert "from top to bottom" in error
    assert "- ps01-3-check: scaled_dot_product_attention: you left out the division" in out
    assert "- ps01-6-check: ZeroDivisionError: division by zero\n" in out
    assert not re.search("- ps01-(2|4|5-capped)-check", out)
    assert "\x1b" not in out


def written(path: Path, *sources: str) -> Path:
    """A notebook of these cells: the first is an answer, the others are cells that the student added."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata.nbgrader = {"grade_id": "ps01-1-answer"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_cells_run_outside_the_current_folder(tmp_path, monkeypatch, capfd):
    """A student's file may have a library's name; no file is left behind, and nothing is printed."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("ipykernel.py").write_text("raise SystemExit('this is not ipykernel')")
    path = written(tmp_path / "own.ipynb", "x = open('left.txt', 'w').close()", "print('ß')", "1 / 0")
    assert submission.run_cells(path) == ["code cell 3: ZeroDivisionError: division by zero"]
    assert [one.name for one in Path().iterdir()] == ["ipykernel.py"]
    assert capfd.readouterr() == ("", "")


def test_a_dead_kernel_and_a_missing_library_are_reported(check, tmp_path, monkeypatch):
    path = written(tmp_path / "own.ipynb", "import os", "os._exit(1)")
    text = path.read_text(encoding="utf-8")
    code, out, error = check(text)
    assert (code, out) == (2, "")
    assert "got one that ends the kernel\n" in error
    monkeypatch.setitem(sys.modules, "nbclient", None)
    assert 'pip install "transformer-lessons[submission]"' in check(text)[2]


def test_a_cell_that_takes_too_long_is_interrupted_and_the_rest_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "CELL_SECONDS", 1)
    path = written(tmp_path / "own.ipynb", "import time", "time.sleep(60)", "assert False, 'late'")
    assert submission.run_cells(path) == ["code cell 2: it took longer than 1 seconds", "code cell 3: late"]


def test_ctrl_c_ends_the_command_at_once(check, tmp_path):
    interrupt = f"import os, signal, time; os.kill({os.getpid()}, signal.SIGINT); time.sleep(60)"
    path = written(tmp_path / "own.ipynb", "pass", interrupt)
    assert check(path.read_text(encoding="utf-8"))[:2] == (130, "")
