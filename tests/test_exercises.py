"""Masters earn full marks; student versions are in sync with them, hold no solutions and earn nothing."""

import ast
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import torch
from nbgrader import dbutil
from test_book_chapters import setup_cell

from book import generated
from exercises import release
from exercises.autograder import doctor
from exercises.autograder.batch import grade, pool
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course
from exercises.autograder.course.marks import CellMark
from exercises.autograder.running.runner import _execute
from tests.typical_answers import TYPICAL_ATTENTION, WRONG
from transformer_lessons.checks import specimens
from transformer_lessons.checks.catalogue import attention_test
from transformer_lessons.tools.submission import is_ungraded

MASTERS = release.masters()
IDS = [master.parent.name for master in MASTERS]
BY_NUMBER = {name[:4]: master for name, master in zip(IDS, MASTERS, strict=True)}
each_master = pytest.mark.parametrize("master", MASTERS, ids=IDS)
HIDDEN = re.compile(r"### BEGIN (SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)

pytestmark = pytest.mark.nbgrader


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def sources(path: Path) -> dict[str, str]:
    return {cell.id: cell.source for cell in read(path).cells}


class RecordingPool(pool.InProcessPool):
    """A pool that keeps the outcome of each job; the masters' come first, as masters are graded first."""

    def __init__(self):
        self.outcomes = []

    def submit(self, job):
        future = super().submit(job)
        self.outcomes.append(future.result())
        return future


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The masters' outcomes, and a gradebook with the unchanged released notebooks and a first draft."""
    source, folder, kept = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("course"), RecordingPool()
    for name, master in zip(IDS, MASTERS, strict=True):
        (source / "nothing" / name).mkdir(parents=True)
        shutil.copy(release.released(master), source / "nothing" / name)
    (source / "draft").mkdir()
    nbformat.write(a_first_draft(), source / "draft" / "ps01_embeddings_attention.ipynb")
    summary = grade.grade(source, folder, isolated=doctor.problem() is None, pool=kept)
    assert not summary.failed + summary.quarantined
    assert not any(one.flags for one in summary.graded if one.student == "nothing")
    return dict(zip(sorted(IDS), kept.outcomes, strict=False)), Course(folder).gradebook


def points(graded, name: str, student: str) -> dict[str, CellMark]:
    """A student's marks by cell."""
    return next(mark.cells for mark in marks.marks(graded[1], name) if mark.student == student)


def worth(notebook: nbformat.NotebookNode, cell_type: str) -> dict[str, float]:
    marked = [
        cell
        for cell in notebook.cells
        if cell.cell_type == cell_type and cell.metadata.get("nbgrader", {}).get("points")
    ]
    return {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points for cell in marked}


def test_the_student_versions_are_in_sync(tmp_path):
    api = release.course(tmp_path)
    for master in MASTERS:
        committed = release.released(master).read_text(encoding="utf-8")
        assert committed == release.generate(master, api), f"{master.stem}: run `make release`"


def test_the_manifest_of_check_submission_is_in_sync():
    texts = {master.parent.name: release.released(master).read_text(encoding="utf-8") for master in MASTERS}
    assert release.MANIFEST.read_text(encoding="utf-8") == release.manifest(texts), "run `make release`"


@each_master
def test_the_table_of_tasks_adds_up_and_is_what_the_tasks_announce(master):
    notebook = read(master)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    tasks = release.entry(notebook.cells)["tasks"]
    points = [float(task["points"]) for task in tasks if task["points"] != "–"]
    announced = re.findall(r"^(\d+) points · (?:easy|medium|hard) · \d+ minutes", text, re.M)
    assert [float(number) for number in announced] == points
    assert sum(points) == sum((worth(notebook, "code") | worth(notebook, "markdown")).values())
    assert {"easy", "medium", "hard"} >= {task["difficulty"] for task in tasks}
    assert text.count("<details>") == text.count("</details>")


@each_master
def test_the_student_version_holds_no_solution_and_no_hidden_test(master):
    """In addition to the words that `release` itself refuses."""
    student = "\n".join(cell.source for cell in read(release.released(master)).cells)
    secret = [match[1] for cell in read(master).cells for match in HIDDEN.findall(cell.source)]
    assert secret
    shown = "\n".join(cell.source for cell in read(master).cells if not HIDDEN.search(cell.source))
    for line in {line.strip() for block in secret for line in block.splitlines() if len(line.strip()) > 12}:
        assert line not in student or line in shown, f"given away: {line}"
    for cell in read(master).cells:  # written answers are replaced whole
        if cell.cell_type == "markdown" and cell.metadata.nbgrader.solution:
            assert cell.source not in student


@each_master
def test_the_student_version_has_one_cell_for_each_of_the_masters(master):
    ours, theirs = read(master).cells, read(release.released(master)).cells
    assert [cell.id for cell in ours] == [cell.id for cell in theirs]
    assert all(cell.source.strip() for cell in theirs), "a test cell that is hidden whole is released empty"
    assert not any(cell.outputs or cell.execution_count for cell in theirs if cell.cell_type == "code")


@each_master
def test_cells_and_their_metadata_are_as_nbgrader_wants_them(master):
    notebook = read(master)
    nbformat.validate(notebook)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.metadata == nbformat.from_dict(release.METADATA)
    for cell in notebook.cells:
        assert re.fullmatch(r"ps\d\d-[a-z0-9-]+", cell.id)
        assert set(cell.metadata) <= set(release.CELL_METADATA)
        if about := cell.metadata.get("nbgrader"):
            assert (about.grade_id, about.schema_version) == (cell.id, 3)
            if about.grade and cell.cell_type == "code":
                assert cell.source.startswith("# Graded")
                assert cell.source.endswith("### END HIDDEN TESTS")


@each_master
def test_the_setup_cell_is_the_books_and_locked(master):
    first = next(cell for cell in read(master).cells if cell.cell_type == "code")
    assert first.source == setup_cell()
    assert first.metadata.nbgrader.locked


@each_master
def test_the_master_earns_full_marks_and_runs_from_top_to_bottom(graded, master):
    outcome, notebook = graded[0][master.parent.name], read(master)
    written = worth(notebook, "markdown")
    tested = worth(notebook, "code")
    assert outcome.scores.keys() == tested.keys() | written.keys()
    assert {name: outcome.scores[name] for name in tested} == tested
    assert outcome.result.flags == ()
    for cell in nbformat.reads(outcome.notebook, as_version=4).cells:
        assert not (is_ungraded(cell.id) and cell.get("outputs"))  # grading skips these cells
        for output in cell.get("outputs", []):
            assert output.output_type != "error", f"{cell.id}: {output.get('evalue')}"
            assert output.get("name") != "stderr", f"{cell.id}: {output.get('text')}"


@each_master
def test_the_student_version_earns_nothing_as_it_is(graded, master):
    cells = points(graded, master.parent.name, "nothing").values()
    assert {cell.auto for cell in cells} == {0.0}
    assert not any(cell.waits for cell in cells)


# A careless test accepts these: a difference that is NaN is never too large, and `all` of no entries is true.
NAN_OR_EMPTY = {
    "not a number": lambda *_, **__: math.nan,
    "many that are none": lambda *args, **_: [math.nan] * math.prod(x for x in args if isinstance(x, int)),
    "no entries": lambda *_, **__: torch.zeros(0, 1, 1, 1, 1),
}


@pytest.mark.parametrize("answer", NAN_OR_EMPTY.values(), ids=NAN_OR_EMPTY)
@each_master
def test_no_hidden_test_accepts_nan_or_empty_results(master, answer):
    """The hidden tests that compare values themselves, without `checks.check`."""
    cells = {
        cell.id: cell
        for cell in read(master).cells
        if cell.cell_type == "code" and "nbgrader" in cell.metadata
    }
    answers = [cell.source for cell in cells.values() if cell.metadata.nbgrader.solution]
    names = {"__name__": "tests"}
    exec(next(cell.source for name, cell in cells.items() if name.endswith("-imports")), names)
    for node in ast.walk(ast.parse("\n".join(answers))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = answer
    for name, cell in cells.items():
        about = cell.metadata.nbgrader
        if about.grade and not about.solution and "checks.check(" not in cell.source:
            assert _execute(cell.source, name, names.copy()) == 0, name


STACKED_ON_PAPER = """
class MultiHeadAttention(MultiHeadAttention):
    \"\"\"Four matrices, of which only what it says of itself makes a stack.\"\"\"

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        del self.in_proj_weight, self.in_proj_bias
        self.separate = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))

    in_proj_weight = property(lambda self: torch.cat([one.weight for one in self.separate]))
    in_proj_bias = property(lambda self: torch.cat([one.bias for one in self.separate]))

    def state_dict(self):
        state = {"in_proj_weight": self.in_proj_weight, "in_proj_bias": self.in_proj_bias}
        return state | {f"out_proj.{name}": tensor for name, tensor in self.out_proj.state_dict().items()}

    def get_parameter(self, name):
        return self.state_dict()[name]

    def load_state_dict(self, state):
        for name in ("weight", "bias"):
            getattr(self.out_proj, name).data = state[f"out_proj.{name}"]
            for one, part in zip(self.separate, state[f"in_proj_{name}"].chunk(3)):
                getattr(one, name).data = part
"""
WEIGHTLESS = """
class Translator(Translator):
    def forward(self, src, tgt_in):
        return torch.zeros(*tgt_in.shape, SIZES[1])
"""


@pytest.mark.parametrize(
    ("cell", "answer"), [("ps04-3-test", STACKED_ON_PAPER), ("ps10-2-repaired-test", WEIGHTLESS)]
)
def test_a_hidden_test_gives_nothing_for_what_only_looks_right(no_shape_checks, cell, answer):
    cells, names = sources(BY_NUMBER[cell[:4]]), {"__name__": "notebook"}
    for name in ("imports", "2-tools", "2-data-given", "2-model-given", "2-train-given", "3-answer"):
        exec(cells.get(f"{cell[:4]}-{name}", ""), names)
    exec(answer, names)
    assert _execute(cells[cell], cell, names) == 0


def a_first_draft() -> nbformat.NotebookNode:
    """A typical draft of ps01, without two cells that grading needs."""
    notebook = read(release.released(BY_NUMBER["ps01"]))
    cells = {cell.id: cell for cell in notebook.cells}
    cells["ps01-3-answer"].source = TYPICAL_ATTENTION
    guesses = "untouched_rows = 9; row_gradient = 12; output_shape = [2, 3, 5, 11]; weights_shape = 7"
    cells["ps01-1-answer"].source = guesses + "; equal_weight = 0.2; spread = 64"
    cells["ps01-4-answer"].source = "defects = 'abc'"
    notebook.cells = [cell for cell in notebook.cells if cell.id not in ("ps01-3-test", "ps01-1-check")]
    return notebook


def test_a_typical_first_draft_earns_part_of_the_points_and_deleted_tests_come_back(graded):
    cells = points(graded, "ps01_embeddings_attention", "draft")
    assert cells["ps01-1-test"].auto == 2.75
    assert cells["ps01-3-test"].auto == 2.5  # all but finite values for a query that may attend to nothing
    assert cells["ps01-4-defects-test"].auto == 0.5
    assert cells["ps01-6-test"].auto == 0.0


def first_of_each_kind(cases: list[tuple], of: Callable[[tuple], str]) -> list:
    """The first case of each kind runs at each commit, all in `make test-full`; each takes a second."""
    first = {of(case): case for case in reversed(cases)}.values()
    return [pytest.param(*case, id=case[1], marks=[pytest.mark.full] * (case not in first)) for case in cases]


@pytest.mark.parametrize(
    ("check", "what", "wrong", "message"), first_of_each_kind(WRONG, of=lambda case: case[0][:4])
)
def test_the_visible_check_names_typical_mistakes(no_shape_checks, check, what, wrong, message):
    cells = sources(release.released(BY_NUMBER[check[:4]]))
    names = {"__name__": "notebook"}  # needed to define classes
    exec(cells[f"{check[:4]}-imports"], names)
    exec(wrong, names)
    with pytest.raises(AssertionError) as failure:
        exec(cells[check], names)
    assert message in " ".join(str(failure.value).split())


def test_what_ps10_says_of_tests_that_look_at_shapes():
    """Sixteen wrong implementations of attention, of which fourteen have the right shapes."""

    def has_the_shapes(attention):
        try:
            shapes = [tuple(x.shape) for x in attention(*(torch.randn(2, 3, n, 5) for n in (7, 11, 11)))]
        except Exception:
            return False
        return shapes == [(2, 3, 7, 5), (2, 3, 7, 11)]

    wrong = [specimens.attention(kind) for kinds in attention_test.WRONG.values() for kind in kinds]
    assert (len(wrong), sum(map(has_the_shapes, wrong))) == (16, 14)
    text = sources(BY_NUMBER["ps10"])["ps10-6-text"]
    assert "sixteen wrong implementations, and fourteen of them" in text


def test_a_notebook_with_something_left_in_it_is_not_released():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("### BEGIN SOLUTION", id="a")])
    with pytest.raises(ValueError, match="a student version must not contain"):
        release.normalised(notebook)


