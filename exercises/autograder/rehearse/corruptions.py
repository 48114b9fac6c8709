"""What becomes of a notebook on its way to the grader: what programs make of it, and what people do to it."""

import random

__all__ = ["PROGRAMS", "TROUBLES"]


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
