"""Honest work gets the points that plain nbgrader gives; masters get all of them, whatever they print."""

from contextlib import closing

import nbformat
import pytest

from benchmarks import agreement
from exercises import release
from exercises.autograder.box.confine import Limits
from exercises.autograder.running.runner import Cell
from exercises.autograder.running.worker import Worker
from transformer_lessons import records
from transformer_lessons.tools.submission import is_ungraded

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader]


def test_points_are_those_of_plain_nbgrader(tmp_path, request):
    number = agreement.ALL if request.config.getoption("--full") else 1
    found = list(agreement.graded_twice(map(agreement.submission, range(number)), tmp_path / "course"))
    assert [one["submission"] for one in found] == list(range(number))
    assert sum(one["tests"] for one in found) >= 8 * number
    assert [one["different"] for one in found if one["different"]] == []


def test_the_record_says_how_often_they_agreed_and_what_it_cost():
    record = records.read("agreement")
    assert record["submissions"] >= agreement.ALL
    assert record["tests"] > 10 * record["submissions"]
    assert record["different"] == {}, "list here where plain nbgrader is wrong, and why"
    passing = record["passing"]
    assert (passing["assignment"], passing["times"]) == (agreement.PASSING, agreement.TIMES)
    assert passing["cpu_seconds_each"]["autograder"] <= 0.7
    assert passing["ratio"] >= 6
    readme = (release.HERE.parent / "README.md").read_text(encoding="utf-8")
    assert f"{record['submissions']} mixed submissions ({record['tests']:,} tests)" in readme
    took = passing["cpu_seconds_each"]
    ours, theirs = took["autograder"], took["nbgrader"]
    assert f"took {ours} seconds of processor time, with plain nbgrader {theirs} (" in readme


def cells(assignment: str) -> list[Cell]:
    """The code cells of a master."""
    made, path = [], release.HERE / "source" / assignment / f"{assignment}.ipynb"
    for cell in nbformat.read(path, as_version=4).cells:
        about = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and not is_ungraded(cell.id):
            role = "test" if about.get("points") else "instructor" if about.get("locked") else "learner"
            made.append(Cell(cell.id, role, cell.source, float(about.get("points") or 0)))
    return made


@pytest.mark.full
def test_masters_get_full_marks_each_time():
    """Whatever numbers the tests draw."""
    with closing(Worker()) as worker:
        for _ in range(100):
            for master in release.masters():
                *outcomes, _ = worker.grade(cells(master.parent.name), Limits())
                results = [outcome["result"] for outcome in outcomes if "result" in outcome]
                assert results
                assert all(one["earned"] == one["worth"] for one in results), (master.stem, results)
