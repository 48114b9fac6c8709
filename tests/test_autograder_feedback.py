"""The student's page: points in words, nothing of a hidden test, and all that came in inert, in a browser."""

import base64
import io
import json
import re
import time
import unicodedata
from contextlib import nullcontext, suppress
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image, PngImagePlugin

from book import browser
from exercises import release
from exercises.autograder.feedback import inspection, page
from exercises.autograder.feedback.pictures import BYTES, picture
from exercises.autograder.feedback.text import clean, code, cut, terminal
from exercises.autograder.result import CellResult, Flag, Part, Result
from transformer_lessons import checks

MASTERS = release.masters()
AWAY = "http://127.0.0.1:9/x"  # where nobody listens
HIDDEN = "checks.check('double', double, seed=314159).score(values=2)"


# ---- A small assignment; nbformat's own functions would take longer, and refuse what is made here


def notebook_of(cells: list) -> nbformat.NotebookNode:
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def markdown_cell(source: str, **more) -> nbformat.NotebookNode:
    return nbformat.from_dict({"cell_type": "markdown", "metadata": {}, "source": source, **more})


def raw_cell(source: str) -> nbformat.NotebookNode:
    return markdown_cell(source, cell_type="raw")


def code_cell(source: str, **more) -> nbformat.NotebookNode:
    return markdown_cell(source, **{"cell_type": "code", "outputs": [], **more})


def output_of(kind: str, **parts) -> nbformat.NotebookNode:
    return nbformat.from_dict({"output_type": kind, **parts})


def output(kind: str, **parts) -> nbformat.NotebookNode:
    """A cell with one output."""
    return code_cell("f()", outputs=[output_of(kind, **parts)])


def marks(name: str, *, grade=False, solution=False, locked=True, points=None) -> dict:
    found = {"grade": grade, "grade_id": name, "locked": locked, "schema_version": 3, "solution": solution}
    return {"nbgrader": {**found, "task": False, **({} if points is None else {"points": points})}}


def assignment(test: str = "# Graded: the values 2 points.") -> list:
    text = "# ps99 · Doubling\n\n## 1 · Double\n\n<details><summary>Hint</summary>\n\nTwice.\n\n</details>"
    answer = 'raise NotImplementedError("your answer goes here")'
    return [
        markdown_cell(text, metadata=marks("intro")),
        code_cell(answer, metadata=marks("answer", solution=True, locked=False)),
        code_cell("assert double(1) == 2", metadata=marks("check")),
        code_cell(test, metadata=marks("test", grade=True, points=2)),
        markdown_cell("## 2 · Why?", metadata=marks("why-text")),
        markdown_cell(
            "*Your answer goes here.*",
            metadata=marks("why", grade=True, solution=True, locked=False, points=3),
        ),
    ]


RELEASED = notebook_of(assignment())
MASTER = f"# Graded: the values 2 points.\n### BEGIN HIDDEN TESTS\n{HIDDEN}\n### END HIDDEN TESTS"
DONE = CellResult("test", 1.5, 2.0)


def handed_in(*cells, why: str = "Because.") -> nbformat.NotebookNode:
    """The graded notebook of a student who wrote these cells, too."""
    found = assignment(MASTER)
    found[1].source = "def double(x):\n    return 2 * x"
    found[5].source = why
    return notebook_of([*found, *cells])


def made(*cells, result: Result | None = None, **more) -> str:
    return page(handed_in(*cells), RELEASED, result or Result("Ada", "ps99", (DONE,)), **more)


def shown(html: str) -> str:
    """What a reader reads: the text between the tags."""
    text = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub("<[^>]*>", "", text)).split())


def encoded(image: Image.Image, kind: str, **more) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **more)
    return buffer.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


SMALL = Image.new("RGBA", (13, 7), (255, 0, 0, 255))
RED = base64_of(encoded(SMALL, "png"))


# ---- Points and words


def test_points_requirements_and_messages():
    parts = (
        Part("double", "values", "twice the number", 1.5, True),
        Part("double", "nan", "NaN stays", 0.5, False),
    )
    tested = CellResult("test", 1.5, 2.0, "done", ("double: not there yet.\nRequired: NaN stays",), parts)
    text = shown(made(result=Result("Ada", "ps99", (tested,), repairs=("A cell was put back.",))))
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
        "This answer waits for a person",
    ):
        assert words in text
    assert text.count("your answer goes here") == 0


def test_a_persons_points_and_comments():
    text = shown(made(scores={"why": 2.25}, comments={"why": "Nearly.\nRead chapter 3.", "test": "Good."}))
    assert "2.25 of 3 points for written answers Points" in text
    assert "2 · Why? why 2.25 of 3" in text
    assert "Comment Nearly. Read chapter 3." in text
    assert "Comment Good." in text
    assert "waits" not in text
    assert "waits for a person" in shown(made(scores={"why": None}))


@pytest.mark.parametrize("why", ["", " ", "*Your answer goes here.*"])
def test_an_answer_that_is_none_waits_for_nobody(why):
    text = shown(page(handed_in(why=why), RELEASED, Result("Ada", "ps99", (DONE,))))
    assert "There is no answer to read." in text
    assert "waits" not in text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("timeout", "your code took longer than it may"),
        ("missing", "your code did not answer"),
        ("error", "ended with an error"),
        ("new", "did not come to its end: new"),
    ],
)
def test_why_there_are_no_points(status, words):
    result = Result("Ada", "ps99", (CellResult("test", 0.0, 2.0, status),))
    assert words in shown(made(result=result))
    assert words not in shown(made())


