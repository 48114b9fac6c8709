"""The report about a class: its numbers, which are checked by hand, its escaping, and its HTML."""

import math
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from book import browser
from book.generated import HOME
from exercises.autograder import report
from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.report import numbers, page
from exercises.autograder.result import CellResult, Flag, Part, Result
from tests.pages import Reader, shown

NAME = "ps01_embeddings_attention"
FIRST, THIRD, WORDS = "ps01-1-test", "ps01-3-test", "ps01-7-scale-answer"
WORTH = {FIRST: 4.0, THIRD: 6.0, WORDS: 2.0}
WAITS = None  # in place of points


# ---- A small class


def mark(student: str, points: dict | None, penalty: float = 0.0, **more) -> Mark:
    """A mark from points by cell, which waits for a person if None; None in all if nothing was handed in."""
    cells = {
        name: CellMark(earned, waits=earned is WAITS, worth=WORTH.get(name, 1.0))
        for name, earned in (points or {}).items()
    }
    about = {"submitted": points is not None, "penalty": penalty, "late": penalty > 0}
    about |= {"timestamp": datetime(2026, 3, 5, 17, 4), **more}
    return Mark(student, **about, worth=12.0, cells=cells)


def result(student: str, *cells: CellResult, **more) -> Result:
    return Result(student, NAME, cells, **more)


def wrong(cell: str, *mistakes: str) -> CellResult:
    return CellResult(cell, 0.0, 1.0, mistakes=mistakes)


def question(name: str, found):
    """The question of a cell."""
    return next(one for one in found["questions"] if one["cell"] == name)


# ---- Scores


def test_scores_and_statistics_of_a_question():
    found = numbers(NAME, [mark(f"s{n}", {FIRST: one}) for n, one in enumerate((4, 4, 1, 0))], [])
    first = question(FIRST, found)
    # The mean is 9/4, so the variance is ((7/4)² + (7/4)² + (5/4)² + (9/4)²) / 4 = 51/16.
    assert (first["worth"], first["marked"], first["mean"]) == (4.0, 4, 2.25)
    assert first["deviation"] == pytest.approx(math.sqrt(51) / 4)
    assert (first["full"], first["none"]) == (0.5, 0.25)
    assert found["scores"] == [0, 0.25, 1, 1]
    assert (found["mean"], found["median"]) == (2.25 / 4, 0.625)
    assert found["deviation"] == pytest.approx(math.sqrt(51) / 16)


def test_students_and_submissions_are_counted():
    marks = [mark("a", {FIRST: 4, WORDS: WAITS}), mark("b", {FIRST: 4}), mark("c", None)]
    found = numbers(NAME, marks, [result("a")])
    assert (found["students"], found["submitted"], found["waiting"], found["tested"]) == (3, 2, 1, 1)
    assert found["worth"] == 12
    assert [one.student for one in found["missing"]] == ["c"]
    assert [one.student for one in found["by_hand"]] == ["a"]
    assert f"To mark by hand Student Waiting a {WORDS} Not submitted 1" in shown(page(found))


def test_unmarked_cells_do_not_count_as_zero():
    found = numbers(NAME, [mark("a", {FIRST: 3, THIRD: 6, WORDS: WAITS})], [])
    assert found["scores"] == [0.9]  # 9 of the 10 points that are marked; of all 12 it would be 0.75
    assert question(WORDS, found)["mean"] is None
    assert (question(WORDS, found)["marked"], question(WORDS, found)["waiting"]) == (0, 1)
    two = page(numbers(NAME, [mark("a", {WORDS: WAITS}), mark("b", {WORDS: 1})], []))
    assert "ps01-7-scale-answer 1 of 2 waits for a person 2 1.00 50%" in shown(two)
    nothing = numbers(NAME, [mark("a", {WORDS: WAITS})], [])
    assert nothing["scores"] == []
    assert sum(one["complete"] + one["waiting"] for one in nothing["bins"]) == 0


