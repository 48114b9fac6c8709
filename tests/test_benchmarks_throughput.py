"""How fast a class is graded: the record that the pages quote holds what was asked for."""

from benchmarks import throughput
from exercises import release
from transformer_lessons import records


def test_a_thousand_are_graded_at_a_hundred_a_minute_as_the_readme_and_the_guide_say():
    record = records.read("throughput")
    assert [(run["submissions"], run["workers"]) for run in record["runs"]] == throughput.RUNS
    runs = {(run["submissions"], run["workers"]): run for run in record["runs"]}
    largest = runs[throughput.LARGEST, throughput.WORKERS]
    assert largest["a_minute"] >= 100
    assert runs[throughput.ALONE, 1]["seconds"] / runs[throughput.ALONE, throughput.WORKERS]["seconds"] >= 1.8
    memory = [run["memory_mb"] for run in runs.values() if run["workers"] == throughput.WORKERS]
    assert max(memory) <= 1.1 * min(memory), "memory does not grow with the class"
    minutes = f"{largest['seconds'] / 60:.1f} minutes on two cores"
    assert record["assignment"].endswith("attention")
    said = (
        f"{largest['submissions']:,} submissions of an assignment on attention, all different, took {minutes}"
    )
    for name in ("README.md", "book/instructors.md"):
        words = " ".join((release.HERE.parent / name).read_text(encoding="utf-8").split())
        assert f"{said}, {record['over_plain_nbgrader']:g} times as many a minute" in words, name
    some = runs[throughput.ALONE, throughput.WORKERS]
    assert f"{some['submissions']} submissions took {some['seconds'] / 60:.1f} minutes on two cores" in words
