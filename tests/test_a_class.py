"""How fast a class is graded: the record that the pages quote holds what was asked for."""

from benchmarks import a_class
from exercises import release
from transformer_lessons import records


def runs() -> dict[tuple[int, int], dict]:
    return {(run["submissions"], run["workers"]): run for run in records.read("a_class")["runs"]}


def test_a_thousand_are_graded_at_a_hundred_a_minute_or_more():
    largest = runs()[a_class.SIZES[-1], a_class.WORKERS]
    assert largest["a_minute"] >= 100
    assert largest["seconds"] <= 600


def test_a_second_worker_does_nearly_as_much_as_the_first():
    record, of = records.read("a_class"), runs()
    ratio = of[a_class.ALONE, 1]["seconds"] / of[a_class.ALONE, a_class.WORKERS]["seconds"]
    assert record["two_workers_over_one"] == round(ratio, 2)
    assert ratio >= 1.8


def test_each_submission_costs_the_same_however_many_there_are():
    """Seconds = start + number · each, by the smallest and the largest class: it holds for those between."""
    of = [runs()[size, a_class.WORKERS] for size in (*a_class.SIZES, a_class.ALONE)]
    spent = {run["submissions"]: run["cpu_seconds_each"] * run["submissions"] for run in of}
    least, most = min(spent), max(spent)
    each = (spent[most] - spent[least]) / (most - least)
    start = spent[least] - each * least
    for number, seconds in spent.items():
        assert abs(seconds - start - each * number) <= 0.15 * seconds, number


def test_memory_does_not_grow_with_the_class():
    of = [runs()[size, a_class.WORKERS]["memory_mb"] for size in a_class.SIZES]
    assert max(one["all"] for one in of) <= 1.1 * min(one["all"] for one in of)
    assert max(one["command"] for one in of) <= min(one["command"] for one in of) + 150


def test_the_readme_and_the_guide_quote_the_record():
    record, of = records.read("a_class"), runs()
    largest = of[a_class.SIZES[-1], a_class.WORKERS]
    minutes = f"{largest['seconds'] / 60:.1f} minutes on two cores"
    said = f"{largest['submissions']:,} submissions of `{a_class.ASSIGNMENT}`, all different, took {minutes}"
    for name in ("README.md", "book/instructors.md"):
        words = " ".join((release.HERE.parent / name).read_text(encoding="utf-8").split())
        assert f"{said}, {record['over_plain_nbgrader']:g} times as many a minute" in words, name