def test_a_penalty_and_what_a_person_has_entered_count_and_no_score_is_below_zero():
    found = numbers(NAME, [mark("a", {FIRST: 4}, penalty=1), mark("b", {FIRST: 1}, penalty=3)], [])
    assert found["scores"] == [0.0, 0.75]  # (1 − 3)⁺ / 4 and (4 − 1) / 4
    assert question(FIRST, found)["mean"] == 2.5  # a penalty does not affect questions
    cell = CellMark(auto=1.0, manual=3.0, extra=2.0, worth=4.0)
    found = numbers(NAME, [replace(mark("a", {}), cells={FIRST: cell})], [])
    assert found["scores"] == [1.25]
    assert found["bins"][-1] == {"start": 0.9, "end": 1.0, "complete": 1, "waiting": 0}
    assert (question(FIRST, found)["mean"], question(FIRST, found)["full"]) == (5.0, 1.0)


# ---- Questions


def test_questions_in_the_order_of_the_assignment_with_their_titles():
    cells = {"own-cell": 1, WORDS: 1, THIRD: 1, FIRST: 1}
    found = numbers(NAME, [mark("a", {WORDS: 1}), mark("b", cells), mark("c", {"ps01-5-capped-test": 1})], [])
    assert [(one["cell"], one["task"]) for one in found["questions"]] == [
        (FIRST, "1 rows, shapes, sizes"),
        (THIRD, "3 attention, and the way back"),
        ("ps01-5-capped-test", "5 soft-capped scores"),
        (WORDS, "7 in your own words"),
        ("own-cell", ""),
    ]
    assert found["title"] == "ps01 · Embeddings and attention"


POINTS = np.array([(4, 5, 1), (3, 6, 0), (2, 2, 2), (1, 3, 0), (0, 1, 2)])  # of five students


def test_discrimination_is_numpys_correlation_with_the_other_questions():
    marks = [mark(f"s{n}", dict(zip(WORTH, row, strict=True))) for n, row in enumerate(POINTS.tolist())]
    waiting = [mark("w1", {FIRST: WAITS, THIRD: 6}), mark("w2", {FIRST: 0, THIRD: WAITS, WORDS: WAITS})]
    found = numbers(NAME, [*marks, *waiting], [])
    for name, points in zip(WORTH, POINTS.T, strict=True):
        want = np.corrcoef(points, POINTS.sum(1) - points)[0, 1]
        assert question(name, found)["discrimination"] == pytest.approx(want, abs=1e-6)


def test_discrimination_needs_five_submissions_that_differ():
    pairs = POINTS[:, :2].tolist()  # those for the first question, and for the third
    for found in (
        pairs[:4],
        [(2, b) for _, b in pairs],
        [(a, 3) for a, _ in pairs],
        [(a, 0.1 + 0.2 if a % 2 else 0.3) for a, _ in pairs],  # these differ by rounding alone
        [(a, WAITS) for a, _ in pairs],  # there are no other points to correlate with
    ):
        marks = [mark(f"s{n}", {FIRST: a, THIRD: b}) for n, (a, b) in enumerate(found)]
        assert question(FIRST, numbers(NAME, marks, []))["discrimination"] is None, found


def part(requirement: str, met: bool, task: str = "padding_mask") -> Part:
    return Part(task, requirement, f"It has {requirement}.", 1.0, met)


def test_requirements():
    cells = [
        CellResult(FIRST, 2, 2, parts=(part("shape", True), part("values", True))),
        CellResult(FIRST, 1, 2, parts=(part("shape", True), part("values", False))),
        CellResult(FIRST, 0, 2, "timeout"),  # meets no requirement
        CellResult(FIRST, 1, 2, parts=(part("shape", True), part("shape", False), part("late", True, "b"))),
    ]
    marks = [mark(f"s{n}", {FIRST: cell.earned}) for n, cell in enumerate(cells)]
    found = numbers(NAME, marks, [result(f"s{n}", cell) for n, cell in enumerate(cells)])
    assert [tuple(one.values()) for one in question(FIRST, found)["requirements"]] == [
        ("padding_mask", "It has shape.", 2, 4),
        ("padding_mask", "It has values.", 1, 4),
        ("b", "It has late.", 1, 4),
    ]
    assert "It has shape. padding_mask 2 of 4 50%" in shown(page(found))


# ---- Mistakes

NO_SCALE, INVERTED = "scaled_dot_product_attention/no_scale", "causal_mask/true_hides"