def test_a_test_without_a_result_gave_nothing():
    assert "0 of 2 points counted by the tests" in shown(made(result=Result("Ada", "ps99")))


def test_an_assignment_without_a_heading_has_its_name():
    html = page(notebook_of([]), notebook_of([]), Result("Ada", "<ps99>"))
    assert "<h1>&lt;ps99&gt;</h1>" in html


def test_flags_are_not_for_the_student():
    flag = Flag("library", "Calls torch's own layer.", "test", "nn.MultiheadAttention(8, 2)")
    text = made(result=Result("Ada", "ps99", (DONE,), flags=(flag,)))
    assert "own layer" not in text
    assert "MultiheadAttention" not in text


def test_every_link_within_the_page_arrives():
    html = made()
    targets = re.findall('href="#([^"]+)"', html)
    assert len(targets) == 4
    assert set(targets) == set(re.findall(' id="([^"]+)"', html))


def test_a_message_of_the_checks_is_shown_whole_with_its_first_line_first():
    report = checks.check(
        "causal_mask", lambda queries, keys=None: torch.ones(1, 1, queries, keys or queries)
    )
    result = Result("Ada", "ps99", (CellResult("test", 0.0, 2.0, "done", (report.message,)),))
    html = made(result=result)
    assert f'<p class="first">{report.message.splitlines()[0]}</p>' in html
    assert " ".join(report.message.split()) in shown(html)


# ---- Hidden tests


@pytest.mark.parametrize("master", MASTERS, ids=[master.parent.name for master in MASTERS])
def test_nothing_of_the_masters_hidden_tests(master):
    notebook = nbformat.read(master, as_version=4)
    released = nbformat.read(release.released(master), as_version=4)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    for cell in notebook.cells:  # as after grading: tests put out what they show, also their own lines
        if cell.cell_type == "code":
            cell.outputs = [output_of("error", ename="E", evalue=cell.source, traceback=[cell.source])]
            if cell not in graded:
                cell.outputs = [output_of("stream", text="fine\n")]
    results = [CellResult(cell.id, 0.5, cell.metadata.nbgrader.points, "done", ("m",)) for cell in graded]
    html = page(notebook, released, Result("Ada", master.stem, tuple(results)))
    assert len(html) < 200_000
    assert "BEGIN HIDDEN" not in html
    hidden = inspection.secrets(notebook, released)
    assert len(hidden) >= 5
    text = shown(html)
    assert [line for line in hidden if line in text] == []
    letters = re.sub(r"\W", "", text)
    for cell in released.cells:  # what is released is there
        if cell in graded or cell.metadata.get("nbgrader", {}).get("locked"):
            first = re.sub(r"\W", "", cell.source.splitlines()[0])
            assert first in letters, first


PLANTED = f"line 3\n\n--->  {HIDDEN}\n"


@pytest.mark.parametrize(
    ("cells", "more"),
    [
        ([output("stream", name="stdout", text=PLANTED)], {}),
        ([output("error", ename="E", evalue="", traceback=[PLANTED.replace(",", ",\x1b[31m")])], {}),
        ([output("display_data", data={"text/plain": PLANTED})], {}),
        ([output("display_data", data={PLANTED: ""})], {}),
        ([output("display_data", data={"image/png": RED, "text/plain": PLANTED})], {}),
        ([], {"comments": {"why": PLANTED}}),
        ([], {"result": Result("Ada", "ps99", (CellResult("test", 0, 2, "error", (PLANTED,)),))}),
        ([], {"result": Result("Ada", "ps99", (DONE,), repairs=(PLANTED,))}),
        ([], {"result": Result(HIDDEN, "ps99", (DONE,))}),
    ],
    ids="stdout traceback display type picture comment message repair name".split(),
)
def test_a_page_that_gives_a_hidden_test_away_is_not_made(cells, more):
    with pytest.raises(ValueError, match=r"a line of a hidden test would be on it: checks\.check"):
        made(*cells, **more)


def test_what_a_test_cell_puts_out_is_dropped_and_so_is_a_second_one():
    notebook = handed_in()
    notebook.cells[3].outputs = [output_of("stream", text=f"{HIDDEN}\nsecret of the test")]
    notebook.cells[2].outputs = [output_of("stream", text="of the check")]
    notebook.cells += [*notebook.cells[2:4], code_cell(HIDDEN, metadata=marks("other", grade=True, points=1))]
    text = shown(page(notebook, RELEASED, Result("Ada", "ps99", (DONE,))))
    assert "secret of the test" not in text
    assert "of the check" in text
    assert text.count("Graded: the values 2 points.") == text.count("assert double(1) == 2") == 1
    assert "314159" not in text


def test_locked_cells_are_shown_as_they_were_given_out():
    notebook = handed_in()
    notebook.cells[0].source = "# My own title"
    notebook.cells[2].source = "assert True"
    text = shown(page(notebook, RELEASED, Result("Ada", "ps99", (DONE,))))
    assert "own title" not in text
    assert "assert True" not in text
    assert "assert double(1) == 2" in text