def test_the_places_that_messages_link_to_are_in_sync():
    text = generated.PLACES.read_text(encoding="utf-8")
    assert text == generated.places(), "run `python -m book.generated`"


FUNCTION, CLASS = ("broken", "repaired"), ("Broken", "Repaired")  # names of programs before and after repair
BROKEN = {
    "ps01-4": ("scaled_dot_product_attention", FUNCTION),
    "ps02-3": ("masked_self_attention", FUNCTION),
    "ps03-3": ("shift_matrix", FUNCTION),
    "ps04-4": ("multi_head", CLASS),
    "ps05-3": ("batch_norm", CLASS),
    "ps06-3": ("decoder_layer", CLASS),
    "ps07-3": ("accumulated_gradients", FUNCTION),
    "ps08-3": ("beam", FUNCTION),
    "ps09-4": ("scaled_step", FUNCTION),
}


@pytest.mark.parametrize(("cell", "task", "both"), [(cell, *about) for cell, about in BROKEN.items()])
def test_the_broken_program_has_exactly_the_listed_defects(no_shape_checks, cell, task, both):
    """It runs; exactly the listed lines are wrong; in each round of repairs, the check names one of them."""
    cells = sources(BY_NUMBER[cell[:4]])
    program, answer = cells[f"{cell}-broken"], cells[f"{cell}-answer"]
    names = {"__name__": "notebook"}
    exec(cells[f"{cell[:4]}-imports"], names)
    exec(program + "\n" + answer, names)
    broken, right = (
        {line[-1]: line for line in source.splitlines() if re.search(r"# [A-H]$", line)}
        for source in (program, answer)
    )
    defects = names.get("defects") or names[both[0].replace("broken", "line")]  # several letters, or one
    assert {letter for letter in broken if broken[letter] != right[letter]} == set(defects)

    def named(left: str) -> str | None:
        """The mistake that the check names when only these lines are still wrong."""
        source, local = answer, dict(names)
        for letter in left:
            source = source.replace(right[letter], broken[letter])
        exec(source, local)
        return names["checks"].check(task, local[both[1]]).misconception

    called = {letter: named(letter) for letter in defects}
    assert set(called.values()) == set(names["checks"].task(task).planted)
    assert names["checks"].check(task, names[both[0]]).misconception in called.values()
    for repaired in range(2):  # this number of lines, from the first on
        assert named(defects[repaired:]) in {called[letter] for letter in defects[repaired:]}


@pytest.mark.full
def test_the_databases_version_is_the_one_that_nbgraders_command_finds(tmp_path):
    program = Path(sys.executable).with_name("alembic")
    dbutil.write_alembic_ini(str(tmp_path / "alembic.ini"), "sqlite://")
    said = subprocess.check_output([program, "-c", tmp_path / "alembic.ini", "heads"], text=True)
    assert said.split()[0] == release.database_version()
