"""What every committed notebook must be, beyond running: nbval would pass one whose outputs were stripped."""

import re
import subprocess
import sys
from functools import cache

import nbformat
import pytest

from book.notebooks import CELL_METADATA, KERNEL, chapters, normalise, setup_cell

EQUATION = re.compile(r'<a id="(eq:[a-z0-9-]+)"></a>')
LARGEST = 500_000  # bytes

on_every_chapter = pytest.mark.parametrize("chapter", chapters(), ids=lambda path: path.stem)


@cache
def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def prose(path) -> str:
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


@on_every_chapter
def test_was_executed_top_to_bottom_without_complaint(chapter):
    cells = code_cells(chapter)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


@on_every_chapter
def test_is_normalised(chapter):
    text = chapter.read_text(encoding="utf-8")
    assert text == nbformat.writes(normalise(nbformat.reads(text, as_version=4))) + "\n"
    assert len(text.encode()) < LARGEST
    notebook = read(chapter)
    nbformat.validate(notebook)
    assert dict(notebook.metadata.kernelspec) == KERNEL
    assert all(set(cell.metadata) <= set(CELL_METADATA) for cell in notebook.cells)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


@on_every_chapter
def test_begins_with_the_setup_cell_that_all_share(chapter):
    first = code_cells(chapter)[0]
    assert first.source == setup_cell()
    assert "setup" in first.metadata.tags
    assert first.outputs == []


@on_every_chapter
def test_every_equation_is_asserted_by_its_cell(chapter):
    labels = EQUATION.findall(prose(chapter))
    assert labels or chapter.stem in ("00_on_one_page", "15_looking_inside")  # which have no formula
    assert len(set(labels)) == len(labels)
    tagged = {}
    for cell in code_cells(chapter):
        for tag in cell.metadata.get("tags", []):
            if tag.startswith("eq:"):
                assert tag not in tagged
                tagged[tag] = cell.source
    assert sorted(tagged) == sorted(labels)
    assert [label for label in labels if not re.search(r"^ *assert ", tagged[label], re.MULTILINE)] == []
    # Sphinx puts an equation with \\ into `split`, in which MathJax knows no tags; \cr breaks lines as well.
    for equation in re.findall(r"\$\$(.*?)\$\$", prose(chapter), re.DOTALL):
        assert not (r"\tag" in equation and r"\\" in equation), equation
    # Each label stands before a numbered equation, and the chapter's numbers count up.
    numbers = re.findall(r"\\tag\{(\w+)\.(\d+)\}", prose(chapter))
    number = str(int(chapter.stem[:2])) if chapter.stem[0].isdigit() else chapter.stem[0].upper()
    assert numbers == [(number, str(place)) for place in range(1, len(labels) + 1)]


@on_every_chapter
def test_every_figure_has_an_authored_alternative_text_and_prints_a_number(chapter):
    for cell in code_cells(chapter):
        drawings = [o for o in cell.outputs if {"image/svg+xml", "image/png"} & set(o.get("data", {}))]
        if drawings:
            assert len(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")) > 60
            printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
            assert re.search(r"\d", printed), cell.source


@on_every_chapter
def test_fits_the_page_and_reads_well_in_colab_too(chapter):
    """Colab shows MyST's directives and roles raw, and has no file of ours beside the notebook."""
    text = prose(chapter)
    assert "```{" not in text
    assert ":::" not in text
    assert not re.search(r"\{[a-z:]+\}`", text)
    assert not re.search(r"!\[[^]]*\]\((?!https?:)", text)
    assert text.count("<details>") == text.count("</details>")
    lines = [line for cell in code_cells(chapter)[1:] for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


def test_words_are_spelt_correctly(tmp_path):
    """codespell on what a person wrote; drawings in a notebook's outputs are full of words that are none."""
    for path in chapters():
        (tmp_path / path.stem).write_text("\n".join(cell.source for cell in read(path).cells))
    command = [sys.executable, "-m", "codespell_lib", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