def test_a_graded_cell_that_is_gone_still_has_its_points():
    notebook = handed_in()
    notebook.cells = notebook.cells[:2]
    text = shown(page(notebook, RELEASED, Result("Ada", "ps99", (DONE, CellResult("extra", 1.0, 1.0)))))
    assert "Test test 1.5 of 2 points" in text
    assert "Written answer why" in text
    assert "Test extra 1 of 1 points" in text


def test_lines_that_tell_nothing_are_no_secrets():
    """Short ones, a student's own, those of the released notebook, and Python's own words."""
    lines = [
        "assert double(1) == 2",
        "return  2 * x",
        "except Exception:",
        "x = f(1, 2)",
        "expected = [7, 11]",
    ]
    notebook = handed_in(code_cell("### BEGIN HIDDEN TESTS\nmy = 'own and only mine'"))
    notebook.cells[3].source = "\n".join(["### BEGIN HIDDEN TESTS", *lines])
    notebook.cells[1].source += "\nreturn 2 * x"
    assert inspection.secrets(notebook, RELEASED) == ["expected = [7, 11]"]


# ---- Text


# Signs that stand before or around a number, and are seen.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}


def test_what_is_invisible_shows():
    for number in range(0x110000):
        character = chr(number)
        unseen = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and number not in SEEN
        if unseen and character not in "\n\t":
            found = clean(f"a{character}b")
            assert found == ("a\nb" if character == "\r" else f"a⟨U+{number:04X}⟩b"), hex(number)
            found.encode()
    for filler in "\u115f\u3164\uffa0\u2800\ufe00\U000e0101":
        assert clean(filler) == f"⟨U+{ord(filler):04X}⟩"
    ordinary = "Ünï\tcödé\n  \xa0 ψ 中文 العربية ✔️ 👍🏽 é"
    assert clean(ordinary) == ordinary
    assert clean("a\r\nb\rc") == "a\nb\nc"


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("10%\r 50%\r100%", "100%"),
        ("longer\rab", "abnger"),
        ("longer\x1b[2K\rab", "ab"),
        ("abc\b\bX", "aXc"),
        ("a\r\nb", "a\nb"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1bPq#0;2;0;0;0#0~~\x1b\\text", "text"),
        ("\x1b]8;;never ended\nnext line", "\nnext line"),
        ("\x1b[\x1b[31mtext\x1b", "text\x1b"),
    ],
)
def test_what_a_terminal_would_show(written, seen):
    assert terminal(written) == seen


def test_cutting_keeps_both_ends():
    assert cut("abc", 3) == "abc"
    text = cut("".join(map(chr, range(0x100, 0x200))), 90)
    assert text.startswith("ĀāĂ")
    assert text.endswith("ǾǿȀ"[:2])
    assert "166 characters are left out" in text
    lines = cut("\n".join(map(str, range(100))), 10_000, 9).split("\n")
    assert lines == ["0", "1", "2", "3", "4", "5", "… 91 lines are left out here …", "97", "98", "99"]


def test_code_is_coloured_and_escaped():
    assert code("if x < '</pre>':  # no") == (
        '<span class="k">if</span> x &lt; <span class="s">&#39;&lt;/pre&gt;&#39;</span>:  '
        '<span class="c"># no</span>'
    )
    assert code("0+" * 5_000) == "0+" * 5_000, "colours would take twelve times its length"


# ---- Pictures


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_a_picture_is_drawn_anew(kind):
    address = picture(f"image/{kind}", base64_of(encoded(SMALL.convert("RGB"), kind)))
    found = Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))
    assert (found.format, found.size) == ("JPEG" if kind == "jpeg" else "PNG", (13, 7))
    assert max(abs(a - b) for a, b in zip(found.getpixel((5, 5)), (255, 0, 0), strict=True)) < 3


def test_of_a_picture_only_pixels_are_left():
    """Of a file that is PNG and HTML at once, of its texts, and of what is transparent."""
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "<script>alert(1)</script>")
    data = (
        encoded(Image.new("RGBA", (3, 2), (0, 0, 0, 0)), "png", pnginfo=texts) + b"<script>alert(2)</script>"
    )
    raw = base64.b64decode(picture("image/png", base64_of(data)).split(",")[1])
    assert b"script" not in raw
    assert Image.open(io.BytesIO(raw)).getpixel((0, 0)) == (255, 255, 255)


def test_a_large_picture_is_made_small_enough():
    noise = Image.effect_noise((1500, 900), 100).convert("RGB")
    address = picture("image/png", base64_of(encoded(noise, "png", compress_level=0)))
    assert address.startswith("data:image/jpeg;base64,")
    assert len(address) < 1.4 * BYTES
    flat = picture("image/png", base64_of(encoded(Image.new("RGB", (1500, 900)), "png")))
    assert Image.open(io.BytesIO(base64.b64decode(flat.split(",")[1]))).size == (1400, 840)


def test_a_page_has_only_so_many_pictures():
    data = {"image/png": RED, "text/plain": "red"}
    cells = [output("display_data", data=data) for _ in range(23)]
    html = made(*cells)
    assert html.count("<img ") == 20
    assert shown(html).count("red (a picture that cannot be shown)") == 3


