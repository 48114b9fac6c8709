"""The student's page explains the points, shows no hidden test, and is inert whatever was handed in."""

import re
import unicodedata
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace

import nbformat
import pytest
from playwright.sync_api import Error
from test_autograder_inert import PNG, base64_of

from book import browser
from exercises import release
from exercises.autograder.course.marks import CellMark, Mark
from exercises.autograder.feedback import page, secrets
from exercises.autograder.feedback.text import clean, terminal
from exercises.autograder.result import CellResult, Flag, Part, Result
from exercises.autograder.running.inert import inert_output
from tests.pages import Reader, shown

MASTERS = release.masters()
AWAY = "http://127.0.0.1:9/x"  # nobody listens there
HIDDEN = "checks.check('double', double, seed=314159).score(values=2)"


# ---- A small assignment; nbformat's own functions are slower, and refuse some of these cells


def notebook_of(cells: list) -> nbformat.NotebookNode:
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def markdown_cell(source: str, **more) -> nbformat.NotebookNode:
    return nbformat.from_dict({"cell_type": "markdown", "metadata": {}, "source": source, **more})


def code_cell(source: str, **more) -> nbformat.NotebookNode:
    return markdown_cell(source, **{"cell_type": "code", "outputs": [], **more})


def output_of(kind: str, **parts) -> nbformat.NotebookNode:
    """An output as grading stores it."""
    return inert_output(nbformat.from_dict({"output_type": kind, **parts}))


def output(kind: str, **parts) -> nbformat.NotebookNode:
    """A cell with one output."""
    return code_cell("f()", outputs=[output_of(kind, **parts)])


def marks(name: str, **more) -> dict:
    return {"nbgrader": {"grade_id": name, "grade": False, "locked": True, "solution": False} | more}


def assignment(test: str = "# Graded: the values 2 points.") -> list:
    text = "# ps99 · Doubling\n\n## 1 · Double\n\n<details><summary>Hint</summary>\n\nTwice.\n\n</details>"
    answer = 'raise NotImplementedError("your answer goes here")'
    return [
        markdown_cell(text, metadata=marks("intro")),
        code_cell(answer, metadata=marks("answer", solution=True, locked=False)),
        code_cell("assert double(1) == 2", metadata=marks("check")),
        code_cell(test, metadata=marks("test", grade=True)),
        markdown_cell("## 2 · Why?", metadata=marks("why-text")),
        markdown_cell(
            "*Your answer goes here.*", metadata=marks("why", grade=True, solution=True, locked=False)
        ),
    ]


RELEASED = notebook_of(assignment())
MASTER = f"# Graded: the values 2 points.\n### BEGIN HIDDEN TESTS\n{HIDDEN}\n### END HIDDEN TESTS"
DONE = CellResult("test", 1.5, 2.0)


def handed_in(*cells) -> nbformat.NotebookNode:
    """The graded notebook of a student who also wrote these cells."""
    found = assignment(MASTER)
    found[1].source = "def double(x):\n    return 2 * x"
    found[5].source = "Because."
    return notebook_of([*found, *cells])


WAITS = CellMark(waits=True, worth=3.0)
MARKED = CellMark(1.5, worth=2.0)


def mark_of(comments: Mapping[str, str] = {}, **cells: CellMark) -> Mark:
    """Ada's mark in the gradebook; her written answer still waits for a person."""
    return Mark("Ada", worth=5.0, cells={"test": MARKED, "why": WAITS} | cells, comments={**comments})


def made(*cells, result: Result | None = None, mark: Mark | None = None) -> str:
    return page(handed_in(*cells), RELEASED, result or Result("Ada", "ps99", (DONE,)), mark or mark_of())


# ---- Points and words