def test_how_many_make_a_mistake_and_where_the_book_explains_it():
    results = [
        result("a", wrong("ps01-5-largest-test", NO_SCALE), wrong("ps01-2-test", NO_SCALE)),
        result("b", wrong("ps01-2-test", NO_SCALE, INVERTED)),
        result("c"),
    ]
    cells = ("ps01-2-test", "ps01-5-largest-test")
    counted = numbers(NAME, [mark("a", dict.fromkeys(cells, 0))], results)
    first, second = counted["misconceptions"]
    assert (first["id"], first["students"], first["share"]) == (NO_SCALE, 2, 2 / 3)  # a counts once
    assert first["cells"] == [*cells]
    assert first["name"] == "you left out the division by √d_k"
    assert first["place"] == "chapter 3.4, “Why divide by √d_k?”"
    assert first["link"] == f"{HOME}chapters/03_scaled_dot_product_attention.html#attention-scale"
    assert f'href="{first["link"]}"' in page(counted)
    assert (second["id"], second["students"]) == (INVERTED, 1)


@pytest.mark.parametrize("gone", ["causal_mask/gone", "gone/inverted"])
def test_a_mistake_that_the_catalogue_does_not_know(gone):
    found = numbers(NAME, [], [result("a", wrong(THIRD, gone))])
    assert [(one["id"], one["name"], one["link"]) for one in found["misconceptions"]] == [(gone, gone, "")]
    assert f"{gone} It is no longer in the catalogue." in shown(page(found))


# ---- For a person


def test_flags():
    flags = tuple(Flag(kind, "Seen.", THIRD, "x = 1") for kind in ("library", "timeout"))
    results = [result("a", flags=flags), result("b", flags=(Flag("package", "A package."),))]
    text = shown(page(numbers(NAME, [mark("a", {}, first_name="Ada", last_name="L.")], results)))
    rows = [f"Ada L. a {kind} Seen. x = 1 {THIRD}" for kind in ("library", "timeout")]
    assert " ".join(["What was seen Cell", *rows, "b package A package. –"]) in text


def test_late():
    marks = [mark("a", {FIRST: 1}, penalty=2.5), mark("b", {FIRST: 1}), mark("c", {}, timestamp=None)]
    marks.append(mark("d", {FIRST: 1}, late=True))  # late, but without a penalty
    text = shown(page(numbers(NAME, marks, [result("c", late=True)])))
    assert "Penalty a 2026-03-05 17:04 2.5 c – 0 d 2026-03-05 17:04 0 " in text
    assert "Late 3 −2.5 points in all" in text


def test_what_was_not_graded():
    aside = [
        {"path": "x.zip: a.ipynb", "student": "a", "assignment": NAME, "reason": "It is empty."},
        {"path": "b.ipynb", "student": None, "assignment": None, "reason": "Whose?"},
        {"path": "c.ipynb", "student": "c", "assignment": "ps02_masks", "reason": "Of another."},
    ]
    failed = [{"path": "d.ipynb", "student": "d", "assignment": NAME, "reason": "No memory."}]
    marks = [mark("a", None, first_name="Ada"), mark("c", None), mark("d", None)]
    text = shown(page(numbers(NAME, marks, [], aside, failed)))
    assert "Not graded 3 put aside or failed" in text
    whose = "unknown b.ipynb assignment unknown Whose?"
    assert f"Reason Ada a x.zip: a.ipynb It is empty. {whose} Could not" in text
    assert "Reason d d.ipynb No memory. Not submitted 3" in text
    seen = "A file of theirs was not graded; see above."
    assert f"Note Ada a {seen} c – d {seen}" in text


def test_repairs_and_submissions_without_isolation_are_listed():
    b, c = result("b", isolation="none", repairs=("One.", "Two.")), result("c", isolation="new")
    results = [result("a"), b, c]
    text = shown(page(numbers(NAME, [mark("b", {}, first_name="Bea")], results)))
    assert "What was repaired Bea b One. Two. Counted" in text
    assert text.index("2 submissions ran without isolation.") < text.index("Students 1")
    assert "Bea, c" in text
    assert "without isolation" not in shown(page(numbers(NAME, [], results[:1])))


# ---- The whole page

STRANGE = (
    "</td></title></style><script>alert(1)</script><img src=x onerror=alert(1)> &amp; \"' \u202e\x00\x1b[31m"
)


