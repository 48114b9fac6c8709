"""What a page loads first: one style sheet, of rules that something on the site can match."""

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


PAGE = """<head><title>A page</title><link rel="stylesheet" href="../_static/a.css?v=1" />
<link href="../_static/b/b.css" rel="stylesheet" /><link rel="icon" href="../i.svg"/></head><p class="shown">"""
OWN = '<link rel="stylesheet" href="../_static/explorables/own.css?v=7" />'
FILES = {
    "_static/a.css": '@charset "utf-8";@import "b/c.css";.shown{background:url(img/x.png)} .hidden{top:0}',
    "_static/b/c.css": "b{background:url(z.png)}",
    "_static/b/b.css": "p{background:url('../y.png')} q{background:url(data:,)}",
    "chapters/one.html": PAGE,
    "explorables/one.html": PAGE + OWN,
}


def test_one_style_sheet_stands_for_those_that_all_pages_have(tmp_path):
    for name, text in {**FILES, "_static/styles/old.css": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for _ in range(2):  # as a build does that finds most pages as they were
        lighten(tmp_path)
    page = (tmp_path / "explorables" / "one.html").read_text()
    named = re.findall(r'<link rel="stylesheet" href="(.*?)" />', page)
    assert named == ["../_static/styles/site.css", "../_static/explorables/own.css"]
    assert page.count("stylesheet") == 2
    assert '<link rel="icon" href="../i.svg"/>' in page
    style = (tmp_path / "_static" / "styles" / "site.css").read_text()
    # What a sheet imports stands in its place; addresses are as seen from the new place.
    assert style.split() == [
        "b{background:url(../b/z.png)}",
        ".shown{background:url(../img/x.png)}",
        "p{background:url(../y.png)}q{background:url(data:,)}",
    ]
