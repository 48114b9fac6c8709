"""A batch from files to points, records and pages; a failure affects one submission only."""

import base64
import io
import json
import re
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.api import Gradebook
from nbgrader.server_extensions import formgrader
from PIL import Image, ImageColor
from traitlets.config import Config

from exercises import release
from exercises.autograder import __main__ as command
from exercises.autograder import doctor, result
from exercises.autograder import feedback as pages
from exercises.autograder.batch import grade, pool
from exercises.autograder.box.confine import Limits
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.intake import Arrival
from tests.submissions import NAME, SOLVED, TESTED, WRITTEN, dump, give, hand_in, read, with_answers, worth

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader, pytest.mark.usefixtures("graded_once")]

LIBRARY = """
def scaled_dot_product_attention(query, key, value, mask=None, **_):
    output = F.scaled_dot_product_attention(query, key, value, mask)
    return output, F.scaled_dot_product_attention(query, key, torch.eye(key.size(-2)).to(key), mask)
"""


def around(notebook: nbformat.NotebookNode, name: str, above: str, below: str) -> nbformat.NotebookNode:
    """Put code cells of the student's own above and below a cell, unless their text is empty."""
    place = [cell.id for cell in notebook.cells].index(name)
    own = [[nbformat.v4.new_code_cell(text)] * bool(text) for text in (above, below)]
    notebook.cells[place : place + 1] = [*own[0], notebook.cells[place], *own[1]]
    return notebook


def page_of(course: Path, student: str) -> str:
    return Course(course).page(student, NAME).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The summary of a graded batch, its folder, and the keys of what was run for it."""
    source, course = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("course") / "new"
    code, words = (around(with_answers(), WRITTEN, " ", text) for text in ("print(8)", "It stays as large."))
    # One right answer, a test deleted, and a written answer below its own cell.
    carl = around(with_answers({"ps01-2-answer": SOLVED["ps01-2-answer"]}), WRITTEN, "x = 1", "# It stays.")
    carl.cells = [cell for cell in carl.cells if cell.id != "ps01-4-repaired-test"]
    hand_in(source, ann=with_answers(SOLVED), bob=code, carl=carl, dora=words, emil=words)
    run, ran = pool.run, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "run", lambda job: ran.append(job.key) or run(job))
        return grade.grade(source, course), course, ran


def test_points_are_earned_records_kept_and_pages_written(graded):
    summary, course, ran = graded
    assert len(ran) == len(set(ran)) == 5, "the master, and once what two have in common"
    assert (summary.failed, summary.quarantined) == ([], [])
    assert any("ps01-4-repaired-test" in repair for repair in summary.graded[2].repairs)
    totals = {one.student: sum(cell.earned for cell in one.cells) for one in summary.graded}
    assert totals == {"ann": TESTED, "bob": 0, "carl": worth("ps01-2-test"), "dora": 0, "emil": 0}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        assert {s["student"]: s["score"] for s in gradebook.submission_dicts(NAME)} == totals
        waiting = {}
        for student in totals:
            grades = gradebook.find_submission_notebook(NAME, NAME, student).grades
            waiting[student] = {grade.name for grade in grades if grade.needs_manual_grade}
    assert waiting["ann"] == {"ps01-6-conclusion", "ps01-7-scale-answer", "ps01-7-empty-answer"}
    assert waiting["bob"] == set(), "nothing is written beside an untouched answer"
    assert waiting["carl"] == waiting["dora"] == waiting["emil"] == {WRITTEN}
    for one in summary.graded:
        assert result.read(course / "records" / one.student / NAME / f"{NAME}.json") == one
        assert one.isolation == "full"
        assert one.seconds > 0
        page = page_of(course, one.student)
        assert one.student in page
        assert ("There is no answer to read." in page) == (one.student != "ann")


def test_written_answer_is_shown_verbatim_to_its_student_and_inert_to_a_grader(graded):
    _, course, _ = graded
    assert "because **variance** adds: &lt;i onclick=x&gt;d_k&lt;/i&gt;" in page_of(course, "ann")
    shown = {cell.id: cell.source for cell in read(Course(course).autograded("ann", NAME)).cells}
    inert = "because <strong>variance</strong> adds: &lt;i onclick=x&gt;d_k&lt;/i&gt;"
    assert shown[WRITTEN] == f"<div><p>{inert}</p></div>"


def test_grader_and_student_see_the_plots_behind_a_conclusion(tmp_path):
    """Each student's own plot is shown, although both wrote the same text."""
    colours, course, source = {"ann": "red", "bob": "blue"}, tmp_path / "course", tmp_path / "in"
    for student, colour in colours.items():
        file, notebook = io.BytesIO(), with_answers({"ps01-6-conclusion": "It falls."})
        Image.new("RGB", (40, 30), colour).save(file, "png")
        data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/html": "<script>x</script>"}
        experiment = next(cell for cell in notebook.cells if cell.id == "ps01-6-run")
        experiment.outputs = [nbformat.v4.new_output("display_data", data=data)]
        hand_in(source, **{student: notebook})
    assert len(grade.grade(source, course).graded) == 2
    templates = Path(formgrader.__file__).parent / "templates"
    exporter = HTMLExporter(template_name="formgrade", extra_template_basedirs=[str(templates)])
    about = dict.fromkeys(("student", "base_url", "submission_id", "notebook_path"), "")
    about |= {"index": 0, "total": 1, "assignment_id": NAME, "notebook_id": NAME}
    for student, colour in colours.items():
        marked, _ = exporter.from_filename(str(Course(course).autograded(student, NAME)), about)
        for html in (marked, page_of(course, student)):
            [shown] = re.findall(r'<img[^>]*src="data:image/png;base64,([^"]+)"', html)
            image = Image.open(io.BytesIO(base64.b64decode(shown)))
            assert image.getpixel((9, 9)) == ImageColor.getrgb(colour)
            assert html.index(shown) < html.index("It falls.")
            assert "<script>x" not in html


