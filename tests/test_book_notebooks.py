"""What every committed notebook must be, beyond running: nbval would pass one whose outputs were stripped."""

import re
import subprocess
import sys

import nbformat
import pytest

from book.notebooks import CELL_METADATA, KERNEL, chapters, normalise
from book.setup_cell import SETUP_CELL

EQUATION = re.compile(r'<a id="(eq:[a-z0-9-]+)"></a>')
SECTION = re.compile(r'<a id="(ch\d\d-[a-z0-9-]+)"></a>')
LARGEST = 500_000  # bytes


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def prose(path) -> str:
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


@pytest.fixture(params=chapters(), ids=lambda path: path.stem)
def chapter(request):
    return request.param


def numbered() -> list:
    """The chapters proper; "The paper, checked" has no number."""
    return [path for path in chapters() if path.stem[:2].isdigit()]


def test_there_are_chapters():
    numbers = [int(path.stem[:2]) for path in numbered()]
    assert numbers == [*range(1, max(numbers) + 1)]
    assert len(numbers) >= 18


def test_was_executed_top_to_bottom_without_complaint(chapter):
    cells = code_cells(chapter)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_is_normalised(chapter):
    text = chapter.read_text(encoding="utf-8")
    assert text == nbformat.writes(normalise(nbformat.reads(text, as_version=4))) + "\n"
    assert len(text.encode()) < LARGEST
    notebook = read(chapter)
    nbformat.validate(notebook)
    assert dict(notebook.metadata.kernelspec) == KERNEL
    assert all(set(cell.metadata) <= set(CELL_METADATA) for cell in notebook.cells)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def test_begins_with_the_setup_cell_that_all_share(chapter):
    first = code_cells(chapter)[0]
    assert first.source == SETUP_CELL
    assert "setup" in first.metadata.tags
    assert first.outputs == []


def test_setup_cell_leaves_torch_and_numpy_alone():
    assert len(SETUP_CELL.splitlines()) <= 15
    assert SETUP_CELL.count("pip install") == SETUP_CELL.count("--no-deps") == 1
    assert not re.search(r"(torch|numpy)\s*[=<>~]=", SETUP_CELL)


def test_every_equation_is_asserted_by_its_cell(chapter):
    labels = EQUATION.findall(prose(chapter))
    assert labels
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
    number = str(int(chapter.stem[:2])) if chapter in numbered() else chapter.stem[0].upper()
    assert numbers == [(number, str(place)) for place in range(1, len(labels) + 1)]


def test_every_figure_has_an_authored_alternative_text_and_prints_a_number(chapter):
    for cell in code_cells(chapter):
        drawings = [o for o in cell.outputs if {"image/svg+xml", "image/png"} & set(o.get("data", {}))]
        if drawings:
            assert len(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")) > 60
            printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
            assert re.search(r"\d", printed), cell.source


def test_code_fits_the_page(chapter):
    lines = [line for cell in code_cells(chapter)[1:] for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("chapter", numbered(), ids=lambda path: path.stem)
def test_has_the_parts_of_a_chapter(chapter):
    text = prose(chapter)
    number = int(chapter.stem[:2])
    assert text.startswith(f"# {number}. ")
    assert re.search(r"\*\*[^*]+\?\*\*", text.split("##")[0]), "opens with a question"
    assert "After it you can" in text.split("##")[0]
    for heading in ("## Summary", "## Check yourself", "## Exercise", "## Further reading"):
        assert heading in text
    assert re.search(r"^## .*What goes wrong", text, re.MULTILINE)
    questions = text.partition("## Check yourself")[2]
    assert 3 <= questions.count("<details>") <= 5
    assert text.count("<details>") == text.count("</details>")
    anchors = SECTION.findall(text)
    assert len(anchors) == len(set(anchors)) >= 6
    assert all(anchor.startswith(f"ch{number:02}-") for anchor in anchors)


def test_is_spelt_correctly(chapter):
    """codespell on what a person wrote; drawings in a notebook's outputs are full of words that are none."""
    text = "\n".join(cell.source for cell in read(chapter).cells)
    command = [sys.executable, "-m", "codespell_lib", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_reads_well_in_colab_too(chapter):
    """Colab shows MyST's directives and roles raw, and has no file of ours beside the notebook."""
    text = prose(chapter)
    assert "```{" not in text
    assert ":::" not in text
    assert not re.search(r"\{[a-z:]+\}`", text)
    assert not re.search(r"!\[[^]]*\]\((?!https?:)", text)
