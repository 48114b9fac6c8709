"""Pages beside the chapters: what they say about the chapters is true."""

import pkgutil
import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from pybtex.database import Entry, parse_file

from book.generated import PLACES
from book.notebooks import CHAPTERS, chapters, prose
from transformer_lessons.data.files import read_json
from transformer_lessons.tools.submission import assignments

BOOK = Path(__file__).parents[1] / "book"
NUMBERED = [path.stem for path in chapters("[0-9]*")]
LINK = re.compile(r"\[([\d.]+)\]\(chapters/(\w+)\.ipynb(?:#([\w-]+))?\)")


def page(name: str) -> str:
    return (BOOK / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    kept = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if "|---" not in line + after]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def test_the_page_on_use_links_to_every_figure_that_moves():
    moving, above = [], ""
    for path in chapters("[0-9]*"):
        text = path.read_text(encoding="utf-8").replace(r"\"", '"')  # as JSON writes it
        for drawn, live in re.findall(r'class="drawing" id="(fig-[\w-]+)"|data-live="(\w+)"', text):
            above = drawn or above
            moving += [(path.stem, above)] * bool(live)
    told = page("how_to_use.md").partition("figures move.**")
    assert told[0].endswith("**Twenty-three ")
    assert len(moving) == 23
    assert re.findall(r"\(chapters/(\w+)\.ipynb#(fig-[\w-]+)\)", told[2]) == moving


# ---- Topics and mistakes


def test_every_topic_and_every_mistake_is_where_the_page_says():
    topics, mistakes = page("topics.md").split("## Mistakes")
    assert min(len(rows(topics)), len(rows(mistakes))) >= 40
    assert {stem for _, stem, _ in LINK.findall(topics + mistakes)} >= set(NUMBERED)
    places = read_json(PLACES)["anchors"]
    for row in rows(topics) + rows(mistakes):
        links = LINK.findall(row[1])
        assert links, row
        for number, stem, anchor in links:
            words, page_of_it = places[anchor]
            assert (words.split(",")[0], page_of_it) == (f"chapter {number}", f"chapters/{stem}.html"), row
        for name in re.findall(r"`([\w.]+)`", row[1].partition(" · ")[2]):
            pkgutil.resolve_name(f"transformer_lessons.{name}")


# ---- Glossary


def test_terms_are_in_order():
    english = [row[0] for row in rows(page("glossary.md"))]
    assert english == sorted(set(english), key=str.lower)


def test_the_chapter_of_a_term_uses_it():
    for term, _, meaning in rows(page("glossary.md")):
        [(_, stem, _)] = LINK.findall(meaning)
        words = re.sub(r"[*`_$\\]", "", prose(CHAPTERS / f"{stem}.ipynb")).lower()
        assert term.lower() in " ".join(words.split()), (term, stem)


# ---- The front page, and the Chinese entry


def test_front_page_has_the_reading_times_and_assignments_of_the_chapters():
    table = rows(page("index.md"))
    assert [re.search(r"chapters/(\w+)", row[0])[1] for row in table] == NUMBERED
    taught = {name[:4]: re.findall(r"\d+", one["chapters"]) for name, one in assignments().items()}
    for chapter, row in zip(chapters("[0-9]*"), table, strict=True):
        minutes = re.search(r"Reading takes about (\d+) minutes", prose(chapter))[1]
        goes_with = [f"`{name}`" for name, numbers in taught.items() if str(int(chapter.stem[:2])) in numbers]
        assert row[2:] == [minutes, "".join(goes_with)]


def test_the_chinese_page_lists_every_chapter():
    linked = re.findall(r"\(chapters/(\w+)\.ipynb\)", page("zh.md"))
    assert linked == [path.stem for path in chapters()]


def test_the_page_for_instructors_is_short():
    assert len(page("instructors.md").split()) <= 1500


# ---- References

WORKS = parse_file(str(BOOK / "references.bib")).entries
URLS = {work.fields["url"]: work for work in WORKS.values()}
# A link to one of these hosts is a citation; code, data sheets and documentation are linked and not listed.
PAPERS = {urlsplit(url).netloc for url in URLS}


def surnames(work: Entry) -> list[str]:
    """The surnames of the authors; a shortened list ends with "others"."""
    people = [person.rich_prelast_names + person.rich_last_names for person in work.persons["author"]]
    return [" ".join(map(str, parts)) for parts in people]


def ways(work: Entry) -> list[str]:
    """Accepted citations; a letter separates works of one author and year; three authors may all be named."""
    year = work.fields["year"] + re.search(r"\d{4}(b?)$", work.key)[1]
    first, *others = surnames(work)
    names = [f"{first} et al." if others[1:] else " and ".join([first, *others])]
    names += [f"{first}, {' and '.join(others)}"] if len(others) == 2 else []
    return [f"{one} {year}" for one in names]


def citations() -> list[tuple[str, str, str, str]]:
    """For every link to a paper: its page, the text before it, its own text, and its target."""
    texts = {path.stem: prose(path) for path in chapters()}
    texts |= {path.stem: path.read_text(encoding="utf-8") for path in BOOK.glob("*.md")}
    return [
        (name, text[: link.start()], link[1], link[2])
        for name, text in texts.items()
        for link in re.finditer(r"\[([^\]]*)\]\((https?://[^)\s]+)\)", text)
        if urlsplit(link[2]).netloc.removeprefix("www.") in PAPERS
    ]


@cache
def package() -> str:
    """The package's sources, joined into one line."""
    files = (BOOK.parent / "transformer_lessons").glob("**/*.py")
    return " ".join(word for path in files for word in path.read_text(encoding="utf-8").split())


def test_every_paper_that_is_linked_is_in_the_references():
    found = citations()
    assert len(found) >= 150
    assert [(name, text) for name, _, text, url in found if url not in URLS] == []
    in_docstrings = set(re.findall(r"https://(?:arxiv|doi)\.org/[\w./-]+\w", package()))
    assert set(URLS) == {url for *_, url in found} | in_docstrings


def test_a_citation_has_the_authors_and_the_year_of_the_work():
    for name, before, text, url in citations():
        allowed = ways(URLS[url])
        if re.fullmatch(r"\d{4}\w?", text):  # names stand outside: Voita et al. ([2019](…))
            assert allowed[0].endswith(f" {text}"), (name, text, allowed)
            assert surnames(URLS[url])[0] in before[-60:], (name, text, allowed)
        else:
            assert text in allowed or not re.search(r"\d{4}", text), (name, text, allowed)


def test_a_citation_without_a_link_is_of_a_work_in_the_references():
    texts = [re.sub(r"\[[^\]]*\]\([^)]*\)", "", prose(path)) for path in chapters()] + [package()]
    name = r"[A-Z][\w’-]+"
    several = rf"{name}(?: and {name}| et al\.) (?:19|20)\d\d\b"
    alone = rf"(?<!and )\b(?:{'|'.join(surnames(work)[0] for work in WORKS.values())}) (?:19|20)\d\d\b"
    found = {cited for text in texts for cited in re.findall(f"{several}|{alone}", text)}
    assert len(found) >= 15
    assert found - {way for work in WORKS.values() for way in ways(work)} == set()


def test_every_work_is_listed_once():
    cited = re.findall(r"\{cite:[tp]\}`([^`]+)`", page("references.md"))
    assert Counter(",".join(cited).split(",")) == Counter(list(WORKS))