BOMB = encoded(Image.new("1", (1, 1)), "png").replace(
    b"IHDR" + (1).to_bytes(4, "big") * 2, b"IHDR" + (60_000).to_bytes(4, "big") * 2
)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("image/png", ""),
        ("image/png", "no base 64!"),
        ("image/png", base64_of(b"<svg onload='alert(1)'/>")),
        ("image/png", base64_of(b"\x89PNG\r\n\x1a\n<script>alert(1)</script>")),
        ("image/png", base64_of(encoded(SMALL.convert("RGB"), "jpeg"))),
        ("image/jpeg", base64_of(encoded(SMALL, "png"))),
        ("image/png", base64_of(encoded(SMALL, "png")[:40])),
        ("image/png", base64_of(BOMB)),
        ("image/png", base64_of(encoded(Image.new("1", (2829, 2829)), "png"))),
        ("image/png", base64_of(encoded(SMALL, "png") + bytes(7 << 20))),
    ],
    ids="empty text svg header jpeg-as-png png-as-jpeg cut bomb large long".split(),
)
def test_what_is_no_picture_is_not_shown(kind, data):
    assert picture(kind, data) is None
    cell = output("display_data", data={kind: data, "text/plain": "<Figure>"})
    html = made(cell)
    assert "<img" not in html
    assert "&lt;Figure&gt; (a picture that cannot be shown)" in html


# ---- Hostile input

# Where it stands, what it is, and whether a page that takes it as it comes does something: runs it, asks a server
# for something, or goes elsewhere. This is what makes the test in the browser able to fail.
HOSTILE = [
    ("markdown", "<script>alert(1)</script>", True),
    ("markdown", f"<img src=x onerror=alert(1)> <img src={AWAY}>", True),
    ("markdown", "text <svg onload=alert(1)>", True),
    ("markdown", "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>", True),
    ("markdown", "<details open ontoggle=alert(1)><summary>x</summary></details>", True),
    (
        "markdown",
        "<math><mtext><style><img title='</style><img src=x onerror=alert(1)>'></style></mtext></math>",
        True,
    ),
    ("markdown", f"<style>@import url({AWAY}); body {{ display: none }}</style>", True),
    ("markdown", f"<p style='background: url({AWAY})'>x</p>", True),
    ("markdown", f"<link rel=stylesheet href={AWAY}>", True),
    ("markdown", f"<object data={AWAY}></object><embed src={AWAY}>", True),
    ("markdown", f"<meta http-equiv=refresh content='0;url={AWAY}'>", True),
    ("markdown", f"<form action={AWAY}><button id=go>x</button></form><script>go.click()</script>", True),
    ("markdown", f"<base href={AWAY}/><img src=y>", True),
    ("markdown", "[x](javascript:alert(1))", True),
    ("markdown", "[x](java&#x09;script:alert(1))", False),
    ("markdown", "<a href='java&#x09;script:alert(1)'>x</a>", True),
    ("markdown", "[x](&#x6A;avascript&colon;alert(1))", True),
    ("markdown", "<javascript:alert(1)>", True),
    ("markdown", "[x](data:text/html,<script>alert(1)</script>)", False),
    ("markdown", "[x](vbscript:x) [x](file:///etc/passwd) [x](//evil.example) [x](attachment:a)", False),
    ("markdown", "[x](https:/evil.example) [x](https:\\\\evil.example) [x](http://)", False),
    ("markdown", '[x](http://e.example/"onmouseover="alert(1) "t\\" onclick=alert(1) x=\\"")', False),
    ("markdown", f'![tracker]({AWAY}) ![a"><img src=x onerror=alert(1)>]({AWAY})', True),
    ("markdown", f"![svg](data:image/svg+xml;base64,{base64_of(b'<svg onload=alert(1) />')})", False),
    ("markdown", f"![png](data:image/png;base64,{base64_of(b'<script>alert(1)</script>')})", False),
    (
        "markdown",
        "<![CDATA[ > <img src=x onerror=alert(1)> ]]> <?php > <img src=x onerror=alert(1)> ?>",
        True,
    ),
    ("markdown", "```python\n</code></pre><script>alert(1)</script>\n```", False),
    ("markdown", '``` "><script>alert(1)</script>\nx\n```', False),
    ("markdown", "$<img src=x onerror=alert(1)>$\n\n$$\n</pre><script>alert(1)</script>\n$$", True),
    ("markdown", "# <a id=points name=body href='#x'>clobber</a> {#points onclick=alert(1)}", False),
    ("markdown", "<form id=body><input name=children></form><img name=getElementById>", False),
    ("markdown", "| <img src=x onerror=alert(1)> | b |\n|:-:|-:|\n| `<script>alert(1)</script>` | c |", True),
    ("markdown", "&lt;script&gt;alert(1)&lt;/script&gt; &#8238;reversed &zwnj;&rlm;&#xFEFF;&#0;", False),
    ("markdown", "{{7*191}} {% for x in y %} ${7*191} #{7*191} {{ style }}", False),
    ("code", "</pre><script>alert(1)</script>", True),
    ("code", "if admin: # \u202e } \u2066if False\u2069 \u2066 <script>alert(1)</script>", True),
    ("code", "%%html\n<script>alert(1)</script>", True),
    ("raw", "<script>alert(1)</script>", True),
    ("raw", "\x00<\x00s\x00c\x00r\x00i\x00p\x00t> %00<script%00> \ufeff<img src=x onerror=alert(1)>", True),
    ("raw", "\ud83c\ud800 \xc0\xbcscript\xc0\xbe ＜script＞alert(1)＜/script＞", False),
    ("stream", "<script>document.title='pwned'</script>", True),
    ("stream", "\x1b[31m<\x1b[0mimg src=x onerror=alert(1)>", False),
    (
        "stream",
        "\x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\ <\x1b]0;x\x07script>alert(1)</script>",
        False,
    ),
    ("error", "<script>alert(1)</script>", True),
    ("text/plain", "<img src=x onerror=alert(1)>", True),
    ("text/html", "<script>alert(1)</script>", True),
    ("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", True),
    ("text/markdown", "<img src=x onerror=alert(1)>", True),
    ("text/latex", "\\href{javascript:alert(1)}{x}<img src=x onerror=alert(1)>", True),
    ("application/javascript", "</script><script>alert(1)</script>", True),
    ("application/vnd.jupyter.widget-view+json", "<script>alert(1)</script>", True),
    ("image/png", base64_of(b"\x89PNG\r\n\x1a\n<script>alert(1)</script>"), False),
    ("type", "text/<script>alert(1)</script>", True),
    ("student", "Ada </title><script>alert(1)</script>", True),
    ("student", '"><img src=x onerror=alert(1)> \u202ehtml', True),
    ("cell", '"><script>alert(1)</script>', True),
    ("task", "</code><img src=x onerror=alert(1)>", True),
    ("sentence", "</td><script>alert(1)</script>", True),
    ("status", "</p><script>alert(1)</script>", True),
    (
        "message",
        "<img src=x onerror=alert(1)>\n\n    </pre><script>alert(1)</script>",
        True,
    ),
    ("repair", "</li><script>alert(1)</script>", True),
    ("comment", "<img src=x onerror=alert(1)>", True),
    ("kernel", "<script>alert(1)</script>", True),
    *(
        (place, "W" * 3_000, False)
        for place in "markdown code stream student cell sentence repair comment".split()
    ),
]
NAMED = [f"{place}-{number}" for number, (place, _, _) in enumerate(HOSTILE)]