def full(text: str = "Anne", students: int = 3):
    """A class that fills every part of the page, with this text wherever the page shows one."""
    told = {"first_name": text, "last_name": text}
    marks = [mark(f"{text}{n}", {text: 1, WORDS: WAITS, FIRST: n % 5}, 0.5, **told) for n in range(students)]
    marks.append(mark(f"{text} gone", None, **told))
    tested = CellResult(
        text, 0, 1, text, (text,), (Part(text, text, text, 1, True), Part("b", "b", text, 1, False)), (text,)
    )
    known = CellResult(FIRST, 0, 1, "timeout", mistakes=(NO_SCALE,))
    flags = (Flag(text, text, text, text), Flag(text, text))
    said = {"repairs": (text, text), "flags": flags, "isolation": "none", "path": text}
    results = [result(f"{text}{n}", tested, known, **said) for n in range(students)]
    entry = {"path": text, "student": text, "assignment": None, "reason": text}
    return numbers(NAME, marks, results, [entry], [entry])


@pytest.mark.parametrize("students", [0, 3])
def test_page_is_well_formed_and_loads_nothing(students):
    html = page(full(students=students) if students else numbers(NAME, [], []))
    reader = Reader(html)
    assert reader.wrong == []
    ids = [attributes["id"] for _, attributes in reader.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    addresses = {attributes["href"] for _, attributes in reader.found if "href" in attributes}
    assert {one[1:] for one in addresses if one.startswith("#")} <= set(ids)
    assert all(one.startswith(("#", HOME)) for one in addresses)
    assert not any("src" in attributes or "style" in attributes for _, attributes in reader.found)
    assert all(f"Anne{number} " in shown(html) for number in range(students))


def test_hostile_text_is_escaped():
    kind = [(tag, sorted(attributes)) for tag, attributes in Reader(page(full(STRANGE))).found]
    assert kind == [(tag, sorted(attributes)) for tag, attributes in Reader(page(full())).found]
    html = page(full(STRANGE))
    assert not re.search("[\u202a-\u202e\x00\x1b]", html)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 50
    assert shown(html).count("⟨U+202E⟩") > 50


def test_long_text_is_cut():
    html = page(full("W" * 5_000))
    assert len(html) < 200_000
    assert "characters are left out here" in html


# ---- Words and numbers


def test_only_exact_zero_and_one_are_shown_as_0_and_100_percent():
    shares = {0: "0%", 1: "100%", 0.001: "1%", 0.999: "99%", 1.25: "125%", None: "–"}
    assert {value: report.percent(value) for value in shares} == shares


def test_labels_of_numbers_fit_the_rounded_numbers():
    labels = {-0.004: "0.00 low", -0.006: "−0.01 negative", 0.1949: "0.19 low", 0.1951: "0.20", None: "–"}
    found = numbers(NAME, [mark("a", {FIRST: 4})], [])
    found["questions"] = [found["questions"][0] | {"discrimination": value} for value in labels]
    cells = re.findall("<td class=.right.>(.*?)</td>", page(found), re.DOTALL)
    assert [text for text in map(shown, cells) if text in labels.values()] == [*labels.values()]


def test_the_distribution_is_drawn_and_written():
    marks = [mark("a", {FIRST: 4}), mark("b", {FIRST: 4, WORDS: WAITS}), mark("c", {FIRST: 1})]
    html = page(numbers(NAME, marks, []))
    assert "20% to below 30% 1 0" in shown(html)
    assert "90% to 100% and more 1 1" in shown(html)
    drawn = re.findall('<meter class="wide" value="(.*?)"', html)
    assert [float(value) for value in drawn] == [0, 0, 0.5, 0, 0, 0, 0, 0, 0, 1]
    assert "There is no score yet." in page(numbers(NAME, [], []))


# ---- In a browser


@pytest.fixture(scope="module")
def view(chromium):
    with browser.browser(width=375) as found:
        yield found


def test_in_a_browser_it_fits_a_phone_and_asks_for_nothing(view, tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_text(page(full(STRANGE + "W" * 300, students=20)), encoding="utf-8")
    view.open(file)
    assert view.requests == [file.as_uri()]
    assert view.problems == []
    assert view.evaluate("document.documentElement.scrollWidth") == 375
    assert view.evaluate("getComputedStyle(document.body).tabSize") == "4", "the style sheet must apply"
