"""Repaired submissions: every cell of the assignment is back, and nothing that the student wrote is lost."""

import copy
import json
import re
from functools import partial
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises.autograder.intake import repair as repairs
from exercises.autograder.intake.cells import CannotBeGraded, cells_of, normalize_source
from transformer_lessons.tools.submission import grade_id

RELEASE = Path(__file__).parent.parent / "exercises" / "release"
NAMES = ("ps01_embeddings_attention", "ps10_bug_clinic")
RELEASED = {name: nbformat.read(RELEASE / name / f"{name}.ipynb", as_version=4) for name in NAMES}
PS01, PS10 = RELEASED.values()


def handed_in(released=PS01) -> dict:
    """An answered notebook as JupyterLab saves it: texts as lines, outputs and counters."""
    notebook = json.loads(nbformat.writes(released))
    for number, cell in enumerate(notebook["cells"]):
        text = "".join(cell["source"])
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            mine = f"mine = {cell['id']!r}"
            text = text.replace('raise NotImplementedError("your answer goes here")', mine)
            text = text.replace("*Your answer goes here.*", mine)
            assert mine in text
        cell["source"] = text.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell["execution_count"] = number
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "right"}]
    return notebook


def saved_by_colab(notebook: dict) -> dict:
    """Format 4.0, with ids in the metadata and Colab's own fields."""
    for cell in notebook["cells"]:
        cell["metadata"].update(id=cell.pop("id"), colab={"base_uri": "https://localhost:8080/"})
    notebook["metadata"] = {"colab": {"provenance": []}, "kernelspec": {"name": "python3"}}
    return {**notebook, "nbformat_minor": 0}


def saved_by_vs_code(notebook: dict, names: tuple = ("id",)) -> dict:
    """Without the grader's metadata, and without ids or what else has these names."""
    for cell in notebook["cells"]:
        cell["metadata"] = {"vscode": {"languageId": "python"}}
        for name in names:
            del cell[name]
    return notebook


def cell_of(notebook: dict, name: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell.get("id") == name)


def sources(notebook: dict) -> list[str]:
    return ["".join(cell["source"] or "") for cell in notebook["cells"]]


def order(notebook) -> list[str | None]:
    return [grade_id(cell) for cell in notebook["cells"]]


def assert_whole(mended, released):
    """What grading relies on: each cell of the assignment once, in its order, in its own words if locked."""
    nbformat.validate(mended)
    assert mended.metadata == released.metadata
    theirs = [cell for cell in mended.cells if grade_id(cell)]
    known = [cell for cell in released.cells if grade_id(cell)]
    for got, cell in zip(theirs, known, strict=True):
        assert (got.cell_type, got.metadata, got.id) == (cell.cell_type, cell.metadata, cell.id)
        assert got.source == cell.source or not cell.metadata.nbgrader.locked
    for cell in mended.cells:
        assert cell.get("outputs", []) == [] or cell.id.endswith("-run")
        assert cell.get("execution_count") is None


def assert_nothing_is_lost(submitted: dict, mended, released):
    there = {normalize_source(cell.source) for cell in (*mended.cells, *released.cells)} | {""}
    assert {normalize_source(text) for text in sources(submitted)} - there == set()


def repair(notebook: dict, released) -> tuple[nbformat.NotebookNode, tuple[str, ...]]:
    cells, notes = cells_of(notebook)
    mended, sentences = repairs.repair_notebook(cells, repairs.Released(released))
    return mended, (*notes, *sentences)


def mend(notebook: dict, released=PS01):
    before = copy.deepcopy(notebook)
    mended, repairs = repair(notebook, released)
    assert notebook == before, "the submission itself must not change"
    assert_whole(mended, released)
    assert_nothing_is_lost(before, mended, released)
    return mended, repairs


@pytest.mark.parametrize("released", RELEASED.values(), ids=NAMES)
def test_what_colab_and_other_programs_change_is_repaired(released):
    """Colab changes nothing that matters, others drop metadata and ids; ten tests of ps10 have one text."""
    marks = [cell.metadata.nbgrader for cell in released.cells if grade_id(cell)]
    locked, answers = sum(mark.locked for mark in marks), sum(mark.solution for mark in marks)
    lost = "The grader's metadata were lost and were restored: {} cells."
    for program, said, number in (
        (dict, [], 0),
        (saved_by_colab, [], 0),
        (partial(saved_by_vs_code, names=()), [lost.format(len(marks))], 1),
        (saved_by_vs_code, [lost.format(locked)], 1 + answers),
    ):
        notebook = program(handed_in(released))
        mended, repairs = mend(notebook, released)
        assert (sources(mended), order(mended)) == (sources(notebook), order(released))
        assert (list(repairs[:1]), len(repairs)) == (said, number)


