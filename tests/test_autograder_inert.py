"""Nothing that a student put into a notebook runs or is loaded when nbgrader's formgrader shows it."""

import base64
import copy
import io

import nbformat
import pytest
from lxml import html
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image, PngImagePlugin

from exercises.autograder.running import inert, notebook
from exercises.autograder.running.inert import inert_markdown, inert_output, re_encode, sanitize

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Your element with mimetype")


def encoded(image: Image.Image, kind: str, **more) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **more)
    return buffer.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


SMALL = encoded(Image.new("RGBA", (13, 7), (255, 0, 0, 255)), "png")
PNG = base64_of(SMALL)
TEXTS = [
    "<script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "a\n\n<iframe srcdoc='<script>hacked()</script>'></iframe>",
    "[click](javascript:hacked())",
    "<javascript:hacked()>",
    "[click][1]\n\n[1]: javascript:hacked()",
    "![x](http://evil.example/pixel.png)",
    "```\nx\n\n[click](javascript:hacked())\n<script>hacked()</script>\n```",
    "\0<script>hacked()</script>",
]
OUTPUTS = [
    {"text/html": "<script>hacked()</script>"},
    {"text/html": "<b>table</b>", "text/plain": "table"},
    {"image/svg+xml": "<svg onload=hacked()></svg>"},
    {"application/javascript": "hacked()"},
    {"image/png": '"><script>hacked()</script>'},
    {"image/png": base64_of(b"<script>hacked()</script>")},
    {"image/png": PNG, "text/plain": "a picture"},
    {"image/jpeg": PNG},
    {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}},
    {"text/plain": "<script>hacked()</script>"},
]
DANGEROUS = {"script", "iframe", "svg", "form", "button", "style", "base", "meta", "object", "embed"}


def dangers(made: nbformat.NotebookNode) -> list[str]:
    """The dangerous elements, attributes and addresses in the cells, on the page that formgrader extends."""
    page, _ = HTMLExporter(template_name="classic").from_notebook_node(made)
    seen = []
    for cell in html.fromstring(page).xpath("//div[contains(@class, 'cell ')]"):
        for element in cell.iter(html.etree.Element):
            seen += [element.tag] * (element.tag in DANGEROUS)
            seen += [name for name in element.attrib if name.startswith("on")]
            loaded = [element.get(name, "") for name in ("src", "action", "srcdoc")]
            seen += [address for address in loaded if address and not address.startswith("data:image/png;")]
            link = element.get("href", "#")  # followed only when it is clicked
            seen += [link] * (not link.startswith(("#", "http://", "https://")))
    return seen


def test_sanitizing_removes_everything_dangerous():
    outputs = [
        new_output("display_data", data=data, metadata={"width": '"><script>hacked()</script>'})
        for data in OUTPUTS
    ]
    outputs.append(new_output("stream", name="stdout", text="<script>hacked()</script>\x1b[31m"))
    outputs.append(new_output("error", ename="<script>", evalue="x", traceback=["<script>hacked()</script>"]))
    given = new_markdown_cell("<details>hint</details>", metadata={"nbgrader": {"locked": True}})
    hostile = new_notebook(cells=[given, *map(new_markdown_cell, TEXTS), new_code_cell("1", outputs=outputs)])
    before = dangers(copy.deepcopy(hostile))
    assert {"script", "onerror", "javascript:hacked()", "http://evil.example/pixel.png"} <= set(before)
    hostile.cells[-1].outputs, _ = notebook._within_bounds(hostile.cells[-1].outputs, 200_000)
    sanitize(hostile)
    assert dangers(hostile) == []
    assert given.source == "<details>hint</details>", "it is the course's"
    nbformat.validate(hostile)


def test_what_is_harmless_stays():
    assert inert_markdown("**why** √d, `a < b`, [page](https://example.org)\n\n- one\n- two") == (
        '<div><p><strong>why</strong> √d, <code>a &lt; b</code>, <a href="https://example.org">page</a></p>&#10;'
        "<ul>&#10;<li>one</li>&#10;<li>two</li>&#10;</ul></div>"
    )
    assert inert_markdown("$a_1 < b$") == "<div><p>$a_1 &lt; b$</p></div>"
    assert inert_markdown(" ") == " "
    assert set(inert_output(new_output("display_data", data=OUTPUTS[6])).data) == {"image/png", "text/plain"}
    assert inert_output(new_output("display_data", data=OUTPUTS[0])).text == "[not shown: text/html]\n"


