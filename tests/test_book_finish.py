"""What a page loads first: one style sheet, of rules that something on the site can match."""

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


FILES = {
    "_static/a.css": '@charset "utf-8";@import "b/c.css";.shown{background:url(img/x.png)} .hidden{top:0}',
    "_static/b/c.css": "b{background:url(z.png)}",
    "_static/b/b.css": "p{background:url('../y.png')} q{background:url(data:,)}",
    "chapters/one.html": '<p class="shown">',
}


def test_one_style_sheet_stands_for_all(tmp_path):
    for name, text in {**FILES, "_static/styles/old.css": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    lighten(tmp_path, ["_static/a.css", "_static/b/b.css"])
    style = (tmp_path / "_static" / "styles" / "site.css").read_text()
    # What a sheet imports stands in its place; addresses are as seen from the new place.
    assert style.split() == [
        "b{background:url(../b/z.png)}",
        ".shown{background:url(../img/x.png)}",
        "p{background:url(../y.png)}q{background:url(data:,)}",
    ]