def change(name: str, **fields):
    return lambda nb: cell_of(nb, name).update(fields)


def mark(name: str, **fields):
    return lambda nb: cell_of(nb, name)["metadata"]["nbgrader"].update(fields)


def own(text: str, kind: str = "code", **metadata) -> dict:
    return {"cell_type": kind, "id": "abc", "metadata": metadata, "source": text, "outputs": []}


def remove(*names: str):
    return lambda nb: [nb["cells"].remove(cell_of(nb, name)) for name in names]


def test_repairs_are_reported():
    notebook = handed_in()
    for spoil in (
        remove("ps01-4-defects-test", "ps01-4-repaired-test"),
        change("ps01-1-answer", cell_type="markdown"),
        change("ps01-2-answer", cell_type=["code"]),
        change("ps01-imports", source="import numpy"),
        change("ps01-1-text", source=" \n"),
        mark("ps01-3-test", points=100, locked=False),
        mark("ps01-5-capped-answer", grade_id="mine"),
    ):
        spoil(notebook)
    turned = "cell and was turned back into a code cell."
    put_back = "is locked but was changed; its text was restored"
    assert mend(notebook)[1] == (
        "Cell 11 had an unknown type and was kept as text that is not run.",
        "The grader's metadata were lost and were restored: ps01-5-capped-answer.",
        "Missing cells were restored: ps01-4-defects-test, ps01-4-repaired-test.",
        f"ps01-imports {put_back} and what you wrote there is in a cell below it.",
        f"ps01-1-text {put_back}.",
        f"ps01-1-answer was a markdown {turned}",
        f"ps01-2-answer was a raw {turned}",
        "ps01-3-test: the grader's metadata (locked, points) were changed and were restored.",
    )


def test_harmless_changes_are_not_reported():
    notebook = handed_in()
    notebook["metadata"].update(widgets=float("inf"), signature={})
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).replace("\n", " \r\n")
        cell.update(source=text, outputs=[{"output_type": float("nan")}], new_in=4.9)
        cell["metadata"].update(collapsed=None, tags=3, scrolled=[])
    cell_of(notebook, "ps01-1-answer")["source"] = None
    notebook["cells"].insert(3, own(""))
    notebook["cells"].insert(9, own("1", nbgrader={"grade": True, "grade_id": 7}))
    assert mend(notebook)[1] == ()


def test_a_missing_test_sees_what_was_written_below_the_answer():
    notebook = handed_in()
    below = ["ps01-3-check", "ps01-3-heard", "ps01-3-test"]
    remove(*below)(notebook)
    place = order(notebook).index("ps01-3-answer")
    notebook["cells"].insert(place + 1, own("helper = 1"))
    mended, _ = mend(notebook)
    assert order(mended)[place:][:5] == ["ps01-3-answer", None, *below]


@pytest.mark.parametrize("place", [2, -1])
def test_a_missing_answer_does_not_undo_what_was_written_elsewhere(place):
    notebook = handed_in()
    remove("ps01-3-answer")(notebook)
    notebook["cells"].insert(place, own("def scaled_dot_product_attention(q, k, v):\n    return q"))
    mended, repairs = mend(notebook)
    assert mended.cells[order(mended).index("ps01-3-answer")].source == ""
    assert repairs == ("Missing cells were restored: ps01-3-answer.",)


