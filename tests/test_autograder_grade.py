"""A batch from the files that came in to points, records and pages; what goes wrong with one stays with one."""

import base64
import copy
import io
import json
import re
from functools import partial
from itertools import chain
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

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader, pytest.mark.usefixtures("graded_once")]

NAME = "ps01_embeddings_attention"
WRITTEN = "ps01-7-scale-answer"
MASTER = release.HERE / "source" / NAME / f"{NAME}.ipynb"
RELEASED = release.HERE / "release" / NAME / f"{NAME}.ipynb"
# What each cell is worth, and all that the tests give; the rest waits for a person.
WORTH = {
    cell.id: (cell.metadata.nbgrader.points, cell.cell_type)
    for cell in nbformat.read(MASTER, as_version=4).cells
    if cell.metadata.get("nbgrader", {}).get("grade")
}
TESTED = sum(points for points, kind in WORTH.values() if kind == "code")


LIBRARY = """
def scaled_dot_product_attention(query, key, value, mask=None, **_):
    output = F.scaled_dot_product_attention(query, key, value, mask)
    return output, F.scaled_dot_product_attention(query, key, torch.eye(key.size(-2)).to(key), mask)
"""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def solved() -> nbformat.NotebookNode:
    """The released notebook with the master's answers."""
    answers = {cell.id: cell.source for cell in read(MASTER).cells}
    notebook = read(RELEASED)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers[cell.id]
        if cell.id == "ps01-7-scale-answer":
            cell.source = "because **variance** adds: <i onclick=x>d_k</i>"
    return notebook


def with_a_plot(notebook: nbformat.NotebookNode, colour: str) -> nbformat.NotebookNode:
    """An experiment that was run, and a conclusion from what it drew."""
    file = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(file, "png")
    data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/html": "<script>x</script>"}
    for cell in notebook.cells:
        if cell.id == "ps01-6-run":
            cell.outputs = [nbformat.v4.new_output("display_data", data=data)]
        if cell.id == "ps01-6-conclusion":
            cell.source = "It falls."
    return notebook


