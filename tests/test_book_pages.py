"""Pages beside the chapters: what they say of the chapters must be so."""

import re
from pathlib import Path

import nbformat
import pytest

from book.notebooks import chapters

BOOK = Path(__file__).parents[1] / "book"
LINK = re.compile(r"\[([\d.]+)\]\(chapters/(\w+)\.ipynb(?:#([\w-]+))?\)")


def page(name: str) -> str:
    return (BOOK / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    kept = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if "|---" not in line + after]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def prose(stem: str) -> str:
    notebook = nbformat.read(BOOK / "chapters" / f"{stem}.ipynb", as_version=4)
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def numbered() -> list[str]:
    return [path.stem for path in chapters() if path.stem[:2].isdigit()]


def section_of(anchor: str, text: str) -> str:
    """The number of the section in which an anchor stands."""
    headings = re.findall(r"^## (\d+\.\d+) ", text[: text.index(f'<a id="{anchor}">')], re.MULTILINE)
    own = re.search(rf'<a id="{anchor}"></a>\n+## (\d+\.\d+) ', text)
    return own[1] if own else headings[-1]


# ---- Where is what


def test_every_topic_and_every_mistake_is_where_the_page_says():
    topics, mistakes = page("topics.md").split("## Mistakes")
    assert len(rows(topics)) >= 40
    assert len(rows(mistakes)) >= 40
    for row in rows(topics) + rows(mistakes):
        links = LINK.findall(row[1])
        assert links, row
        for number, stem, anchor in links:
            assert number == section_of(anchor, prose(stem)), (row, anchor)


def test_every_chapter_has_topics():
    linked = {stem for _, stem, _ in LINK.findall(page("topics.md"))}
    assert linked >= set(numbered())


# ---- Glossary


def test_a_hundred_terms_in_two_languages_in_order():
    table = rows(page("glossary.md"))
    english, chinese = [row[0] for row in table], [row[1] for row in table]
    assert len(set(english)) == len(set(chinese)) == len(table) == 100
    assert english == sorted(english, key=str.lower)
    assert [word for word in chinese if not re.search("[\u4e00-\u9fff]", word)] == []


def test_the_chapter_of_a_term_uses_it():
    missing = []
    for term, _, meaning in rows(page("glossary.md")):
        if meaning.endswith("(16)"):  # not written yet
            continue
        ((_, stem, _),) = LINK.findall(meaning)
        words = re.sub(r"[*`_$\\]", "", prose(stem)).lower()
        if term.lower() not in re.sub(r"\s+", " ", words):
            missing.append((term, stem))
    assert missing == []


# ---- How to use, and the Chinese entry


def minutes(stem: str) -> str:
    return re.search(r"Reading takes about ([\w ]*?(?:minutes|hour))", prose(stem))[1]


@pytest.mark.parametrize("stem", numbered())
def test_hours_are_those_of_the_chapters(stem):
    (row,) = [
        row for row in rows(page("how_to_use.md")) if f"chapters/{stem}.ipynb" in row[0] and len(row) == 3
    ]
    assert row[1] == minutes(stem)
    (assignment,) = re.findall(r"`(ps\d\d)_", prose(stem).partition("## Exercise")[2])[:1]
    assert row[2] == f"`{assignment}`"


def test_the_chinese_page_lists_every_chapter():
    linked = re.findall(r"\(chapters/(\w+)\.ipynb\)", page("zh.md"))
    assert linked == [path.stem for path in chapters()]


# ---- The paper, checked

VERDICTS = {
    "agrees",
    "agree",
    "agrees in part",
    "differs from itself",
    "differs, on a task that can't show it",
}


def test_every_claim_of_the_paper_has_a_verdict():
    text = prose("paper_checked")
    claims, verdicts = text.partition("## The verdicts")[::2]
    table = rows(verdicts)
    assert len(table) >= 20
    assert [row for row in table if len(row) != 3 or not row[1]] == []
    (last,) = [row[2] for row in table if row[2] not in VERDICTS]
    assert last == "[not testable here](#paper-not-here)"
    # Each section is linked from one row.
    anchors = set(re.findall(r'<a id="(paper-[\w-]+)">', claims)) - {"paper-verdicts"}
    assert sorted(re.findall(r"\]\(#(paper-[\w-]+)\)", verdicts)) == sorted(anchors)
