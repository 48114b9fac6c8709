"""A changed master: affected marks are computed again and shown before they are entered; manual ones stay."""

import shutil

import nbformat
import pytest
from nbgrader.api import Gradebook

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder.batch import grade
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from tests.submissions import NAME, SOLVED, TESTED, WRITTEN, dump, give, hand_in, read, with_answers, worth

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader, pytest.mark.usefixtures("graded_once")]
TEST = "ps01-1-test"
FULL = worth(TEST)
LESS = TESTED - FULL + 0.25


@pytest.fixture
def own_masters(tmp_path, monkeypatch):
    """A copy of an assignment's master and release that a test may change."""
    for kind in ("source", "release"):
        shutil.copytree(release.HERE / kind / NAME, tmp_path / "exercises" / kind / NAME)
    shutil.copy(release.HERE / "nbgrader_config.py", tmp_path / "exercises")
    monkeypatch.setattr(release, "HERE", tmp_path / "exercises")
    return tmp_path / "exercises" / "source" / NAME / f"{NAME}.ipynb"


def change(master, name: str, text: str, **marks: float) -> None:
    """Append a line to a cell, both in the master and in the released assignment; it may give other points."""
    for path in (master, release.released(master)):
        notebook = read(path)
        for cell in notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("grade_id") == name:
                cell.source += f"\n{text}"
                cell.metadata.nbgrader |= marks
        nbformat.write(notebook, path)


def test_a_changed_test_regrades_what_it_concerns_and_shows_it_first(own_masters, tmp_path, capsys):
    course, marked = tmp_path / "course", with_answers(SOLVED)
    marked.cells.insert(1, nbformat.v4.new_code_cell("MARKER = 1", id="marker"))
    stub = with_answers(SOLVED | {"ps01-1-answer": "raise NotImplementedError"})
    summary = grade.grade(hand_in(tmp_path / "in", ann=marked, bob=stub, carl=stub), course)
    less = TESTED - FULL
    assert {one.student: one.earned for one in summary.graded} == {"ann": TESTED, "bob": less, "carl": less}
    give(course, TEST, "bob", 0.5)
    give(course, WRITTEN, "ann", 1.0)
    backup = (course / "gradebook.db").read_bytes()

    # Globals of a test are the tests' own names, and those of the student's names that its text mentions.
    change(own_masters, TEST, f'0.25 if "MARKER" in globals() else {FULL}')
    after = grade.grade(None, course)
    assert (after.graded, after.unchanged) == ([], 0)
    assert after.stale == [("ann", NAME), ("bob", NAME), ("carl", NAME)]
    with Gradebook(Course(course).gradebook) as book:
        book.remove_student("carl")  # who has left the course
    before = dump(Course(course).gradebook)

    words = ["regrade", NAME, "--course", str(course), "--workers", "1"]
    assert command.main(words) == 0
    said = capsys.readouterr().out
    assert f"ann  {NAME}  {TESTED:g} → {LESS:g}  ({TEST} {FULL:g} → 0.25)\n" in said
    assert f"0 → {FULL:g}; your mark by hand stays, look again: {TEST})\nSubmissions that change: 2." in said
    assert "Nothing was entered; maxima are today's. To enter the changes: python -m" in said
    assert dump(Course(course).gradebook) == before

    assert command.main([*words, "--yes"]) == 0
    assert "The changes were entered." in capsys.readouterr().out
    by_student = {mark.student: mark for mark in marks.marks(Course(course).gradebook, NAME)}
    assert by_student["ann"].cells[TEST].auto == 0.25
    assert (by_student["ann"].cells[WRITTEN].manual, by_student["ann"].cells[WRITTEN].waits) == (1.0, False)
    assert (by_student["bob"].cells[TEST].manual, by_student["bob"].cells[TEST].waits) == (0.5, True)
    assert by_student["ann"].score == LESS + 1.0
    assert f"{LESS:g}" in Course(course).page("ann", NAME).read_text(encoding="utf-8")
    assert command.main(["feedback", "--course", str(course)]) == 0
    assert capsys.readouterr().out.endswith("feedback: 2.\n")
    assert grade.grade(None, course).unchanged == 2
    assert grade.regrade(course, [], lambda changes: True).stale == []
    (course / "gradebook.db").write_bytes(backup)  # of the earlier master
    assert [one.earned for one in grade.grade(None, course).graded] == [LESS, TESTED, TESTED]