def hostile_page(*inputs: tuple[str, str]) -> str:
    """The page of a submission with all these in it."""
    at = {place: [text for found, text in inputs if found == place] for place, _ in inputs}
    streams = [output("stream", name="stdout", text=text) for text in at.get("stream", [])]
    errors = [output("error", ename=t, evalue=t, traceback=[t]) for t in at.get("error", [])]
    typed = [output("display_data", data={p: text, "text/plain": text}) for p, text in inputs if "/" in p]
    types = [output("display_data", data={text: text}) for text in at.get("type", [])]
    cells = [
        *(markdown_cell(text) for text in at.get("markdown", [])),
        *(code_cell(text) for text in at.get("code", [])),
        *(raw_cell(text) for text in at.get("raw", [])),
        *(*streams, *errors, *typed, *types),
    ]
    parts = [Part(task, "r", "s", 1, True) for task in at.get("task", [])]
    parts += [Part("double", "r", sentence, 1, False) for sentence in at.get("sentence", [])]
    status = "".join(at.get("status", ["done"]))
    tested = CellResult("test", 1, 2, status, tuple(at.get("message", [])), tuple(parts))
    others = [CellResult(name, 1, 2) for name in at.get("cell", [])]
    name = " ".join(at.get("student", ["Ada"]))
    result = Result(name, name, (tested, *others), repairs=tuple(at.get("repair", [])))
    notebook = handed_in(*cells)
    notebook.metadata = {"kernelspec": {"name": " ".join(at.get("kernel", [])), "display_name": "x"}}
    return page(notebook, RELEASED, result, comments={"test": "".join(at.get("comment", []))})


class Reader(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, html: str):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


@pytest.mark.parametrize(("place", "text", "loud"), HOSTILE, ids=NAMED)
def test_hostile_input_is_text(place, text, loud):
    """The page has the same elements as one without it, but for what Markdown and points are made of."""
    html = hostile_page((place, text))
    found = Reader(html).found
    plain = {tag for tag, _ in Reader(made()).found}
    markdown = set("em strong a td th table tbody h4 pre code blockquote ol ul li span b".split())
    assert {tag for tag, _ in found} <= plain | markdown
    assert sum(tag in ("style", "meta", "title", "body") for tag, _ in found) == 9
    for _, attributes in found:
        assert not any(name.startswith("on") or name == "style" for name in attributes), attributes
        address = attributes.get("href", "#")
        assert re.match(r"#|https?://[a-z0-9]", address, re.IGNORECASE), address
        assert attributes.get("src", "data:image/").startswith("data:image/"), attributes
    assert "1337" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\x00\x1b]", html)
    html.encode()


def test_remote_pictures_become_words():
    text = shown(made(markdown_cell(f"![my cat]({AWAY})")))
    assert f"my cat (a picture elsewhere, which is not loaded: {AWAY})" in text


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "<javascript:x>",
        "[x](/y)",
        "![x](file:///y)",
        "<b>x</b>",
        "[x][1] [1]: http://e.example",
    ],
)
def test_what_is_refused_stands_as_it_was_written(text):
    assert text in shown(made(markdown_cell(text.replace(" [", "\n\n["))))


