"""How a chapter is told: drawings with numbers and captions, short cells, few words of proof, honest minutes."""

import re
from functools import cache

import nbformat
import pytest

from book.notebooks import chapters

FIGURE = re.compile(r'<figure class="drawing" id="fig-([\w-]+)"')
HIDDEN = {"hide-cell", "hide-input", "remove-input", "remove-cell", "setup"}
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)

numbered = [path for path in chapters() if path.stem[:2].isdigit()]
on_every_chapter = pytest.mark.parametrize("chapter", numbered, ids=lambda path: path.stem)


@cache
def cells(path, kind: str) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def road(path) -> str:
    """What a reader reads without opening a fold, in words and symbols."""
    text = FOLD.sub("", "\n\n".join(cell.source for cell in cells(path, "markdown")))
    return re.sub(r"<[^>]*>", "", text)


def visible(path) -> list:
    return [cell for cell in cells(path, "code") if not HIDDEN & set(cell.metadata.get("tags", []))]


def drawn(path) -> list[tuple[str, str]]:
    """Of each figure its number, and what is read aloud: caption and alternative text."""
    found = []
    for cell in cells(path, "code"):
        for data in (output.get("data", {}) for output in cell.outputs):
            found += [(number, data["text/plain"]) for number in FIGURE.findall(data.get("text/html", ""))]
    return found


@on_every_chapter
def test_figures_have_numbers_captions_and_words_and_are_mentioned(chapter):
    figures = drawn(chapter)
    assert len(figures) >= 5
    assert [number for number, _ in figures] == [
        f"{int(chapter.stem[:2])}-{n + 1}" for n in range(len(figures))
    ]
    text = "\n".join(cell.source for cell in cells(chapter, "markdown"))
    for number, told in figures:
        caption, alt = re.fullmatch(r"Figure [\d.]+\. (.+?[.?!]) \((.+)\)", told, re.DOTALL).groups()
        assert len(caption.split()) <= 35, caption
        assert 8 <= len(alt.split()) <= 75, alt
        assert f"(#fig-{number})" in text, number


@on_every_chapter
def test_no_picture_is_left_without_a_number(chapter):
    outputs = [output.get("data", {}) for cell in cells(chapter, "code") for output in cell.outputs]
    assert not [data for data in outputs if {"image/png", "image/svg+xml"} & set(data)]


@on_every_chapter
def test_cells_are_as_short_as_what_a_reader_would_type(chapter):
    long = [
        cell.source
        for cell in visible(chapter)
        if len(cell.source.splitlines()) > 25
        and not any(tag.startswith("canon:") for tag in cell.metadata.get("tags", []))
    ]
    assert long == []


@on_every_chapter
def test_proof_stands_behind_folds(chapter):
    lines = [line for cell in visible(chapter) for line in cell.source.splitlines() if line.strip()]
    proof = [line for line in lines if re.match(r"\s*assert ", line)]
    assert len(proof) <= len(lines) / 20 + 1, proof


@on_every_chapter
def test_the_road_is_short_and_its_minutes_are_honest(chapter):
    words = len(re.findall(r"\S*\w\S*", road(chapter)))
    if chapter.stem[:2] != "00":
        assert 1_700 <= words <= 2_900
    lines = sum(len(cell.source.splitlines()) for cell in visible(chapter))
    minutes = words / 150 + lines / 15 + len(drawn(chapter))
    told = int(re.search(r"Reading takes about (\d+) minutes", road(chapter))[1])
    assert abs(told - minutes) <= 5


@on_every_chapter
def test_a_fold_says_what_is_in_it(chapter):
    folded = [
        cell
        for cell in cells(chapter, "code")
        if {"hide-cell", "hide-input"} & set(cell.metadata.get("tags", []))
    ]
    for cell in folded[1:]:  # after the setup cell, which all chapters share
        title = re.match(r"# @title (.+)", cell.source)[1]  # which Colab shows
        assert cell.metadata.mystnb.code_prompt_show == cell.metadata.mystnb.code_prompt_hide == title
