"""What counts of Lighthouse's runs; the runs themselves are for `make site-check`."""

from book.lighthouse import BOUNDS, SHIFT, medians, shortcomings

GOOD = {"performance": 98, "accessibility": 100, "best-practices": 100, "seo": 100, SHIFT: 0.049}


def test_the_median_counts_of_each_number():
    runs = [
        {**GOOD, "performance": score, SHIFT: shift} for score, shift in ((90, 0.3), (99, 0.1), (97, 0.2))
    ]
    assert medians(runs) == {**GOOD, "performance": 97, SHIFT: 0.2}


def test_a_laptop_must_be_faster_than_a_phone():
    assert BOUNDS["phone"]["performance"] == 90
    assert shortcomings(GOOD, "laptop") == shortcomings({**GOOD, "performance": 90}, "phone") == []
    assert shortcomings({**GOOD, "performance": 97}, "laptop") == ["performance 97, expected at least 98"]


def test_whatever_is_short_is_named():
    assert shortcomings({**GOOD, "seo": 92, SHIFT: 0.05}, "phone") == [
        "seo 92, expected at least 100",
        "layout shift 0.050, expected below 0.05",
    ]