def test_prose_concerns_no_mark_and_the_earlier_version_is_still_taken(own_masters, tmp_path):
    course, old = tmp_path / "course", with_answers(SOLVED)
    grade.grade(hand_in(tmp_path / "in", ann=old), course)
    about = [cell.metadata.get("nbgrader", {}) for cell in old.cells if cell.cell_type == "markdown"]
    locked = next(one.grade_id for one in about if one and one.locked)
    change(own_masters, locked, "A sentence that was missing.")
    assert grade.regrade(course, [], lambda changes: True).stale == []

    [late] = grade.grade(hand_in(tmp_path / "late", bob=old), course).graded
    assert late.earned == TESTED
    assert late.repairs == ("It was begun with an earlier version of the assignment, which counts as well.",)
    texts = {cell.id: cell.source for cell in read(Course(course).received("bob", NAME)).cells}
    assert texts[locked].endswith("A sentence that was missing.")
    assert texts["ps01-1-answer"] == SOLVED["ps01-1-answer"]

    new = read(release.released(own_masters))
    for cell in new.cells:
        cell.source = SOLVED.get(cell.id, cell.source)
    [of_today] = grade.grade(hand_in(tmp_path / "new", carl=new), course).graded
    assert (of_today.earned, of_today.repairs) == (TESTED, ())


def test_a_master_that_does_not_earn_its_points_stops_everything(own_masters, tmp_path, capsys):
    """So does a master from which a cell was removed."""
    course = tmp_path / "course"
    grade.grade(hand_in(tmp_path / "in", ann=with_answers(SOLVED)), course)
    before = dump(Course(course).gradebook)
    change(own_masters, TEST, "0.25")
    where = ["--course", str(course), "--workers", "1"]
    got = f"got {LESS:g} of {TESTED:g} (less in {TEST}): no submission"
    why = f"{NAME}: expected its master to earn all points, {got}"
    assert command.main(["regrade", "--yes", *where]) == 2
    assert capsys.readouterr().err.startswith(why)
    assert command.main(["grade", str(hand_in(tmp_path / "new", bob=with_answers(SOLVED))), *where]) == 2
    assert capsys.readouterr().err.startswith(why)
    master = read(own_masters)
    master.cells = [cell for cell in master.cells if cell.id != TEST]
    nbformat.write(master, own_masters)
    assert command.main(["regrade", *where]) == 2
    said = capsys.readouterr().err
    assert "Cannot add or remove cells" in said
    assert "make this change in a copy of another name" in said
    assert dump(Course(course).gradebook) == before


def test_a_persons_mark_above_a_lowered_maximum_is_to_be_looked_at_again(own_masters, tmp_path, capsys):
    """Old points beside new maxima, until `regrade`, are not passed over in silence."""
    course, where = tmp_path / "course", ["--course", str(tmp_path / "course")]
    grade.grade(hand_in(tmp_path / "in", ann=with_answers(SOLVED)), course)
    give(course, WRITTEN, "ann", worth(WRITTEN))
    change(own_masters, WRITTEN, "", points=1)
    assert command.main(["regrade", "--yes", *where]) == 0
    said = f"(the same by tests; your mark by hand stays, look again: {WRITTEN})\nSubmissions that change: 1."
    assert said in capsys.readouterr().out
    [mark] = marks.marks(Course(course).gradebook, NAME)
    assert mark.cells[WRITTEN] == marks.CellMark(None, worth(WRITTEN), None, True, worth=1)

    change(own_masters, TEST, "1.0", points=1)
    assert command.main(["status", *where]) == command.main(["export", *where]) == 0
    said = capsys.readouterr().out
    assert "     1 by an earlier master or grader (old points, today's maxima): run" in said
    assert f"{NAME}: some points are from before the master changed: run" in said
    assert command.main(["regrade", "--yes", *where]) == command.main(["export", *where]) == 0
    assert "some points are" not in capsys.readouterr().out


def test_an_assignment_without_its_master_stays_as_it_is(own_masters, tmp_path, capsys):
    """Somebody may have renamed it, instead of copying it."""
    course = tmp_path / "course"
    grade.grade(hand_in(tmp_path / "in", ann=with_answers(SOLVED)), course)
    before = dump(Course(course).gradebook)
    with grade.open_course(course) as grading:
        grading.collect(hand_in(tmp_path / "new", bob=with_answers(SOLVED)))
    own_masters.rename(own_masters.with_suffix(".bak"))
    assert command.main(["status", "--course", str(course)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{NAME}: 1 of 2 graded\n     1 not graded: exercises/source has no master")
    for words in (["grade"], ["regrade", "--yes"], ["feedback"]):
        assert command.main([*words, "--course", str(course)]) == 0
    assert capsys.readouterr().out.endswith("feedback: 1.\n")
    assert dump(Course(course).gradebook) == before