def test_of_html_in_the_courses_own_texts_only_hints_unfold():
    cells = assignment()
    cells[0].source += "\n\n<details><summary>More</summary>\n\n<b onclick='x'>y</b> <script>\n\n</details>"
    html = page(handed_in(), notebook_of(cells), Result("Ada", "ps99", (DONE,)))
    assert html.count("<details><summary>") == html.count("</details>") == 2
    assert "&lt;b onclick=&#39;x&#39;&gt;y&lt;/b&gt; &lt;script&gt;" in html


def test_links_to_the_web_stay():
    html = made(markdown_cell("[a *paper*](https://arxiv.org/abs/1706.03762?a=1&b=2#s) <HTTP://e.example>"))
    rel = 'rel="noopener noreferrer nofollow"'
    assert f'<a href="https://arxiv.org/abs/1706.03762?a=1&amp;b=2#s" {rel}>a <em>paper</em></a>' in html
    assert f'<a href="HTTP://e.example" {rel}>' in html


def test_markdown_is_rendered():
    text = "#### Deep\n\n# Top\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |\n\n3. x\n\n~~no~~ $a_i b_i$ costs $5 and $6\n\n"
    text += "$$\n\\frac12\n$$"
    html = made(markdown_cell(text))
    for part in (
        "<h5>Deep</h5>",  # one step below "2 · Why?"
        "<h3>Top</h3>",
        '<th class="center">a</th>',
        '<td class="right">2</td>',
        '<ol start="3">',
        "<s>no</s>",
        '<code class="tex">a_i b_i</code> costs $5 and $6',
        '<pre class="tex">\\frac12</pre>',
        "<details><summary>Hint</summary>",
        "Formulas are shown as they were written.",
    ):
        assert part in html, part
    assert "Formulas" not in made()


def test_pictures_in_markdown_are_drawn_anew_or_named():
    text = f"![one](attachment:a%20b.png) ![two](data:image/png;base64,{RED}) ![three](attachment:none)"
    cell = markdown_cell(text, attachments={"a b.png": {"image/png": RED}})
    html = made(cell)
    assert re.findall('<img src="data:image/png;base64,[^"]+" alt="([^"]*)">', html) == ["one", "two"]
    assert "three (a picture that cannot be shown)" in html


def test_outputs():
    html = made(
        output("display_data", data={"image/png": [RED[:20], RED[20:]], "text/plain": ["<Figure ", "640>"]}),
        output("execute_result", data={"text/html": "<b>x</b>", "text/plain": "   a\n0  1"}),
        output("display_data", data={"image/svg+xml": "<svg/>"}),
        output("stream", name="stderr", text=["Warn", "ing\n"]),
        output("error", ename="ValueError", evalue="seven", traceback=[]),
        code_cell("g()", outputs=[output_of("stream", text=text) for text in ("50%", "\r1", "00%\n")]),
    )
    assert 'alt="&lt;Figure 640&gt;">' in html
    assert '<pre class="output text">   a\n0  1</pre>' in html
    assert "(an HTML output is not shown)" in html
    assert "(an SVG picture is not shown)" in html
    assert '<pre class="output stderr">Warning</pre>' in html
    assert '<pre class="output error">ValueError: seven</pre>' in html
    assert '<pre class="output text">100%</pre>' in html


# ---- Too much


def test_a_page_is_small_whatever_comes():
    noise = base64_of(encoded(Image.effect_noise((700, 700), 100), "jpeg"))
    long = "&<\"'" * 50_000
    cells = [
        markdown_cell(long),
        code_cell("+-" * 50_000),
        output("stream", name="stdout", text=long * 4),
        output("stream", name="stdout", text="\n" * 300_000 + "x"),
        code_cell("f()", outputs=[output_of("display_data", data={"image/jpeg": noise}) for _ in range(9)]),
        code_cell("f()", outputs=[output_of("display_data", data={f"a/{i}": ""}) for i in range(9_000)]),
        markdown_cell("> " * 5_000),
        *(markdown_cell("*&*") for _ in range(3_000)),
    ]
    messages = tuple("&" * 20_000 for _ in range(25))
    tested = [CellResult("test", 1.5, 2.0, "done", messages)]
    tested += [CellResult(f"test {n}", 0.0, 0.0, "done", messages) for n in range(9)]
    html = made(*cells, result=Result("&" * 100_000, "ps99", tuple(tested), repairs=("&" * 9_000,) * 999))
    assert 300_000 < len(html.encode()) <= 1_000_000
    text = shown(html)
    assert "characters are left out here" in text
    assert "lines are left out here" in text
    assert "8,980 more outputs are left out" in text
    assert re.search("[0-9]+ more cells are left out: this page is full", text)
    assert "1.5 of 2 points" in text


@pytest.mark.parametrize(
    "data", [{"&" * 300: ""}, {"image/png": "", "text/plain": "&" * 300}, {"text/plain": "x"}]
)
def test_many_small_outputs_are_too_much_too(data):
    cell = code_cell("f()", outputs=[output_of("display_data", data=data) for _ in range(20)])
    html = made(*[cell] * 500)
    assert 25_000 < len(html.encode()) <= 700_000
    assert "more outputs are left out" in html