def test_a_table_that_few_letters_make_large_is_cut_and_references_stay_text():
    """All answers share what they may take to format, and a table that is cut is none any more."""
    references = "".join(f"[a{n}]: /x\n" for n in range(1_000)) + "[a1]" * 1_000
    table = "|a" * 150 + "\n" + "|-" * 150 + "\n" + "a\n" * 400  # 60,300 cells in 1,400 letters
    cells = [new_markdown_cell(text) for text in (references, table, table)]
    sanitize(new_notebook(cells=cells))
    assert ["cut: " in cell.source for cell in cells] == [False, False, True]
    assert ["<table>" in cell.source for cell in cells] == [False, True, False]
    assert "<a" not in cells[0].source


def test_text_too_long_to_parse_is_cut_with_a_note():
    texts = ["\n" * 19_000 + "<" * 90_000, "short", "é" * 98_000, "the last"]
    made = new_notebook(cells=[make(text) for text in texts for make in (new_markdown_cell, new_code_cell)])
    sanitize(made)
    first, _, short, *_, cut, _, last, _ = (cell.source for cell in made.cells)
    assert "[cut: 109,000 characters in all]" in first
    assert (short, last) == ("<div><p>short</p></div>", "<div><p>the last</p></div>")
    assert cut.count("é") == 98_000
    assert [cell.source for cell in made.cells[1::2]] == texts


def test_code_that_takes_minutes_to_colour_is_shown_without_colours():
    """Where it is long, and where it has many blank lines between two quotes."""
    few, many, short, long = " \n" * 100, " \n" * 300, "a" * 99_000, "." * 100_000
    for text, coloured in ((few, True), (many, False), (short, True), (long, False)):
        code = f"x = '{text}'"
        made = new_notebook(cells=[new_code_cell(code)], metadata={"language_info": {"name": "python"}})
        sanitize(made)
        page, _ = HTMLExporter(template_name="classic").from_notebook_node(made)
        assert ('<span class="o">=</span>' in page) == coloured
        assert html.fromstring(page).xpath("string(//pre)").strip() == code


# ---- Pictures


def test_only_the_pixels_of_a_picture_are_kept():
    """Without the HTML appended to the PNG, its text chunks, and transparency."""
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "<script>alert(1)</script>")
    clear = Image.new("RGBA", (3, 2), (0, 0, 0, 0))
    data = encoded(clear, "png", pnginfo=texts) + b"<script>alert(2)</script>"
    made = inert_output(new_output("display_data", data={"image/png": base64_of(data)}))
    raw = base64.b64decode(made.data["image/png"])
    assert b"script" not in raw
    assert Image.open(io.BytesIO(raw)).getpixel((0, 0)) == (255, 255, 255)


def test_a_large_picture_is_made_small_enough():
    noise = Image.effect_noise((600, 400), 100).convert("RGB")
    [(kind, drawn)] = re_encode("image/png", base64_of(encoded(noise, "png", compress_level=0))).items()
    assert kind == "image/jpeg"
    assert inert.PNG < len(drawn) < 200_000
    [flat] = re_encode("image/png", base64_of(encoded(Image.new("RGB", (1500, 900)), "png"))).values()
    assert Image.open(io.BytesIO(base64.b64decode(flat))).size == (inert.SIDE, 0.6 * inert.SIDE)


def test_invalid_picture_is_replaced_by_a_note():
    """Also one that takes long to decode: a JPEG can repeat a scan of a few bytes a hundred thousand times."""
    scans = encoded(Image.new("RGB", (13, 7)), "jpeg", progressive=True)
    many = scans[:-2] + scans[scans.rindex(b"\xff\xda") : -2] * inert.SCANS + scans[-2:]
    assert re_encode("image/jpeg", base64_of(scans))
    for kind, data in (
        ("image/png", "no base 64!"),
        ("image/jpeg", PNG),
        ("image/jpeg", base64_of(many)),
        ("image/png", base64_of(SMALL[:40])),
        ("image/png", base64_of(encoded(Image.new("1", (3_000, 3_000)), "png"))),
        ("image/png", base64_of(SMALL + bytes(7 << 20))),
    ):
        made = inert_output(new_output("display_data", data={kind: data, "text/plain": "<Figure>"}))
        assert made.data == {"text/plain": "<Figure> (a picture that cannot be shown)"}


def test_number_of_re_encoded_pictures_is_limited(monkeypatch):
    """Decoding takes time, and a kilobyte can hold millions of pixels."""
    drawn = []
    monkeypatch.setattr(inert, "re_encode", lambda kind, data: drawn.append(kind) or {})
    outputs = [new_output("display_data", data={"image/png": "x"}) for _ in range(200)]
    kept, room = notebook._within_bounds(outputs, 200_000)
    assert len(drawn) <= 21
    assert (kept[-1].text, room < 0) == ("[cut: the notebook has too much output]\n", True)
    done = len(drawn)
    assert notebook._within_bounds(outputs, room) == (kept[-1:], room)
    assert len(drawn) == done