def with_forged_tests() -> nbformat.NotebookNode:
    """One right answer; its test twice, other tests gone, renamed, worth more, and with outputs made up."""
    notebook, full = read(RELEASED), {cell.id: cell for cell in solved().cells}
    cells = {cell.id: cell for cell in notebook.cells}
    cells["ps01-2-answer"].source = full["ps01-2-answer"].source
    twice = copy.deepcopy(cells["ps01-2-test"])
    twice.id = "another"
    cells["ps01-1-test"].metadata.nbgrader.grade_id = "renamed"
    cells["ps01-3-test"].metadata.nbgrader.points = 100
    cells["ps01-5-capped-test"].cell_type = "markdown"
    forged = nbformat.v4.new_output("execute_result", data={"text/plain": "6.0"}, execution_count=1)
    for name in ("ps01-3-test", "ps01-2-test"):
        cells[name].source, cells[name].outputs = "6.0", [forged]
    notebook.cells = [c for c in notebook.cells if c.id not in ("ps01-4-repaired-test",)] + [twice]
    return notebook


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A graded batch: what it says of itself, and its folder."""
    source, course = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("course") / "new"
    for student, notebook in {"ann": solved(), "bob": read(RELEASED), "carl": with_forged_tests()}.items():
        (source / student).mkdir()
        nbformat.write(notebook, source / student / "Copy of homework.ipynb")
    (source / "dora").mkdir()
    (source / "dora" / f"{NAME}.ipynb").write_text("no notebook")
    return grade.grade(source, course), course


def test_points_are_earned_records_kept_and_pages_written(graded):
    summary, course = graded
    assert [result.student for result in summary.graded] == ["ann", "bob", "carl"]
    assert summary.failed == []
    totals = {one.student: sum(cell.earned for cell in one.cells) for one in summary.graded}
    assert totals == {"ann": TESTED, "bob": 0, "carl": worth("ps01-2-test")}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        assert {s["student"]: s["score"] for s in gradebook.submission_dicts(NAME)} == totals
        ann = gradebook.find_submission_notebook(NAME, NAME, "ann")
        waiting = {grade.name for grade in ann.grades if grade.needs_manual_grade}
    assert waiting == {name for name, (_, kind) in WORTH.items() if kind == "markdown"}
    assert waiting == {"ps01-6-conclusion", "ps01-7-scale-answer", "ps01-7-empty-answer"}
    for one in summary.graded:
        assert result.read(course / "records" / one.student / NAME / f"{NAME}.json") == one
        assert one.isolation == "full"
        assert one.seconds > 0
        assert one.cpu_seconds > 0
        page = (course / "feedback" / one.student / NAME / f"{NAME}.html").read_text(encoding="utf-8")
        assert "Content-Security-Policy" in page
        assert one.student in page
        assert "HIDDEN" not in page
        assert (course / "autograded" / one.student / NAME / f"{NAME}.ipynb").stat().st_size < 1_000_000


def test_an_answer_in_words_is_shown_as_it_was_written_and_inert_to_a_grader(graded):
    _, course = graded
    page = (course / "feedback" / "ann" / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert "because **variance** adds: &lt;i onclick=x&gt;d_k&lt;/i&gt;" in page
    cells = {
        cell.id: cell.source for cell in read(course / "autograded" / "ann" / NAME / f"{NAME}.ipynb").cells
    }
    shown = cells["ps01-7-scale-answer"]
    assert (
        shown == "<div><p>because <strong>variance</strong> adds: &lt;i onclick=x&gt;d_k&lt;/i&gt;</p></div>"
    )


def test_the_plots_that_a_student_concluded_from_are_seen_by_who_marks_and_on_the_page(tmp_path):
    """Each student's own, though they wrote the same words."""
    colours, course = {"ann": "red", "bob": "blue"}, tmp_path / "course"
    students = {name: with_a_plot(read(RELEASED), colour) for name, colour in colours.items()}
    assert len(grade.grade(hand_in(tmp_path / "in", **students), course).graded) == 2
    templates = Path(formgrader.__file__).parent / "templates"
    exporter = HTMLExporter(template_name="formgrade", extra_template_basedirs=[str(templates)])
    about = {"student": "", "base_url": "", "submission_id": "", "index": 0, "total": 1}
    for student, colour in colours.items():
        marked, _ = exporter.from_filename(
            str(course / "autograded" / student / NAME / f"{NAME}.ipynb"),
            {**about, "assignment_id": NAME, "notebook_id": NAME, "notebook_path": ""},
        )
        page = (course / "feedback" / student / NAME / f"{NAME}.html").read_text(encoding="utf-8")
        for html in (marked, page):
            [shown] = re.findall(r'<img[^>]*src="data:image/png;base64,([^"]+)"', html)
            image = Image.open(io.BytesIO(base64.b64decode(shown)))
            assert image.getpixel((9, 9)) == ImageColor.getrgb(colour)
            assert html.index(shown) < html.index("It falls.")
            assert "<script>x" not in html


def test_what_could_not_be_graded_is_listed_with_a_reason(graded):
    summary, course = graded
    (one,) = summary.quarantined
    assert one.student == "dora"
    listed = json.loads((course / "not_graded.json").read_text(encoding="utf-8"))
    assert listed == {
        "quarantined": [{"path": one.path, "student": "dora", "assignment": NAME, "reason": one.reason}],
        "failed": [],
    }


def test_what_was_put_right_is_no_longer_listed(tmp_path):
    course = Course(tmp_path)
    course.list_quarantined([], [Arrival(f"{name}.ipynb", name, NAME, "broken") for name in ("ann", "bob")])
    course.list_quarantined([Arrival("new.ipynb", "ann", NAME)], [])
    assert [entry["path"] for entry in course.left_out()["quarantined"]] == ["bob.ipynb"]
    course.list_quarantined([], [Arrival("bob.ipynb", reason="empty")])
    assert [entry["reason"] for entry in course.left_out()["quarantined"]] == ["empty"]


def test_repairs_and_checks_are_told(graded):
    ann, bob, carl = graded[0].graded
    assert {flag.kind for flag in carl.flags} >= {"repair"}
    assert any("ps01-4-repaired-test" in repair for repair in carl.repairs)
    assert all(part.met for cell in ann.cells for part in cell.parts)
    embedding = next(cell for cell in bob.cells if cell.cell == "ps01-2-test")
    assert embedding.earned == 0
    assert embedding.messages[0].startswith("TokenEmbedding: ")
    assert [part.worth for part in embedding.parts] == [1.5, 1.5, 1, 1]