def test_corrected_submission_leaves_the_quarantine_list(tmp_path):
    course, week, next_week = Course(tmp_path), tmp_path / "week1", tmp_path / "week2"
    broken = [Arrival(f"{name}.ipynb", name, NAME, "broken") for name in ("ann", "bob")]
    course.list_quarantined(week, [], broken)
    course.list_quarantined(week, [Arrival("new.ipynb", "ann", NAME)], [])
    assert [entry["path"] for entry in course.left_out()["quarantined"]] == ["bob.ipynb"]
    course.list_quarantined(next_week, [Arrival("bob.ipynb", "bob", "ps02_masks")], [])
    assert [entry["reason"] for entry in course.left_out()["quarantined"]] == ["broken"]
    course.list_quarantined(week, [], [Arrival("bob.ipynb", reason="empty")])
    assert [entry["reason"] for entry in course.left_out()["quarantined"]] == ["empty"]
    course.list_quarantined(week, [Arrival("bob.ipynb", "bob", NAME)], [])
    assert course.left_out()["quarantined"] == []


def test_graded_submission_is_graded_again_only_if_it_changes(tmp_path):
    source, course = tmp_path / "in", tmp_path / "course"
    first = grade.grade(hand_in(source, ann=with_answers(SOLVED)), course)
    assert [one.earned for one in first.graded] == [TESTED]
    give(course, WRITTEN, "ann", 1.5)

    again = grade.grade(source, course)
    assert (again.graded, again.unchanged) == ([], 1)
    blank = grade.grade(hand_in(source, ann=with_answers()), course)
    assert (blank.graded, blank.unchanged) == ([], 1)
    said = "Nothing in it is answered; what was handed in before counts."
    assert [one.reason for one in blank.quarantined] == [said]
    texts = {cell: text for cell, text in SOLVED.items() if cell != "ps01-1-answer"}
    [again] = grade.grade(hand_in(source, ann=with_answers(texts)), course).graded
    assert again.earned == TESTED - worth("ps01-1-test")
    said = f"It replaces a submission that earned {TESTED:g} points by tests: ann/{NAME}.ipynb."
    assert [flag.text for flag in again.flags] == [said]
    with grade.open_course(course) as grading:
        assert grading.enter("ann", NAME, grading.in_journal(again.key)).flags == again.flags
    [mark] = marks.marks(f"sqlite:///{course / 'gradebook.db'}", NAME)
    # The written answer has not changed since the person marked it.
    assert (mark.cells[WRITTEN].manual, mark.cells[WRITTEN].waits) == (1.5, False)
    assert mark.score == again.earned + 1.5

    texts[WRITTEN] = "Because I say so."
    grade.grade(hand_in(source, ann=with_answers(texts)), course)
    [mark] = marks.marks(f"sqlite:///{course / 'gradebook.db'}", NAME)
    assert (mark.cells[WRITTEN].manual, mark.cells[WRITTEN].waits) == (1.5, True)


