"""What a page loads first: rules that something on the site can match, scripts that wait."""

import re

import pytest

from book.finish import lighten, used_rules

NAMES = {"shown", "open", "dark", "a:b"}


@pytest.mark.parametrize(
    ("style", "kept"),
    [
        (".shown{color:red}", True),
        (".hidden{color:red}", False),
        (".shown .hidden{color:red}", False),
        (".hidden,.shown{color:red}", True),  # one of two is enough
        (":is(.hidden,.shown) p{color:red}", True),
        (".shown:not(.hidden){color:red}", True),
        ('#open>.shown:before{content:"x"}', True),
        (".a\\:b{color:red}", True),
        ("@media print{.shown{color:red}}", True),
        ("@media print{@supports (color:red){.hidden{color:red}}}", False),
        ("@keyframes turn{to{color:red}}", True),
    ],
)
def test_a_rule_is_kept_if_something_can_match_it(style, kept):
    assert used_rules(style, NAMES) == (style if kept else "")


PAGE = """<head><title>A page</title><link rel="stylesheet" href="{root}_static/a.css?v=1" />
<link href="{root}_static/b/b.css" rel="stylesheet" /><link rel="icon" href="{root}i.svg"/>
<script src="{root}_static/one.js"></script><script defer="defer" src="{root}_static/two.js"></script>
<script>let plain = 1; theme = localStorage.getItem("theme") || "auto";</script>
<script>DOCUMENTATION_OPTIONS.pagename = 'x';</script>
<script src="{root}searchindex.js"></script></head><p class="shown">"""
OWN = '<link rel="stylesheet" href="../_static/explorables/own.css?v=7" />'
FILES = {
    "_static/a.css": '@charset "utf-8";@import "b/c.css";.shown{background:url(img/x.png)} .hidden{top:0}',
    "_static/b/c.css": "b{background:url(z.png)}",
    "_static/b/b.css": "p{background:url('../y.png')} q{background:url(data:,)}",
    "index.html": PAGE.format(root=""),
    "search.html": PAGE.format(root=""),
    "explorables/one.html": PAGE.format(root="../") + OWN,
}


@pytest.fixture
def html(tmp_path):
    for folder in ("_static/b", "_static/styles", "explorables"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    lighten(tmp_path)
    return tmp_path


def test_one_style_sheet_stands_for_those_that_all_pages_have(html):
    page = (html / "explorables" / "one.html").read_text()
    named = re.findall(r'<link rel="stylesheet" href="(.*?)" />', page)
    assert named == ["../_static/styles/site.css", "../_static/explorables/own.css"]
    assert page.count("stylesheet") == 2
    assert '<link rel="icon" href="../i.svg"/>' in page
    style = (html / "_static" / "styles" / "site.css").read_text()
    # What a sheet imports stands in its place; addresses are as seen from the new place.
    assert style.split() == [
        "b{background:url(../b/z.png)}",
        ".shown{background:url(../img/x.png)}",
        "p{background:url(../y.png)}q{background:url(data:,)}",
    ]


def test_scripts_wait_and_so_does_what_needs_them(html):
    page = (html / "index.html").read_text()
    assert '<script defer src="_static/one.js">' in page
    assert page.count("defer=") == 1
    assert "searchindex" not in page  # which is loaded where one searches
    assert '<script defer src="searchindex.js">' in (html / "search.html").read_text()
    assert "<script>let plain = 1;" in page
    assert "<script type=\"module\">DOCUMENTATION_OPTIONS.pagename = 'x';" in page
    assert 'localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ?' in page


def test_a_second_time_changes_nothing(html):
    before = {path: path.read_text() for path in html.rglob("*.*") if path.is_file()}
    lighten(html)
    assert {path: path.read_text() for path in before} == before