@pytest.mark.parametrize(
    "more",
    [
        {"cells": [markdown_cell("é" * 50_000)]},
        {"cells": [code_cell("é" * 50_000)]},
        {"cells": [raw_cell("é" * 50_000)]},
        {"cells": [output("stream", name="stdout", text="é" * 50_000)]},
        {"cells": [output("error", ename="é" * 50_000, evalue="", traceback=None)]},
        {"cells": [], "result": Result("A", "p", (CellResult("test", 0, 2, "done", ("é" * 50_000,)),))},
        {"cells": [], "result": Result("A", "p", (DONE,), repairs=("é" * 50_000,))},
    ],
    ids="markdown code raw stream error message repair".split(),
)
def test_what_is_long_is_cut(more):
    text = shown(made(*more.pop("cells"), **more))
    assert text.count("characters are left out here") == 1
    assert 300 < text.count("é") <= 20_000


def test_only_so_much_markdown_is_parsed():
    html = made(*(markdown_cell("some" * 2_000) for _ in range(15)))
    assert html.count('<pre class="text">') == 15 - 100_000 // 8_000


def test_a_page_that_is_too_large_is_not_made():
    with pytest.raises(ValueError, match="at most 1,000,000 bytes"):
        made(comments={"why": "long " * 300_000})


SLOW = {
    "quotations": ">" * 5_000,
    "brackets": "[" * 100_000,
    "lists": "\n".join("  " * i + "- a" for i in range(500)),
    "references": "".join(f"[a{i}]: x\n" for i in range(2_000)),
    "ticks": " ".join("`" * i for i in range(1, 200)),
    "table": "a|b\n-|-\n" + "|\n" * 5_000,
    "address": f"[x]({'h' * 5_000})" + "[x](http://" + "a" * 5_000 + "<)",
}


@pytest.mark.parametrize("text", SLOW.values(), ids=list(SLOW))
def test_nested_markdown_takes_no_time(text):
    start = time.process_time()
    html = made(markdown_cell(text))
    assert time.process_time() - start < 4
    assert len(html) < 250_000


def test_markdown_that_is_too_deep_is_shown_as_it_stands():
    text = ">" * 30 + "kept"
    assert text in shown(made(markdown_cell(text)))


@pytest.mark.parametrize("text", [" \n" * 20_000, "(" * 20_000, '"' * 20_000, "\t" * 20_000, "f'{" * 7_000])
def test_strange_code_takes_no_time(text):
    start = time.process_time()
    made(code_cell(text))
    assert time.process_time() - start < 4


def test_overwriting_takes_no_time():
    start = time.process_time()
    terminal("x" * 100_000 + "\r" * 100_000 + "\ra" * 50_000 + "\b" * 50_000)
    assert time.process_time() - start < 2


# ---- Garbage

GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=9), some, max_size=3),
    max_leaves=9,
)
TYPED = st.sampled_from(["stream", "error", "display_data", "execute_result", "x"]) | GARBAGE
OUTPUTS = st.dictionaries(
    st.sampled_from("output_type name text data metadata ename evalue traceback".split()),
    TYPED | st.dictionaries(st.sampled_from(["text/plain", "image/png", "text/html"]), GARBAGE),
)


@given(
    st.fixed_dictionaries(
        {"cell_type": st.sampled_from(["code", "markdown", "raw"]) | GARBAGE},
        optional={
            "source": GARBAGE,
            "metadata": GARBAGE | st.fixed_dictionaries({"nbgrader": GARBAGE}),
            "attachments": GARBAGE,
            "outputs": GARBAGE | st.lists(OUTPUTS | GARBAGE, max_size=3),
        },
    )
)
def test_any_garbage_makes_a_page(cell):
    assert made(nbformat.from_dict(cell)).endswith("</html>")


@pytest.mark.parametrize(
    "html",
    [
        "<script>1</script>",
        "<p onclick='x'></p>",
        "<a href='javascript:x'>x</a>",
        "<img src='http://e.example'>",
        "<img src='data:image/svg+xml;base64,AA'>",
        "<p id='body'></p>",
        "<!-- x -->",
        "<p>",
        "<b><p></b></p>",
        "<style>x</style>",
        "<form></form>",
    ],
)
def test_what_a_page_may_not_hold_is_found(html):
    inspection.inspect("<html><head><title>x</title></head><body><b>x</b></body></html>", [])
    with pytest.raises(ValueError, match=r"^page: "):
        inspection.inspect(f"<html><head></head><body>{html}</body></html>", [])


def test_a_page_that_does_not_end_is_found():
    with pytest.raises(ValueError, match="body is not closed"):
        inspection.inspect("<html><head></head><body>", [])


# ---- In a browser

# Runs before any script of a page: what scripts would ask of a person is counted instead.
HOOK = "window.fired = 0; window.alert = window.confirm = window.prompt = () => { window.fired += 1; };"
WAIT = "new Promise(done => setTimeout(done, 30))"


@pytest.fixture(scope="module")
def chromium(request):
    if browser.find() is None:
        if request.config.getoption("--full"):
            pytest.fail("the full tests need Chromium")
        pytest.skip("needs Chromium")


@pytest.fixture(scope="module")
def view(chromium):
    with browser.Browser(width=390) as found:
        found.command("Page.addScriptToEvaluateOnNewDocument", source=HOOK)
        yield found


def away(view: browser.Browser) -> list[str]:
    """What a page asked for beside itself and what it holds."""
    return [url for url in view.requests if not url.startswith(("data:", "file:"))]


