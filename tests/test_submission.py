"""What a student hears before handing in; the notebooks are made from the released one of ps03."""

import copy
import json
from pathlib import Path

import pytest

from transformer_lessons import cli, submission

NAME = "ps03_attention"
RELEASED = Path(__file__).parent.parent / "exercises" / "release" / NAME / f"{NAME}.ipynb"
RIGHT = """def padding_mask(ids, pad_id):
    if ids.dim() != 2 or ids.is_floating_point():
        raise ValueError("ids")
    return (ids != pad_id)[:, None, None]
"""


@pytest.fixture
def notebook() -> dict:
    """The released notebook, every answer replaced by a word and run."""
    content = json.loads(RELEASED.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["id"].endswith("-answer"):
            cell["source"] = "answered = True"
        if cell["cell_type"] == "code":
            cell["execution_count"] = 1
    return content


@pytest.fixture
def check(tmp_path, capsys):
    """The command, on a notebook written to a file: its exit code, what it printed, and its complaints."""

    def command(content: dict | str, *more: str, name: str = f"{NAME}.ipynb") -> tuple[int, str, str]:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return cli.main(["check-submission", str(path), *more]), *capsys.readouterr()

    return command


def cell_of(content: dict, name: str) -> dict:
    return next(cell for cell in content["cells"] if cell["id"] == name)


def test_a_notebook_that_is_whole_has_nothing_to_look_at(notebook, check):
    assert check(notebook, "--no-run") == (0, f"{NAME}.ipynb is ready to be handed in\n", "")


def test_as_released_nothing_is_answered(check):
    code, out, _ = check(RELEASED.read_text(encoding="utf-8"), "--no-run")
    answers = [line for line in out.splitlines() if line.endswith("-answer is not answered yet")]
    assert code == 1
    assert len(answers) == 9
    assert out.splitlines()[-1] == "9 things to look at"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda nb: nb["cells"].remove(cell_of(nb, "ps03-3-test")),
            "ps03-3-test is missing: copy it from a fresh notebook",
        ),
        (
            lambda nb: nb["cells"].extend(copy.deepcopy(cell_of(nb, "ps03-2-causal-answer")) for _ in "ab"),
            "ps03-2-causal-answer is there 3 times: delete the copies",
        ),
        (
            lambda nb: cell_of(nb, "ps03-5-answer")["metadata"]["nbgrader"].update(grade_id="mine"),
            "mine is no cell of ps03_attention: was it renamed, or is it another's?",
        ),
        (
            lambda nb: cell_of(nb, "ps03-1-test").update(source="3"),
            "ps03-1-test was changed: it is locked, and the grader puts the old one back",
        ),
        (
            lambda nb: cell_of(nb, "ps03-1-answer").update(cell_type="markdown"),
            "ps03-1-answer should be a code cell, but is a markdown cell",
        ),
        (
            lambda nb: cell_of(nb, "ps03-6-answer").update(execution_count=None),
            "ps03-6-answer was changed but not run: run all cells from the top before you hand in",
        ),
        (
            lambda nb: cell_of(nb, "ps03-0-try").update(outputs=["x" * 6_000_000]),
            "the file has 6.0 MB, more than 5: clear large outputs",
        ),
    ],
)
def test_what_is_wrong_is_named(notebook, check, spoil, sentence):
    spoil(notebook)
    code, out, _ = check(notebook, "--no-run")
    assert code == 1
    assert f"- {sentence}\n" in out


def test_text_as_lines_is_the_same_text(notebook, check):
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).splitlines(keepends=True)
    assert check(notebook, "--no-run")[0] == 0


def test_a_file_that_was_renamed(notebook, check):
    code, out, _ = check(notebook, "--no-run", name="ps03_attention (1).ipynb")
    assert code == 1
    assert "- the file should be called ps03_attention.ipynb, but is ps03_attention (1).ipynb\n" in out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "file: expected a notebook (.ipynb, format 4), got "),
        ('{"cells": 3}', "file: expected a notebook (.ipynb, format 4), got "),
        ('{"cells": [7]}', "file: expected a notebook (.ipynb, format 4), got "),
        (
            '{"cells": [{"cell_type": "code", "source": 3}]}',
            "file: expected a notebook (.ipynb, format 4), got ",
        ),
        (
            '{"cells": [{"cell_type": "code", "source": "", "metadata": 7}]}',
            "file: expected a notebook (.ipynb, format 4), got ",
        ),
        ('{"cells": []}', "file: expected one of "),
    ],
)
def test_a_file_that_is_none(check, text, sentence):
    code, out, error = check(text, "--no-run")
    assert (code, out) == (2, "")
    assert error.startswith(f"lessons check-submission: {sentence}")
    assert error.count("\n") == 1


def test_a_file_that_is_not_there(capsys):
    assert cli.main(["check-submission", "nowhere.ipynb"]) == 2
    assert "nowhere.ipynb" in capsys.readouterr().err


def test_the_visible_checks_are_run_and_repeated(check):
    """One right answer, one wrong, one that crashes; of what is not answered nothing more is said."""
    content = json.loads(RELEASED.read_text(encoding="utf-8"))
    wrong = {
        "ps03-2-padding-answer": RIGHT,
        "ps03-2-causal-answer": "import torch\ndef causal_mask(n):\n    return torch.ones(n, n).tril()",
        "ps03-6-answer": "def neighbour(length):\n    return 1 / 0",
    }
    for name, source in wrong.items():
        cell_of(content, name).update(source=source, execution_count=1)
    code, out, error = check(content)
    assert code == 1
    assert "from top to bottom" in error
    lines = out.splitlines()
    assert "- ps03-2-causal-check: causal_mask: not there yet." in lines
    assert any(line.startswith("  Known mistake: your mask has shape (queries, keys)") for line in lines)
    assert "- ps03-6-check: ZeroDivisionError: division by zero" in lines
    assert not any(
        line.startswith(("- ps03-2-padding", "- ps03-3-check", "- ps03-5-check")) for line in lines
    )
    assert "\x1b" not in out


def test_without_nbval(notebook, check, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nbval", None)
    code, _, error = check(notebook)
    assert code == 2
    assert "pip install" in error
    assert "submission" in error


def test_a_notebook_that_cannot_be_run(notebook, check):
    del notebook["metadata"]
    code, _, error = check(notebook)
    assert code == 2
    assert "could not be run" in error


def test_the_assignments_hold_no_text():
    for name, one in submission.assignments().items():
        assert one["cells"], name
        assert all(set(cell) == {"type", "locked", "sum"} for cell in one["cells"].values())