def dump(url: str) -> list[str]:
    """All that the gradebook says of submissions, a line each, sorted; without ids and times of its own."""
    with Gradebook(url) as book:
        lines = [f"student {student.id}" for student in book.students]
        submissions = (book.assignment_submissions(assignment.name) for assignment in book.assignments)
        for submission in chain.from_iterable(submissions):
            place = f"{submission.assignment.name} {submission.student.id}"
            lines.append(f"submission {place} {submission.timestamp}")
            for notebook in submission.notebooks:
                lines.append(f"notebook {place} {notebook.name} penalty {notebook.late_submission_penalty}")
                for grade in notebook.grades:
                    points = (
                        grade.auto_score,
                        grade.manual_score,
                        grade.extra_credit,
                        grade.needs_manual_grade,
                    )
                    lines.append(f"grade {place} {grade.name} {' '.join(map(str, points))}")
                for comment in notebook.comments:
                    words = f"{comment.auto_comment!r} {comment.manual_comment!r}"
                    lines.append(f"comment {place} {comment.name} {words}")
    return sorted(lines)


def give(course: Path, name: str, student: str, points: float) -> None:
    """A person marks an answer, as formgrader does."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        mark = gradebook.find_grade(name, NAME, NAME, student)
        mark.manual_score, mark.needs_manual_grade = points, False
        gradebook.db.commit()


def hand_in(folder: Path, **notebooks: nbformat.NotebookNode) -> Path:
    for student, notebook in notebooks.items():
        (folder / student).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, folder / student / f"{NAME}.ipynb")
    return folder


def test_what_is_graded_is_not_graded_again_until_it_is_handed_in_anew(tmp_path):
    source, course = tmp_path / "in", tmp_path / "course"
    first = grade.grade(hand_in(source, ann=solved()), course)
    assert [one.earned for one in first.graded] == [TESTED]
    give(course, WRITTEN, "ann", 1.5)

    again = grade.grade(source, course)
    assert (again.graded, again.unchanged) == ([], 1)
    told = {cell.id: cell for cell in solved().cells}
    changed = solved()
    for cell in changed.cells:
        if cell.id == "ps01-1-answer":
            cell.source = read(RELEASED).cells[changed.cells.index(cell)].source
    [anew] = grade.grade(hand_in(source, ann=changed), course).graded
    assert anew.earned == TESTED - worth("ps01-1-test")
    [mark] = marks.marks(f"sqlite:///{course / 'gradebook.db'}", NAME)
    # The answer in words is the one that the person has read.
    assert (mark.cells[WRITTEN].manual, mark.cells[WRITTEN].waits) == (1.5, False)
    assert mark.score == anew.earned + 1.5

    for cell in changed.cells:
        if cell.id == WRITTEN:
            assert cell.source == told[WRITTEN].source
            cell.source = "Because I say so."
    grade.grade(hand_in(source, ann=changed), course)
    [mark] = marks.marks(f"sqlite:///{course / 'gradebook.db'}", NAME)
    assert (mark.cells[WRITTEN].manual, mark.cells[WRITTEN].waits) == (1.5, True)


def worth(name: str) -> float:
    return WORTH[name][0]


def test_what_goes_wrong_with_one_is_noted_and_the_next_follows(tmp_path, monkeypatch):
    source = hand_in(tmp_path / "in", ann=read(RELEASED), bob=read(RELEASED))
    page = pages.page

    def refuses_ann(notebook, released, result, **more):
        if result.student == "ann":
            raise ValueError("a hidden line")
        return page(notebook, released, result, **more)

    monkeypatch.setattr(pages, "page", refuses_ann)
    summary = grade.grade(source, tmp_path / "course")
    assert [one.student for one in summary.graded] == ["ann", "bob"]
    failure = Arrival("ann/ps01_embeddings_attention.ipynb", "ann", NAME, "ValueError: a hidden line").entry()
    assert [one.entry() for one in summary.failed] == [failure]
    assert not list((tmp_path / "course" / "feedback" / "ann").rglob("*.html"))
    listed = json.loads((tmp_path / "course" / "not_graded.json").read_text())["failed"]
    assert listed == [failure]

    monkeypatch.setattr(pages, "page", page)
    again = grade.grade(None, tmp_path / "course")
    assert (again.graded, again.unchanged, again.failed) == ([], 2, [])
    assert list((tmp_path / "course" / "feedback" / "ann").rglob("*.html"))


def test_nbgraders_own_command_refuses_and_changes_nothing(tmp_path):
    """It would run students' code unprotected."""
    course, ran = tmp_path / "course", tmp_path / "ran"
    notebook = read(RELEASED)
    notebook.cells.append(nbformat.v4.new_code_cell(f"open({str(ran)!r}, 'w')"))
    grade.grade(hand_in(tmp_path / "in", ann=notebook), course)
    submitted = course / "submitted" / "ann" / NAME
    submitted.mkdir(parents=True)
    nbformat.write(notebook, submitted / f"{NAME}.ipynb")
    shown = course / "autograded" / "ann" / NAME / f"{NAME}.ipynb"
    before = dump(f"sqlite:///{course / 'gradebook.db'}"), shown.read_bytes()
    done = release.course(course).autograde(NAME, "ann")
    assert not done["success"]
    assert "Grade with `python -m exercises.autograder grade`" in done["log"]
    assert (dump(f"sqlite:///{course / 'gradebook.db'}"), shown.read_bytes()) == before
    assert not ran.exists()