def test_what_the_gradebook_has_lost_is_entered_again(tmp_path):
    """One from a backup lacks a submission, and has the first of two; an empty one knows no assignment."""
    source, course = tmp_path / "in", Course(tmp_path / "course")
    grade.grade(hand_in(source, ann=with_answers()), course.folder)
    backup = (course.folder / "gradebook.db").read_bytes()
    grade.grade(hand_in(source, ann=with_answers(SOLVED), bob=with_answers(SOLVED)), course.folder)
    whole = dump(course.gradebook)
    for found in (backup, b""):
        (course.folder / "gradebook.db").write_bytes(found)
        again = grade.grade(None, course.folder)
        assert ([one.student for one in again.graded], again.unchanged) == (["ann", "bob"], 0)
        assert dump(course.gradebook) == whole


def test_failure_of_one_submission_does_not_stop_the_next(tmp_path, monkeypatch):
    source = hand_in(tmp_path / "in", ann=with_answers(), bob=with_answers())
    page = pages.page

    def refuses_ann(notebook, released, result, mark):
        if result.student == "ann":
            raise ValueError("a hidden line")
        return page(notebook, released, result, mark)

    monkeypatch.setattr(pages, "page", refuses_ann)
    summary = grade.grade(source, tmp_path / "course")
    assert [one.student for one in summary.graded] == ["ann", "bob"]
    failure = Arrival("ann/ps01_embeddings_attention.ipynb", "ann", NAME, "ValueError: a hidden line").entry()
    assert [one.entry() for one in summary.failed] == [failure]
    assert not list((tmp_path / "course" / "feedback" / "ann").rglob("*.html"))
    listed = json.loads((tmp_path / "course" / "not_graded.json").read_text())["failed"]
    assert listed == [failure]

    monkeypatch.setattr(pages, "page", page)
    again = grade.grade(source, tmp_path / "course")
    assert (again.graded, again.unchanged, again.failed, again.quarantined) == ([], 2, [], [])
    assert list((tmp_path / "course" / "feedback" / "ann").rglob("*.html"))


def test_nbgraders_own_commands_refuse_and_change_nothing(tmp_path):
    """They would run students' code without protection, and write pages that show hidden tests."""
    course, ran = tmp_path / "course", tmp_path / "ran"
    notebook = with_answers()
    notebook.cells.append(nbformat.v4.new_code_cell(f"open({str(ran)!r}, 'w')"))
    grade.grade(hand_in(tmp_path / "in", ann=notebook), course)
    submitted = course / "submitted" / "ann" / NAME
    submitted.mkdir(parents=True)
    nbformat.write(notebook, submitted / f"{NAME}.ipynb")
    shown, page = Course(course).autograded("ann", NAME), Course(course).page("ann", NAME)
    before = dump(f"sqlite:///{course / 'gradebook.db'}"), shown.read_bytes(), page.read_bytes()
    api = release.course(course)
    for done in (api.autograde(NAME, "ann"), api.generate_feedback(NAME, "ann")):
        assert not done["success"]
        assert "Grade with `python -m exercises.autograder grade`" in done["log"]
        after = dump(f"sqlite:///{course / 'gradebook.db'}"), shown.read_bytes(), page.read_bytes()
        assert after == before
    assert not ran.exists()


