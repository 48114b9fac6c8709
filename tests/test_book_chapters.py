"""What every committed chapter must be, apart from running: its outputs, its form and its length.

nbval would pass a chapter whose outputs were stripped. A chapter has numbered figures with captions, short
cells, few visible asserts, and a reading time that is right.
"""

import re
import subprocess
import sys
from functools import cache

import nbformat
import pytest

from book.notebooks import chapters, normalise, prose

EQUATION = re.compile(r'<a id="(eq:[a-z0-9-]+)"></a>')
FIGURE = re.compile(r'<figure class="drawing" id="fig-([\w-]+)"')
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)
FOLDED = {"hide-cell", "hide-input"}
HIDDEN = {*FOLDED, "remove-input", "remove-cell", "setup"}

on_every_chapter = pytest.mark.parametrize("chapter", chapters(), ids=lambda path: path.stem)
on_every_numbered_chapter = pytest.mark.parametrize("chapter", chapters("[0-9]*"), ids=lambda path: path.stem)


@cache
def code(path) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def setup_cell() -> str:
    """The first code cell of every notebook, the same everywhere, as the first chapter has it.

    On Colab it installs the package of this release with `--no-deps`, plus only what Colab's image lacks, so
    that torch and numpy stay as they are: replacing them under a running kernel breaks it. Elsewhere it installs
    nothing. Everywhere it imports the package before torch, which settles how torch's threads wait.
    """
    return code(chapters()[0])[0].source


def tags(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))


def visible(path) -> list:
    return [cell for cell in code(path) if not HIDDEN & tags(cell)]


def outputs(path) -> list:
    return [output for cell in code(path) for output in cell.outputs]


def drawn(path) -> list[tuple[str, str]]:
    """Each figure's number, and its caption and alternative text, which are read aloud."""
    shown = [output.get("data", {}) for output in outputs(path)]
    return [
        (number, data["text/plain"]) for data in shown for number in FIGURE.findall(data.get("text/html", ""))
    ]


@on_every_chapter
def test_was_executed_top_to_bottom_without_complaint(chapter):
    counts = [cell.execution_count for cell in code(chapter)]
    assert counts == [*range(1, len(counts) + 1)]
    assert not [one for one in outputs(chapter) if one.output_type == "error" or one.get("name") == "stderr"]
    # A picture is a numbered drawing.
    assert not [one for one in outputs(chapter) if {"image/png", "image/svg+xml"} & set(one.get("data", {}))]


@on_every_chapter
def test_is_normalised(chapter):
    text = chapter.read_text(encoding="utf-8")
    notebook = normalise(nbformat.reads(text, as_version=4))
    assert text == nbformat.writes(notebook) + "\n"
    assert len(text.encode()) < 500_000
    nbformat.validate(notebook)


@on_every_chapter
def test_begins_with_the_setup_cell_that_all_share(chapter):
    first = code(chapter)[0]
    assert first.source == setup_cell()
    assert "setup" in tags(first)
    assert first.outputs == []


@on_every_chapter
def test_every_equation_is_asserted_by_its_cell(chapter):
    labels = EQUATION.findall(prose(chapter))
    assert labels or chapter.stem in ("00_on_one_page", "15_looking_inside")  # which have no formula
    tagged = [(tag, cell.source) for cell in code(chapter) for tag in tags(cell) if tag.startswith("eq:")]
    assert sorted(tag for tag, _ in tagged) == sorted(labels)
    assert [tag for tag, source in tagged if not re.search(r"^ *assert ", source, re.MULTILINE)] == []
    # Sphinx puts an equation with \\ into `split`, in which MathJax knows no tags; \cr breaks lines as well.
    for equation in re.findall(r"\$\$(.*?)\$\$", prose(chapter), re.DOTALL):
        assert not (r"\tag" in equation and r"\\" in equation), equation
    # Each label stands before a numbered equation, and the chapter's numbers count up.
    numbers = re.findall(r"\\tag\{(\w+)\.(\d+)\}", prose(chapter))
    number = str(int(chapter.stem[:2])) if chapter.stem[0].isdigit() else chapter.stem[0].upper()
    assert numbers == [(number, str(place)) for place in range(1, len(labels) + 1)]


@on_every_chapter
def test_fits_the_page_and_reads_well_in_colab_too(chapter):
    """Colab shows MyST's directives and roles as raw text, and has none of our files beside the notebook."""
    text = prose(chapter)
    assert not re.search(r"```\{|:::|\{[a-z:]+\}`|!\[[^]]*\]\((?!https?:)", text)
    assert text.count("<details>") == text.count("</details>")
    lines = [line for cell in code(chapter)[1:] for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


def test_words_are_spelt_correctly():
    """codespell checks the sources only, as drawings in the outputs are full of strings that are no words."""
    text = "\n".join(cell.source for path in chapters() for cell in nbformat.read(path, as_version=4).cells)
    command = [sys.executable, "-m", "codespell_lib", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- Figures, folds and length


@on_every_numbered_chapter
def test_figures_have_numbers_captions_and_alt_texts_and_are_mentioned(chapter):
    figures = drawn(chapter)
    assert len(figures) >= 5
    numbers = [f"{int(chapter.stem[:2])}-{n}" for n in range(1, len(figures) + 1)]
    assert [number for number, _ in figures] == numbers
    for number, told in figures:
        caption, alt = re.fullmatch(r"Figure [\d.]+\. (.+?[.?!]) \((.+)\)", told, re.DOTALL).groups()
        assert len(caption.split()) <= 35, caption
        assert 8 <= len(alt.split()) <= 75, alt
        assert f"(#fig-{number})" in prose(chapter), number


@on_every_numbered_chapter
def test_cells_are_short_and_most_asserts_are_folded(chapter):
    typed = [cell.source for cell in visible(chapter) if "canon:" not in " ".join(tags(cell))]
    assert [source for source in typed if len(source.splitlines()) > 25] == []
    lines = [line for cell in visible(chapter) for line in cell.source.splitlines() if line.strip()]
    proof = [line for line in lines if re.match(r"\s*assert ", line)]
    assert len(proof) <= len(lines) / 20 + 1, proof


@on_every_numbered_chapter
def test_visible_text_is_short_and_its_reading_time_is_right(chapter):
    text = re.sub(r"<[^>]*>", "", FOLD.sub("", prose(chapter)))  # what a reader sees without opening a fold
    words = len(re.findall(r"\S*\w\S*", text))
    assert 1_700 <= words <= 2_900 or chapter.stem == "00_on_one_page"
    lines = sum(len(cell.source.splitlines()) for cell in visible(chapter))
    minutes = words / 150 + lines / 15 + len(drawn(chapter))
    told = int(re.search(r"Reading takes about (\d+) minutes", text)[1])
    assert abs(told - minutes) <= 5


@on_every_numbered_chapter
def test_folded_cell_has_a_title(chapter):
    folded = [cell for cell in code(chapter) if FOLDED & tags(cell)]
    for cell in folded[1:]:  # after the setup cell, which all chapters share
        title = re.match(r"# @title (.+)", cell.source)[1]  # which Colab shows
        assert cell.metadata.mystnb.code_prompt_show == cell.metadata.mystnb.code_prompt_hide == title