def test_submissions_that_say_the_same_are_run_once(tmp_path, monkeypatch):
    ran = []
    run = pool.run
    monkeypatch.setattr(pool, "run", lambda job: ran.append(job.key) or run(job))
    source = hand_in(tmp_path / "in", ann=read(RELEASED), bob=read(RELEASED), carl=with_forged_tests())
    summary = grade.grade(source, tmp_path / "course")
    assert [one.student for one in summary.graded] == ["ann", "bob", "carl"]
    assert len(ran) == len(set(ran)) == 3  # the master's too
    assert summary.graded[0].cells == summary.graded[1].cells


def test_limits_can_be_configured(tmp_path, monkeypatch):
    changes = Config({"Limits": {"seconds": 600.0}})
    monkeypatch.setattr(release, "course", partial(release.course, changes=changes))
    with grade.opened(tmp_path) as grading:
        assert grading.limits == Limits(seconds=600)


def test_one_command_at_a_time(tmp_path):
    with grade.opened(tmp_path), pytest.raises(ValueError, match="another command is at work on"):
        grade.grade(None, tmp_path)
    assert grade.grade(None, tmp_path).graded == []


def test_a_librarys_call_is_flagged_when_it_runs_and_costs_nothing(tmp_path):
    notebook = solved()
    answer = next(cell for cell in notebook.cells if cell.id == "ps01-3-answer")
    answer.source = LIBRARY
    nbformat.write(notebook, tmp_path / f"ann__{NAME}.ipynb")
    (one,) = grade.grade(tmp_path, tmp_path / "course").graded
    assert next(cell.earned for cell in one.cells if cell.cell == "ps01-3-test") >= 1
    (seen,) = (flag for flag in one.flags if flag.kind == "library")
    assert seen.cell == "ps01-3-answer"
    assert "scaled_dot_product_attention" in seen.text


def test_without_isolation_every_result_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "problem", lambda: "a problem")
    nbformat.write(solved(), tmp_path / f"ann__{NAME}.ipynb")
    arguments = ["grade", str(tmp_path / f"ann__{NAME}.ipynb"), "--course", str(tmp_path / "course")]
    assert command.main(arguments) == 2
    assert not (tmp_path / "course").exists()
    assert command.main([*arguments, "--unsafe-no-isolation"]) == 0
    assert f"ann  {NAME}  {TESTED:g} of {TESTED:g}  look at: " in capsys.readouterr().out
    found = result.read(tmp_path / "course" / "records" / "ann" / NAME / f"{NAME}.json")
    assert found.isolation == "none"
    assert "unsafe" in {flag.kind for flag in found.flags}


def test_what_is_no_record_is_refused(tmp_path):
    for text in ("{}", '{"student": "a"}', '{"cells": 3, "flags": [], "repairs": []}', "[]", "x"):
        (tmp_path / "record.json").write_text(text)
        with pytest.raises(ValueError, match=r"record\.json: expected"):
            result.read(tmp_path / "record.json")