def test_a_cell_of_ones_own_counts_where_it_stands_and_again_where_it_is_moved(tmp_path):
    own, test = "untouched_rows = None", "ps01-1-test"
    above, below = (around(with_answers(SOLVED), test, *those) for those in ((own, ""), ("", own)))
    source, course = hand_in(tmp_path / "in", ann=above, bob=below), tmp_path / "course"
    earned = [one.earned for one in grade.grade(source, course).graded]
    assert earned[0] < earned[1] == TESTED
    [again] = grade.grade(hand_in(source, ann=below), course).graded
    assert again.earned == TESTED


def test_answers_in_extra_cells_and_imports_that_fail_are_flagged(tmp_path):
    """An import that fails is also what the student reads first about a test that misses something."""
    task, below = "ps01-2-answer", with_answers()
    below.cells = [cell for cell in below.cells if cell.id != task]
    below.cells += [nbformat.v4.new_code_cell(SOLVED[task]), nbformat.v4.new_markdown_cell("As large.")]
    missing = with_answers(SOLVED | {task: f"import not_there\n{SOLVED[task]}"})
    found, lost = grade.grade(hand_in(tmp_path / "in", ann=below, bob=missing), tmp_path / "course").graded
    assert [(flag.kind, flag.text.split(",")[0]) for flag in found.flags] == [
        ("elsewhere", "TokenEmbedding is unanswered where it counts"),
        ("elsewhere", "An extra cell has words"),
    ]
    said = "A cell was stopped by an import: No module named 'not_there'."
    assert [(flag.kind, flag.text, flag.cell) for flag in lost.flags] == [("import", said, task)]
    assert [cell.messages[0] for cell in lost.cells if cell.earned < cell.worth] == [said]


def test_limits_can_be_configured(tmp_path, monkeypatch):
    changes = Config({"Limits": {"seconds": 600.0}})
    monkeypatch.setattr(release, "course", partial(release.course, changes=changes))
    with grade.open_course(tmp_path) as grading:
        assert grading.limits == Limits(seconds=600)


def test_one_command_at_a_time(tmp_path):
    with grade.open_course(tmp_path), pytest.raises(ValueError, match="another command is using"):
        grade.grade(None, tmp_path)
    assert grade.grade(None, tmp_path).graded == []


def test_a_librarys_call_is_flagged_when_it_runs_and_costs_nothing(tmp_path):
    source = hand_in(tmp_path / "in", ann=with_answers(SOLVED | {"ps01-3-answer": LIBRARY}))
    (one,) = grade.grade(source, tmp_path / "course").graded
    assert next(cell.earned for cell in one.cells if cell.cell == "ps01-3-test") >= 1
    (seen,) = (flag for flag in one.flags if flag.kind == "library")
    assert seen.cell == "ps01-3-answer"
    assert "scaled_dot_product_attention" in seen.text


def test_without_isolation_every_result_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "problem", lambda: "a problem")
    nbformat.write(with_answers(SOLVED), tmp_path / f"ann__{NAME}.ipynb")
    words = ["grade", str(tmp_path / f"ann__{NAME}.ipynb"), "--course", str(tmp_path / "course")]
    assert command.main([*words, "--unsafe-no-isolation"]) == 0
    assert f"ann  {NAME}  {TESTED:g} of {TESTED:g}  look at: unsafe" in capsys.readouterr().out
    found = result.read(tmp_path / "course" / "records" / "ann" / NAME / f"{NAME}.json")
    assert found.isolation == "none"


def test_invalid_records_are_refused(tmp_path):
    for text in ("{}", '{"cells": 3, "flags": [], "repairs": []}', "[]", "x"):
        (tmp_path / "record.json").write_text(text)
        with pytest.raises(ValueError, match=r"record\.json: expected"):
            result.read(tmp_path / "record.json")
