"""Honest work gets the same points as from plain nbgrader; masters get full marks at every repetition."""

import pytest

from benchmarks import agreement
from exercises import release
from exercises.autograder.batch import grade
from exercises.autograder.running import job
from transformer_lessons import records

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader]


def test_points_are_those_of_plain_nbgrader(tmp_path, request):
    number = agreement.ALL if request.config.getoption("--full") else 1
    found = list(agreement.graded_twice(agreement.submissions(number), tmp_path / "course"))
    assert [one["submission"] for one in found] == list(range(number))
    assert sum(one["tests"] for one in found) >= 8 * number
    assert [one["different"] for one in found if one["different"]] == []


def test_readme_quotes_the_recorded_agreement_and_its_cost():
    record = records.read("agreement")
    assert record["submissions"] >= agreement.ALL
    assert record["different"] == {}, "list here the cases where plain nbgrader is wrong, and why"
    assert record["passing"]["ratio"] >= 6
    readme = (release.HERE.parent / "README.md").read_text(encoding="utf-8")
    assert f"{record['submissions']} mixed submissions ({record['tests']:,} tests)" in readme
    ours, theirs = map(record["passing"]["cpu_seconds_each"].get, ("autograder", "nbgrader"))
    assert f"took {ours} seconds of processor time, with plain nbgrader {theirs} (" in readme


@pytest.mark.full
def test_masters_get_full_marks_each_time(tmp_path):
    """The tests draw new random numbers at each of the 100 repetitions."""
    with grade.open_course(tmp_path) as grading:
        made = [grading.job(None, master.parent.name) for master in release.masters()]
    for one in made * 100:
        result = job.run(one).result
        assert result.earned == result.worth > 0, result
