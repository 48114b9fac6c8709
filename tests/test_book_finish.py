"""Style sheets keep the rules that something on the site can match."""

import pytest

from book.finish import used_rules

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