def test_points_requirements_and_messages():
    met = Part("double", "values", "twice the number", 1.5, True)
    missed = Part("double", "nan", "NaN stays", 0.5, False)
    message = "double: not there yet.\nRequired: NaN stays"
    tested = CellResult("test", 1.5, 2.0, "done", (message,), (met, missed))
    said = {"repairs": ("A cell was put back.",), "flags": (Flag("library", "Calls torch's own.", "test"),)}
    text = shown(made(result=Result("Ada", "ps99", (tested,), **said)))
    for words in (
        "Ada · ps99 · Doubling",
        "1.5 of 2 points counted by the tests",
        "– of 3 points for written answers, which wait for a person",
        "1 · Double test 1.5 of 2",
        "2 · Why? why waits for a person",
        "Graded: the values 2 points.",
        "twice the number ✓ met 1.5 of 1.5",
        "NaN stays ✗ missed 0 of 0.5",
        "double: not there yet. Required: NaN stays",
        "A cell was put back.",
        "A person still has to read this answer.",
    ):
        assert words in text
    assert "def double(x): return 2 * x" in text
    assert "your answer goes here" not in text
    assert "torch's own" not in text, "flags are for the instructor only"
    in_order = ("1 · Double def double", "twice the number", "2 · Why? Because.")
    assert sorted(in_order, key=text.index) == [*in_order]


def test_a_persons_points_and_comments():
    why = replace(WAITS, manual=2.25, waits=False)
    said = {"why": "Nearly.\nRead chapter 3.", "test": "Good.", "answer": "<i>Try</i> x + x."}
    text = shown(made(mark=mark_of(said, why=why)))
    assert "2.25 of 3 points for written answers" in text
    assert "2 · Why? why 2.25 of 3" in text
    assert "Comment Nearly. Read chapter 3." in text
    assert text.count("Comment Nearly.") == 1
    assert "Comment Good." in text
    assert "return 2 * x Comment <i>Try</i> x + x." in text  # formgrader asks for it there, above the test
    assert "waits" not in text
    assert "A person has looked" not in text
    changed = shown(made(mark=mark_of(why=replace(why, waits=True), test=replace(MARKED, manual=2.0))))
    assert "waits for a person" in changed
    assert "2 of 2 points counted by the tests" in changed
    assert "A person has looked at this and given these points." in changed
    again = shown(made(mark=mark_of(test=replace(MARKED, manual=2.0, waits=True))))
    assert "1.5 of 2 points counted by the tests" in again, "until a person confirms the manual mark"


def test_what_being_late_costs():
    marked = replace(WAITS, manual=2.0, waits=False)
    for why, words in ((WAITS, "1 of 5 so far"), (marked, "3 of 5 in all")):
        mark = replace(mark_of(why=why), penalty=0.5)
        assert f"−0.5 points for being late: {words}" in shown(made(mark=mark))
    assert "being late" not in shown(made())


def test_why_there_are_no_points():
    words = "your code took too long"
    timeout = Result("Ada", "ps99", (CellResult("test", 0.0, 2.0, "timeout"),))
    assert words in shown(made(result=timeout, mark=mark_of(test=replace(MARKED, auto=0.0))))
    assert words not in shown(made())
    untouched = shown(made(mark=mark_of(why=replace(WAITS, auto=0.0, waits=False))))
    assert "why 0 of 3 points all points There is no answer to read." in untouched
    assert "waits" not in untouched


# ---- Hidden tests


@pytest.mark.parametrize("master", MASTERS, ids=[master.parent.name for master in MASTERS])
def test_page_has_no_line_of_a_hidden_test(master):
    notebook = nbformat.read(master, as_version=4)
    released = nbformat.read(release.released(master), as_version=4)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    for cell in notebook.cells:  # as after grading: outputs of tests may contain their own lines
        if cell.cell_type == "code":
            cell.outputs = [output_of("error", ename="E", evalue=cell.source, traceback=[cell.source])]
            if cell not in graded:
                cell.outputs = [output_of("stream", text="fine\n")]
    results = [CellResult(cell.id, 0.5, cell.metadata.nbgrader.points, "done", ("m",)) for cell in graded]
    cells = {one.cell: CellMark(0.5, worth=one.worth) for one in results}
    html = page(notebook, released, Result("Ada", master.stem, tuple(results)), mark_of(**cells))
    assert len(html) < 200_000
    assert "BEGIN HIDDEN" not in html
    hidden = secrets(notebook, released)
    assert len(hidden) >= 5
    text = shown(html)
    assert [line for line in hidden if line in text] == []
    for cell in graded:  # the released part of a test is shown
        ours = next(one for one in released.cells if one.id == cell.id)
        assert cell.cell_type != "code" or " ".join(ours.source.split()) in text


def test_page_that_would_reveal_a_hidden_test_is_refused():
    planted = f"line 3\n\n--->  {HIDDEN}\n".replace(",", ",\x1b[31m")
    with pytest.raises(ValueError, match=r"expected no line of a hidden test, got checks\.check"):
        made(output("error", ename="E", evalue="", traceback=[planted]))


