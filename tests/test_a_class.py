"""How fast a class is graded: the record that the pages quote holds what was asked for."""

from benchmarks import a_class
from exercises import release
from transformer_lessons import records


def test_a_thousand_are_graded_at_a_hundred_a_minute_as_the_readme_and_the_guide_say():
    record = records.read("a_class")
    runs = {(run["submissions"], run["workers"]): run for run in record["runs"]}
    largest = runs[a_class.SIZES[-1], a_class.WORKERS]
    assert largest["a_minute"] >= 100
    assert runs[a_class.ALONE, 1]["seconds"] / runs[a_class.ALONE, a_class.WORKERS]["seconds"] >= 1.8
    memory = [runs[size, a_class.WORKERS]["memory_mb"]["all"] for size in a_class.SIZES]
    assert max(memory) <= 1.1 * min(memory), "memory does not grow with the class"
    minutes = f"{largest['seconds'] / 60:.1f} minutes on two cores"
    assert record["assignment"].endswith("attention")
    said = (
        f"{largest['submissions']:,} submissions of an assignment on attention, all different, took {minutes}"
    )
    for name in ("README.md", "book/instructors.md"):
        words = " ".join((release.HERE.parent / name).read_text(encoding="utf-8").split())
        assert f"{said}, {record['over_plain_nbgrader']:g} times as many a minute" in words, name
    some = runs[a_class.ALONE, a_class.WORKERS]
    assert f"{some['submissions']} submissions took {some['seconds'] / 60:.1f} minutes on two cores" in words