@pytest.mark.parametrize(
    ("name", "texts", "which"),  # the texts of its copies; None for the released one
    [
        ("ps01-3-answer", ["first = 1", "second = 2", None, ""], ", the last one filled in,"),
        ("ps01-3-check", ["print('mine')", None, None], ""),
    ],
)
def test_last_filled_in_copy_of_an_answer_and_unchanged_copy_of_a_locked_cell_count(name, texts, which):
    notebook, given = handed_in(), next(cell.source for cell in PS01.cells if cell.id == name)
    cell = cell_of(notebook, name)
    place, copies = notebook["cells"].index(cell), [given + "\n " if text is None else text for text in texts]
    notebook["cells"][place : place + 1] = [{**copy.deepcopy(cell), "source": text} for text in copies]
    mended, repairs = mend(notebook)
    assert [cell.source for cell in mended.cells[place : place + 2]] == [texts[0], texts[1] or given]
    assert order(mended)[place : place + 2] == [None, name]
    assert len(mended.cells) == len(PS01.cells) + 1, "no other copy must be kept"
    said = f"cell {place + 2}{which} counts. Other texts were kept as cells of your own."
    assert repairs == (f"{name} was there {len(texts)} times; {said}",)


def test_an_answer_is_known_by_its_place():
    """Blank cells, cells of another type and the assignment's scratch cells are not taken for answers."""
    notebook = handed_in()
    place = order(PS01).index("ps01-7-scale-answer")
    written = own("Because the variance is d_k.", "markdown")
    notebook["cells"][place : place + 1] = [own(" ", "markdown"), own("2 + 2"), written]
    remove("ps01-1-text")(notebook)
    cell_of(notebook, "ps01-1-answer").update(id="x", metadata={})
    mended, repairs = mend(notebook)
    texts = {cell.id: cell.source for cell in mended.cells}
    assert texts["ps01-7-scale-answer"] == written["source"]
    assert texts["ps01-1-answer"] == "mine = 'ps01-1-answer'"
    taken = "Cell {} had none of the grader's metadata; it was taken as {} because of its position."
    assert repairs == (
        taken.format(6, "ps01-1-answer"),
        taken.format(place + 2, "ps01-7-scale-answer"),
        "Missing cells were restored: ps01-1-text.",
    )


@pytest.mark.parametrize(
    ("cells", "taken"),
    [
        (["ps01-7-scale-text", "One.", "Two.", "ps01-7-empty-text"], {"ps01-7-scale-answer": "One."}),
        (["ps01-7-scale-text", "ps01-7-empty-text", "Note."], {"ps01-7-empty-answer": "Note."}),
        (["ps01-7-empty-text", "ps01-7-scale-text", "Note."], {"ps01-7-scale-answer": "Note."}),
        (["ps01-intro", "Note."], {}),
    ],
)
def test_first_cell_after_a_question_is_taken_as_its_answer(cells, taken):
    notebook = handed_in()
    notes = {name: {**own(name, "markdown"), "id": f"own-{name[0]}"} for name in ("Note.", "One.", "Two.")}
    mended, _ = mend({**notebook, "cells": [notes.get(name) or cell_of(notebook, name) for name in cells]})
    found = {grade_id(cell): cell.source for cell in mended.cells if grade_id(cell)}
    assert {name: text for name, text in found.items() if text in notes} == taken


def test_only_the_first_eight_plots_of_an_experiment_are_kept():
    drawn = [
        {"image/png": "iVBORw0K", "text/html": "<b>"},
        {"image/png": [7]},
        {"image/png": ["iVBO", "Rw0K\n"]},
        {"image/jpeg": "any text", "image/svg+xml": "<svg>"},
    ]
    kept = [{"image/png": "iVBORw0K"}, {"image/png": "iVBORw0K\n"}, {"image/jpeg": "any text"}]
    plots = [{"output_type": "display_data", "data": one, "metadata": {"a": 1}} for one in drawn]
    notebook = handed_in()
    for name in ("ps01-6-run", "ps01-1-answer"):
        cell_of(notebook, name)["outputs"] = [*plots * 2, None, {"data": 7}, {"text": "epoch 1"}, *plots]
    made, _ = repair(notebook, PS01)
    cells = {cell.id: cell for cell in made.cells}
    assert [output.data for output in cells["ps01-6-run"].outputs] == kept * 2
    assert cells["ps01-1-answer"].outputs == []


def test_pictures_in_texts_are_removed():
    notebook = handed_in()
    cell_of(notebook, "ps01-7-scale-answer")["attachments"] = {"a.png": {"image/png": "iVBORw0K"}}
    pasted = f"Here: ![a](data:image/png;base64,{'iVBORw0K' * 99_999}=)."  # by Colab
    cell_of(notebook, "ps01-7-empty-answer")["source"] = pasted
    made, said = repair(notebook, PS01)
    cells = {cell.id: cell for cell in made.cells}
    assert "attachments" not in cells["ps01-7-scale-answer"]
    assert cells["ps01-7-empty-answer"].source == "Here: ![a]()."
    assert [sentence[:20] for sentence in said] == 2 * ["Pictures in the text"]