def test_duplicate_tests_and_tests_of_no_assignment_are_dropped():
    notebook = handed_in()
    notebook.cells += [notebook.cells[3], code_cell(HIDDEN, metadata=marks("other", grade=True))]
    text = shown(page(notebook, RELEASED, Result("Ada", "ps99", (DONE,)), mark_of()))
    assert text.count("Graded: the values 2 points.") == 1
    assert "314159" not in text


def test_lines_that_tell_nothing_are_no_secrets():
    """Short lines, the student's own, lines of the released notebook, and common Python."""
    lines = "assert double(1) == 2", "return  2 * x", "except Exception:", "x = f(1, 2)", "secret = [7, 11]"
    notebook = handed_in(code_cell("### BEGIN HIDDEN TESTS\nmy = 'own and only mine'"))
    notebook.cells[3].source = "\n".join(["### BEGIN HIDDEN TESTS", *lines])
    notebook.cells[1].source += "\nreturn 2 * x"
    assert secrets(notebook, RELEASED) == ["secret = [7, 11]"]


# ---- Text


def test_invisible_characters_are_made_visible():
    # Format characters that are visible: they stand before or around a number.
    seen = {*range(0x600, 0x606), 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    for number in range(0x110000):
        unseen = unicodedata.category(chr(number)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and number not in seen
        if unseen and chr(number) not in "\n\t":
            found = clean(f"a{chr(number)}b")
            assert found == ("a\nb" if chr(number) == "\r" else f"a⟨U+{number:04X}⟩b"), hex(number)
    ordinary = "Ünï\tcödé\n  \xa0 ψ 中文 العربية ✔️ 👍🏽 é"
    assert clean(ordinary) == ordinary
    assert clean("a\r\nb\rc\u3164") == "a\nb\nc⟨U+3164⟩"


def test_what_a_terminal_would_show():
    link = "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\"
    written, seen = f"\x1b[1;31mred\x1b[0m\n10%\r 50%\r100%\n{link}\r\nb\r", "red\n100%\nlink\nb"
    assert terminal(written) == seen
    assert len(terminal(written * 20_000)) <= len(seen) * 20_000  # long texts must be quick, too


# ---- Outputs, and hostile input


def test_outputs_and_pictures():
    html = made(
        output("display_data", data={"image/png": PNG, "text/plain": "<Figure 640>"}),
        output("execute_result", data={"text/plain": "   a\n0  1"}),
        output("stream", name="stderr", text="50%\rWarning\n"),
        output("error", ename="ValueError", evalue="seven", traceback=[]),
        markdown_cell(f"see ![x](data:image/png;base64,{PNG}) there"),
    )
    assert 'alt="&lt;Figure 640&gt;">' in html
    assert html.count('<img src="data:image/png;base64,') == 1
    assert html.count(PNG) == 0, "pictures must be encoded again or left out"
    assert '<pre class="text">   a\n0  1</pre>' in html
    assert '<pre class="text">Warning</pre>' in html
    assert '<pre class="error">ValueError: seven</pre>' in html
    assert "see ![x]((a picture)) there" in html


STRANGE = (
    "</title></pre></td><script>alert(1)</script><img src=x onerror=alert(1)> \"'><style>body {}</style>"
    f" <base href={AWAY}> [x](javascript:alert(1)) &lt;b&gt; &#8238; {{{{7*191}}}} \u202e\u2066\ufeff\x00\x1b[31m"
)
PICTURE = f"![svg](data:image/svg+xml;base64,{base64_of(b'<svg onload=alert(1) />')})"
LINK = "\x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\ <\x1b]0;x\x07script>alert(1)</script>"
HOSTILE = (STRANGE, "W" * 3_000, PICTURE, LINK)


def page_with(*texts: str) -> str:
    """The page of a submission with these texts wherever a text can come in."""
    kinds, both = ("markdown", "code", "raw"), " ".join(texts)
    cells = [code_cell(text, cell_type=kind) for kind in kinds for text in texts]
    cells += [output("stream", name="stdout", text=text) for text in texts]
    cells += [output("error", ename=text, evalue=text, traceback=[text]) for text in texts]
    parts = [Part(text, "r", "s", 1, True) for text in texts]
    parts += [Part("double", "r", text, 1, False) for text in texts]
    tested = CellResult("test", 1.5, 2, both, texts, tuple(parts))
    return made(*cells, result=Result(both, both, (tested,), repairs=texts), mark=mark_of({"test": both}))


def test_hostile_input_is_text():
    """Hostile input adds no element to the page, and no attribute."""
    html = page_with(*HOSTILE)
    found, harmless = Reader(html).found, Reader(page_with("one", "two", "three", "four")).found
    assert [(tag, about.keys()) for tag, about in found] == [(tag, about.keys()) for tag, about in harmless]
    assert all(about.get("href", "#").startswith("#") for _, about in found)
    assert "1337" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\x00\x1b]", html)
    html.encode()


# ---- Too much


def test_long_texts_are_cut_and_no_cell_is_left_out():
    cells = [output("stream", name="stdout", text=f"stream {n} " + "&" * 90_000) for n in range(40)]
    messages = tuple(f"message {n} " + "x" * 90_000 for n in range(9))
    tested = CellResult("test", 1.5, 2.0, "done", messages)
    html = made(*cells, result=Result("Ada", "ps99", (tested,), repairs=("&" * 9_000,) * 999))
    assert html.count("&amp;") < 40 * 20_000 + 20 * 500
    assert html.count("x") < 10 * 20_000
    text = shown(html)
    assert text.count("characters are left out here") == 40 + 9 + 20
    assert all(f"stream {n} " in text for n in range(40))
    assert all(f"message {n} " in text for n in range(9))
    assert shown(made(output("stream", name="stdout", text="b" * 9_000))).count("b") > 9_000


# ---- In a browser

# Runs before any script of a page: dialogs that scripts would open are counted instead.
HOOK = "window.fired = 0; window.alert = window.confirm = window.prompt = () => { window.fired += 1; };"


@pytest.fixture(scope="module")
def view(chromium):
    with browser.browser(width=390) as found:
        found.page.add_init_script(HOOK)
        yield found


def test_in_a_browser_hostile_input_does_nothing(view, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page_with(*HOSTILE), encoding="utf-8")
    view.open(file)
    title = view.evaluate("document.title")
    view.page.wait_for_timeout(30)
    assert view.evaluate("window.fired") == 0
    assert view.evaluate("document.title") == title
    assert title.startswith("</title></pre></td><script>")
    assert not [url for url in view.requests if not url.startswith(("data:", "file:"))]
    # Nothing was even attempted: the policy would report it on the console.
    assert view.problems == []
    assert view.evaluate("location.href") == view.evaluate("document.baseURI") == file.as_uri()
    assert view.evaluate("getComputedStyle(document.body).tabSize") == "4", "the style sheet must be applied"
    assert view.evaluate("document.documentElement.scrollWidth") == 390


HOLES = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>"
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>"
    f"<img src={AWAY}><link rel=stylesheet href={AWAY}><object data={AWAY}></object><video src={AWAY}></video>"
    f"<style>@import url({AWAY}); body {{ margin: 99px }}</style><p id=p style='position: fixed'>x</p>"
    f"<base href={AWAY}><form id=f action={AWAY}></form><a id=a href='javascript:alert(1)'>x</a>"
)


@pytest.mark.parametrize("policy", [True, False], ids=["policy", "none"])
def test_in_a_browser_the_policy_stops_what_gets_through(view, tmp_path, policy):
    """The policy protects a page with unescaped input; without the policy, this input does harm."""
    html = made().replace("<main>", "<main>" + HOLES, 1)
    if not policy:
        html = html.replace("Content-Security-Policy", "x")
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    view.open(file)
    with nullcontext() if policy else suppress(RuntimeError, Error):  # the form leads to another page
        view.evaluate("document.getElementById('a').click(); document.getElementById('f').submit()")
    view.page.wait_for_timeout(30)  # waits outside the page, which may be gone
    sent = [problem for problem in view.problems if "net::" in problem]  # they fail, as nobody listens
    assert bool(sent) is not policy
    if not policy:
        return
    assert view.evaluate("window.fired") == 0
    assert view.evaluate("location.href") == view.evaluate("document.baseURI") == file.as_uri()
    assert view.evaluate("getComputedStyle(document.body).marginTop") == "0px"
    assert view.evaluate("getComputedStyle(document.getElementById('p')).position") == "static"
    assert sum("violates" in problem for problem in view.problems) >= 12