def test_in_a_browser_hostile_input_does_nothing(view, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(hostile_page(*((place, text) for place, text, _ in HOSTILE)), encoding="utf-8")
    view.open(file)
    title = view.evaluate("document.title")
    view.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    view.evaluate(WAIT)
    assert view.evaluate("window.fired") == 0
    assert view.evaluate("document.title") == title
    assert title.startswith("Ada </title><script>")
    assert away(view) == []
    # Not even an attempt was stopped: the policy says so on the console.
    assert view.problems == []
    assert view.evaluate("location.href") == view.evaluate("document.baseURI") == file.as_uri()
    count = "document.querySelectorAll('{}').length"
    bad = "script, iframe, object, embed, form, input, svg, math, link, base, video, body style, [style], [name]"
    assert view.evaluate(count.format(bad)) == view.evaluate(count.format("meta[name]")) == 4
    attributes = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not any(name.startswith("on") for name in view.evaluate(attributes))
    protocols = "[...new Set([...document.querySelectorAll('a')].map(a => a.protocol))]"
    assert set(view.evaluate(protocols)) == {"file:", "http:"}
    assert view.evaluate("getComputedStyle(document.body).margin") == "0px", "the style sheet is let in"
    assert view.evaluate("document.documentElement.scrollWidth") == 390


def naive(place: str, text: str) -> str:
    """A page that takes everything as it comes."""
    if place == "markdown":
        parser = MarkdownIt("commonmark", {"html": True}).enable("table")
        parser.validateLink = lambda _: True
        text = parser.render(text)
    return f"<!DOCTYPE html><html><head><meta charset=utf-8></head><body>{text}</body></html>"


DID = """
[...document.querySelectorAll('iframe')].map(frame => {
  try { return frame.contentWindow.fired > 0 || frame.contentDocument.title === 'pwned'; }
  catch { return false; }  // it went elsewhere
})
"""
CLICK = """
for (const frame of document.querySelectorAll('iframe'))
  try { frame.contentDocument.querySelectorAll('a').forEach(a => a.click()); } catch {}
"""


def test_in_a_browser_the_same_input_does_something_where_nobody_cares(view, tmp_path):
    """Else the test above could not fail. Each in a frame of its own, asking for an address of its own."""
    loud = [(place, text) for place, text, does in HOSTILE if does]
    pages = [naive(place, text.replace(AWAY, f"{AWAY}{n}")) for n, (place, text) in enumerate(loud)]
    frames = "".join(f'<iframe srcdoc="{escape(page)}"></iframe>' for page in pages)
    file = tmp_path / "page.html"
    file.write_text(f"<!DOCTYPE html><body>{frames}", encoding="utf-8", errors="replace")
    view.open(file)
    view.evaluate(CLICK)
    view.evaluate(WAIT)
    did = view.evaluate(DID)
    asked = {match[1] for url in view.requests if (match := re.match(rf"{AWAY}(\d+)", url))}
    assert len(did) == len(loud)
    assert [loud[n] for n, done in enumerate(did) if not done and str(n) not in asked] == []


HOLES = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>"
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>"
    f"<img src={AWAY}><link rel=stylesheet href={AWAY}><object data={AWAY}></object><video src={AWAY}></video>"
    f"<style>@import url({AWAY}); body {{ margin: 99px }}</style><p id=p style='position: fixed'>x</p>"
    f"<base href={AWAY}><form id=f action={AWAY}></form><a id=a href='javascript:alert(1)'>x</a>"
)


@pytest.mark.parametrize("policy", [True, False], ids=["policy", "none"])
def test_in_a_browser_the_policy_stops_what_gets_through(view, tmp_path, policy):
    """A page with a hole in it; without the policy, the same does harm."""
    html = made().replace("<main>", "<main>" + HOLES, 1)
    if not policy:
        html = html.replace("Content-Security-Policy", "x")
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    view.open(file)
    with nullcontext() if policy else suppress(RuntimeError):  # as the form takes the browser elsewhere
        view.evaluate("document.getElementById('a').click(); document.getElementById('f').submit()")
        view.evaluate(WAIT)
    sent = [problem for problem in view.problems if "net::" in problem]  # and not found, as nothing is here
    assert bool(sent) is not policy
    if not policy:
        return
    assert view.evaluate("window.fired") == 0
    assert view.evaluate("location.href") == view.evaluate("document.baseURI") == file.as_uri()
    assert view.evaluate("getComputedStyle(document.body).margin") == "0px"
    assert view.evaluate("getComputedStyle(document.getElementById('p')).position") == "static"
    assert sum("violates" in problem for problem in view.problems) >= 12


def test_the_policy_comes_first():
    html = made()
    head = re.search("<head>\n(.*?)\n", html)[1]
    assert head.startswith(
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:;'
    )
    assert "unsafe" not in html
    assert "base-uri 'none'; form-action 'none'" in head


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
def test_colours_can_be_read(number):
    source = (Path(inspection.__file__).parent / "page.html").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", source, re.DOTALL)[number]
    colours = dict(re.findall("--([a-z-]+): (#[0-9a-f]{6});", block))
    grounds = {"paper", "sheet", *(name for name in colours if name.endswith("-tint"))}
    inks = colours.keys() - grounds - {"line"}
    assert len(inks) == 13
    for ink in inks:
        for ground in grounds:
            light, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_the_page_is_complete_in_itself():
    html = made()
    assert "url(" not in html
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)
    assert json.dumps(html)