def test_lone_surrogates_are_replaced():
    notebook = handed_in()
    change("ps01-1-answer", source="a = '\ud83d'")(notebook)
    notebook["cells"].append(own("'\U0001f600'", tags=["\udc00"]))
    mended, _ = repair(notebook, PS01)
    nbformat.writes(mended).encode()
    assert "a = '�'" in sources(mended)
    assert "'\U0001f600'" in sources(mended)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cells": 3}, "The file is not a notebook: it has no cells. Download"),
        ({"cells": None, "worksheets": []}, "The file is in a notebook format from before 2015. Download"),
        ({"cells": [7]}, "Cell 1 of the file is not a cell. Copy your answers into a fresh"),
        ({"cells": [{}, {"source": {}}]}, "The content of cell 2 is not text. Copy your answers"),
        ({"cells": [{}] * 2001}, "The notebook has too many cells, lines or characters. Delete what"),
        ({"cells": [{"source": "a" * 499_751}]}, "The notebook has too many cells"),
        ({"cells": [{"source": "\n" * 19_222}]}, "The notebook has too many cells"),
    ],
)
def test_what_cannot_be_graded(change, reason):
    with pytest.raises(CannotBeGraded) as caught:
        repair({**handed_in(), **change}, PS01)
    assert str(caught.value).startswith(reason)


def test_largest_notebooks_are_accepted():
    """2,000 empty cells, one cell of 499,750 characters, and one of 19,221 line breaks are accepted."""
    for sources in [""] * 2_000, ["a" * 499_750], ["\n" * 19_221]:
        assert len(cells_of({"cells": [{"source": source} for source in sources]})[0]) == len(sources)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def places(draw, value):
    """A random place in nested values, as its container and its key."""
    while True:
        key = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
        inner = value[key]
        if not (isinstance(inner, dict | list) and inner) or draw(st.booleans()):
            return value, key
        value = inner


def spoil(data, notebook: dict) -> None:
    """Damage the notebook in one random way."""
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, dict) for cell in cells):
        return
    kind = data.draw(st.sampled_from(("double", "move", "rename", "strip", "write", "any", "del")))
    numbers = st.integers(0, len(cells) - 1)
    cell = cells[data.draw(numbers)]
    if kind == "double":
        cells.insert(data.draw(numbers), copy.deepcopy(cell))
    elif kind == "move":
        cells.insert(data.draw(numbers), cells.pop(data.draw(numbers)))
    elif kind == "rename":
        name = data.draw(st.sampled_from([cell.id for cell in PS01.cells]) | st.text(max_size=5))
        cell["metadata"] = {"nbgrader": {"grade_id": name, "grade": True, "points": 9, "solution": False}}
    elif kind == "strip":
        cell.pop("id", None)
        cell["metadata"] = {}
    elif kind == "write":
        cell["source"] = data.draw(st.text(max_size=9))
    else:
        where, key = data.draw(places(notebook))
        if kind == "any":
            where[key] = data.draw(JSON)
        else:
            del where[key]


@given(st.data())
def test_randomly_damaged_notebook_is_repaired_or_refused(data):
    notebook = json.loads(json.dumps(handed_in()))
    for _ in range(data.draw(st.integers(1, 8))):
        spoil(data, notebook)
    try:
        mended, repairs = repair(copy.deepcopy(notebook), PS01)
    except CannotBeGraded:
        return
    assert_whole(mended, PS01)
    for cell in notebook["cells"]:
        cell["source"] = re.sub("[\ud800-\udfff]", "�", "".join(cell.get("source") or ""))
    assert_nothing_is_lost(notebook, mended, PS01)
    assert all(isinstance(sentence, str) and sentence.endswith(".") for sentence in repairs)
    nbformat.writes(mended).encode()
    again, _ = repair(json.loads(nbformat.writes(mended)), PS01)
    assert (sources(again), order(again)) == (sources(mended), order(mended)), "repaired for good"
