"""What a graded notebook shows in nbgrader's formgrader: no element, address or script of a student's own."""

import base64
import copy

import nbformat
import pytest
from lxml import html
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from exercises.autograder.running import inert
from exercises.autograder.running.inert import inert_markdown, inert_output, sanitize

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Your element with mimetype"),
]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
TEXTS = [
    "<script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "<svg/onload=hacked()>",
    "a\n\n<iframe srcdoc='<script>hacked()</script>'></iframe>",
    "[click](javascript:hacked())",
    "[click](JaVaScRiPt:hacked())",
    "[click](java&#115;cript:hacked())",  # codespell:ignore
    "[click](data:text/html,<script>hacked()</script>)",
    "<javascript:hacked()>",
    "[click][1]\n\n[1]: javascript:hacked()",
    "![](javascript:hacked())",
    "![x](http://evil.example/pixel.png)",
    "```\nx\n\n[click](javascript:hacked())\n<script>hacked()</script>\n```",
    "    code\n\n    <script>hacked()</script>",
    "- a\n\n  <b onclick=hacked()>b</b>",
    "> quoted\n\n<form action=http://evil.example><button>ok</button></form>",
    "| a |\n|---|\n| <script>hacked()</script> |",
    "`</code><script>hacked()</script>`",
    "&lt;script&gt;hacked()&lt;/script&gt;",
    "<!-- --><script>hacked()</script>",
    "</div><script>hacked()</script>",
    "\0<script>hacked()</script>",
    "{{ 7 * 7 }}<style>@import 'http://evil.example'</style>",
    "<base href=http://evil.example><meta http-equiv=refresh content='0;http://evil.example'>",
]
OUTPUTS = [
    {"text/html": "<script>hacked()</script>"},
    {"text/html": "<b>table</b>", "text/plain": "table"},
    {"image/svg+xml": "<svg onload=hacked()></svg>"},
    {"application/javascript": "hacked()"},
    {"text/latex": "$\\href{javascript:hacked()}{x}$"},
    {"text/markdown": "<script>hacked()</script>"},
    {"image/png": '"><script>hacked()</script>'},
    {"image/png": base64.b64encode(b"<script>hacked()</script>").decode()},
    {"image/png": PNG, "text/plain": "a picture"},
    {"image/jpeg": PNG},
    {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}},
    {"text/plain": "<script>hacked()</script>"},
]
DANGEROUS = {"script", "iframe", "svg", "form", "button", "style", "base", "meta", "object", "embed"}


def notebook() -> nbformat.NotebookNode:
    outputs = [
        new_output("display_data", data=data, metadata={"width": '"><script>hacked()</script>'})
        for data in OUTPUTS
    ]
    outputs.append(new_output("stream", name="stdout", text="<script>hacked()</script>\x1b[31m"))
    outputs.append(new_output("error", ename="<script>", evalue="x", traceback=["<script>hacked()</script>"]))
    return new_notebook(cells=[*map(new_markdown_cell, TEXTS), new_code_cell("1", outputs=outputs)])


def found(made: nbformat.NotebookNode) -> list[str]:
    """What is dangerous on the page that formgrader's template stands on, within its cells."""
    page, _ = HTMLExporter(template_name="classic").from_notebook_node(made)
    seen = []
    for cell in html.fromstring(page).xpath("//div[contains(@class, 'cell ')]"):
        for element in cell.iter(html.etree.Element):
            seen += [element.tag] * (element.tag in DANGEROUS)
            seen += [name for name in element.attrib if name.startswith("on")]
            loaded = [element.get(name, "") for name in ("src", "action", "srcdoc")]
            seen += [address for address in loaded if address and not address.startswith("data:image/png;")]
            link = element.get("href", "#")  # followed only by who clicks on it
            seen += [link] * (not link.startswith(("#", "http://", "https://")))
    return seen


@pytest.mark.parametrize("formatted", [100_000, 0])
def test_nothing_dangerous_is_left_and_before_there_was(formatted, monkeypatch):
    monkeypatch.setattr(inert, "FORMATTED", formatted)
    hostile = notebook()
    before = found(copy.deepcopy(hostile))
    assert {"script", "onerror", "javascript:hacked()", "http://evil.example/pixel.png"} <= set(before)
    sanitize(hostile)
    assert found(hostile) == []
    nbformat.validate(hostile)


def test_what_is_harmless_stays():
    assert inert_markdown("**why** √d, `a < b`, [page](https://example.org)\n\n- one\n- two") == (
        '<div><p><strong>why</strong> √d, <code>a &lt; b</code>, <a href="https://example.org">page</a></p>&#10;'
        "<ul>&#10;<li>one</li>&#10;<li>two</li>&#10;</ul></div>"
    )
    assert inert_markdown("$a_1 < b$") == "<div><p>$a_1 &lt; b$</p></div>"
    assert inert_markdown(" ") == " "
    assert set(inert_output(new_output("display_data", data=OUTPUTS[8])).data) == {"image/png", "text/plain"}
    assert inert_output(new_output("display_data", data=OUTPUTS[0])).text == "[not shown: text/html]\n"


def test_locked_cells_are_the_courses():
    cell = new_markdown_cell("<details>hint</details>", metadata={"nbgrader": {"locked": True}})
    sanitize(new_notebook(cells=[cell]))
    assert cell.source == "<details>hint</details>"


def test_it_stays_small_and_says_what_was_cut():
    texts = ["\n" * 19_000 + "<" * 230_000, "short", "é" * 190_000, "\"'<>&" * 20_000, "the last"]
    cells = [make(text) for text in texts for make in (new_markdown_cell, new_code_cell)]
    made = new_notebook(cells=cells)
    sanitize(made)
    assert len(nbformat.writes(made).encode()) < inert.ROOM + 5_000
    assert [cell.source for cell in made.cells[2:4]] == ["<div><p>short</p></div>", "short"]
    assert "[cut: 249,000 characters in all]" in made.cells[0].source
    assert made.cells[-3].source.endswith("\n# [cut: 100,000 characters in all]")
    assert made.cells[-1].source == "the last"
