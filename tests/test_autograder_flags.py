"""Flags for the instructor: answers taken from elsewhere are flagged, and honest work is not."""

import importlib
import linecache
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from exercises import release
from exercises.autograder.result import Flag
from exercises.autograder.running.flags import ORDINARY, SOLVES, WATCHED, LibraryCallRecorder, scan, tasks_of
from tests.submissions import read
from transformer_lessons import checks

# The course's locked code cells, by assignment and grade id.
GIVEN = {
    master.stem[:4]: {
        cell.id: cell.source
        for cell in read(master).cells
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("locked")
    }
    for master in release.masters()
}
PS01, PS05, PS06, PS07 = (GIVEN[name] for name in ("ps01", "ps05", "ps06", "ps07"))
LAYER_NORM = "ps05-2-layer-norm-answer"


def test_tables_name_existing_functions_and_tasks():
    """Otherwise a function renamed by torch, or a task renamed by the checks, would never be flagged."""
    asked = set().union(*(tasks for given in GIVEN.values() for tasks in tasks_of(given).values()))
    assert SOLVES.keys() | ORDINARY.keys() <= {*checks.tasks()}
    assert SOLVES.keys() <= asked | {"rms_norm"}  # it is for readers of chapter 9, and in no assignment
    rooms = (F, torch.optim, torch.amp, importlib.import_module("torch.nn.attention.flex_attention"))
    there = {name for name in WATCHED if any(hasattr(room, name) for room in rooms)}
    assert there >= WATCHED - {"linear_cross_entropy"}, "only newer versions of torch have this one"


# --- In the text -----------------------------------------------------------------------------------------------

# The kind of flag that is expected, and the text of an answer.
SEEN = [
    ("package", "import transformer_lessons\nmine = transformer_lessons.masks.causal_mask"),
    ("package", "def f(x):\n    if x:\n        from transformer_lessons.norms import LayerNorm"),
    ("package", "mine = checks.task('layer_norm').solution"),
    ("package", "from transformer_lessons import checks as c\nc.task('layer_norm')"),
    ("package", "%%time\nfrom transformer_lessons.norms import LayerNorm\n%time x = 3\n!ls"),
    ("package", "from importlib import import_module as get\nget('transformer_lessons.norms').LayerNorm"),
    ("library", "import transformers\ntransformers.models.llama.LlamaRMSNorm(3)"),
    ("library", "import sys\n[*sys.modules]"),
    ("library", "f.__closure__"),
    ("library", "f.__globals__"),
]


@pytest.mark.parametrize(("kind", "text"), SEEN)
def test_the_package_and_a_librarys_answer_are_seen(kind, text):
    assert {flag.kind for flag in scan([(LAYER_NORM, text)], PS05, [])} == {kind}
    own = {flag.kind for flag in scan([(None, text)], PS05, [])}
    assert own == ({kind} - {"library"}), "a library outside an answer is allowed, and on Colab sys.modules"


def test_what_one_cell_imports_is_seen_where_an_answer_uses_it():
    for own, used in {"import timm as t": "t.Llama", "from timm import Llama": "Llama(3)"}.items():
        flags = scan([(None, own), (LAYER_NORM, used)], PS05, [])
        assert [(flag.kind, flag.cell) for flag in flags] == [("library", LAYER_NORM)]


# Work that gets no flag: the assignment, an answer, and a cell of the learner's own.
HONEST = [
    (PS05, "class LayerNorm(nn.Module):\n    'Not F.layer_norm, nor transformer_lessons.norms.'", ""),
    (PS05, "class LayerNorm: ...", "import sacrebleu, transformers\nprint(transformers.__version__)"),
    (PS06, "from transformer_lessons.attention import MultiHeadAttention as M\nM(6, 2)(x)", ""),
    (PS01, "x @ y.mT", "from transformer_lessons import checks\nchecks.require('causal_mask', f)"),
    (PS01, "x @ y.mT", "report: checks.Report = checks.check('causal_mask', f)\nhelp(checks.require)"),
    (PS01, "checks.try_in_translator('token_embedding', f)", "checks.my_transformer(['a.ipynb'])"),
    (PS01, "x @ y.mT", "import transformer_lessons\nprint(transformer_lessons.__version__)"),
    (PS01, "x @ y.mT", PS01["ps01-6-given"].replace("[:100]", "[:20]")),  # a given cell, changed in a line
]


@pytest.mark.parametrize(("given", "answer", "own"), HONEST)
def test_honest_work_is_left_alone(given, answer, own):
    assert scan([("a-answer", answer), (None, own)], given, []) == []


def test_what_a_given_cell_imports_is_seen_in_a_cell_that_is_no_copy_of_it():
    text = PS01["ps01-6-given"]
    assert "[:100]" in text, "which the copy above changes"
    taken = next(line for line in text.splitlines() if "import MultiHeadAttention" in line)
    assert len(scan([(None, taken)], PS01, [])) == len(scan([("a-answer", taken)], PS01, [])) == 1


def test_flag_has_the_line_and_is_given_once_per_cell():
    taken = "transformer_lessons.norms.LayerNorm"
    text = f"\n\nx = 3\n%time\nimport {taken}  # \x1b[31mred\n!ls\nimport {taken}"
    said = f"Uses {taken}, which the assignment does not provide."
    line = f"import {taken}  # �[31mred"
    assert scan([(LAYER_NORM, text)], PS05, []) == [Flag("package", said, LAYER_NORM, line)]
    (long,) = scan([(None, f"import transformer_lessons.a{'b' * 999}")], {}, [])
    assert len(long.line) == 200
    assert len(long.text) < 300
    assert len(scan([(f"{n}-answer", f"import {taken}") for n in range(500)], PS05, [])) == 100


def test_answer_in_another_cell_is_flagged():
    handed_out = "def layer_norm(x):\n    raise NotImplementedError('your answer goes here')"
    own = "def layer_norm(x):\n    return x" + ".mT" * 900
    [flag] = scan([(LAYER_NORM, handed_out), (None, own)], PS05, [])
    assert (flag.kind, flag.cell) == ("elsewhere", LAYER_NORM)
    assert "layer_norm" in flag.text
    [missing] = scan([(LAYER_NORM, ""), (None, own)], PS05, [], ["layer_norm", "rms_norm"])
    assert (missing.kind, missing.text) == (flag.kind, flag.text)
    for left_alone in ([(LAYER_NORM, own), (None, own)], [(LAYER_NORM, handed_out)], [(None, own)]):
        assert scan(left_alone, PS05, []) == []


def test_any_text_is_read():
    deep = ("(" * 5_000 + ")" * 5_000, "-" * 5_000 + "1", "a" + ".b" * 5_000, "a" + "+a" * 5_000)
    odd = ("\0", "x = '\ud800'", "'\\d'; 1 is 1", "\x0c\x0b\u2028", "", "def f(:\n  %", "#" * 200_000)
    for text in (*deep, *odd):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert scan([(LAYER_NORM, text), (None, text)], PS05, []) == []


# --- Where the learner's code runs -----------------------------------------------------------------------------


def stepped(x, optimizer, **scaling):
    moved = x.detach().requires_grad_()
    optimizer, scaler = optimizer([moved]), torch.amp.GradScaler("cpu", **scaling)
    scaler.scale(moved.sum()).backward()
    scaler.step(optimizer)
    return moved


CALLS = {
    "function": (lambda x: F.layer_norm(x, (6,)), {"layer_norm"}),
    "module": (lambda x: nn.Sequential(nn.LayerNorm(6).double())(x), {"layer_norm"}),
    "overload": (lambda x: torch.ops.aten.layer_norm.default(x, (6,)), {"layer_norm"}),
    "computed again": (lambda x: checkpoint(F.rms_norm, x, (6,), use_reentrant=False), {"rms_norm"}),
    "layer": (
        lambda x: nn.TransformerEncoderLayer(6, 2, 3, dropout=0.0).double()(x),
        {"multi_head_attention_forward", "layer_norm"},
    ),
    "optimizer": (lambda x: stepped(x, torch.optim.Adam, enabled=False), {"Adam"}),
    "scaler": (lambda x: stepped(x, torch.optim.SGD), {"GradScaler"}),
    "parts": (lambda x: F.gelu(F.linear(x, x[0, :3])).softmax(-1).log() @ F.normalize(x[:, :3]), set()),
}


@pytest.mark.parametrize(("call", "names"), CALLS.values(), ids=CALLS)
def test_calls_are_noted_and_nothing_is_changed(call, names):
    def outcome():
        torch.manual_seed(3)  # for the initial weights of layers
        x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
        y = call(x)
        gradient = torch.autograd.grad(y.square().sum(), x, allow_unused=True)[0] if y.requires_grad else None
        return y, gradient

    expected, expected_gradient = outcome()
    with LibraryCallRecorder() as recorder:
        (y, gradient), again = outcome(), outcome()
    assert torch.equal(y, expected)
    assert torch.equal(again[0], expected)
    assert (y.dtype, y.requires_grad) == (expected.dtype, expected.requires_grad)
    assert gradient is expected_gradient or torch.equal(gradient, expected_gradient)
    assert sorted(note["name"] for note in recorder.notes) == sorted(names)
    outcome()
    assert len(recorder.notes) == len(names)  # nothing is recorded after the `with` block


def test_a_call_is_noted_with_the_cells_line(monkeypatch):
    name, text, names = "<ipython-input-1>", "def mine(x):\n    return F.layer_norm(x, (3,))", {"F": F}
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(), name))
    exec(compile(text, name, "exec"), names)
    with LibraryCallRecorder() as recorder:
        names["mine"](torch.ones(3))
    assert recorder.notes == [note(line="return F.layer_norm(x, (3,))")]


# --- Notes from the learner's process -----------------------------------------------------------------------


def note(name="layer_norm", line="") -> dict:
    return {"name": name, "line": line}


def test_notes_become_flags_judged_by_the_cell_that_calls():
    said = "Called torch's layer_norm, which does all or most of what layer_norm asks for."
    assert scan([], PS05, [note()]) == [Flag("library", said)]
    assert scan([], PS01, [note()]) == []
    # In one assignment, F.cross_entropy solves one task and may be used in another.
    calls = "    return F.cross_entropy(a, b)"
    noted = [note(name="cross_entropy", line=calls.strip())]
    for cell, kinds in (("ps07-2-loss-answer", ["library"]), ("ps07-3-answer", []), (None, [])):
        flags = scan([("ps07-2-rate-answer", "pass"), (cell, f"def f(a, b):\n{calls}")], PS07, noted)
        assert [(flag.kind, flag.cell) for flag in flags] == [(kind, cell) for kind in kinds]


def test_invalid_notes_are_ignored_and_others_bounded():
    others = note() | {"more": ""}, note(name=[]), note(name="LayerNorm"), note(line="x" * 201)
    for one in (None, "call", {}, *others):
        assert scan([], PS05, one) == scan([], PS05, [one]) == [], one
    assert scan([], PS05, [note(name="os.system")] * 100 + [note()]) == []
    (flag,) = scan([], PS05, [note(line="\x1b[0m\ud800\n<b>")])
    assert flag.line == "�[0m��<b>"
    with LibraryCallRecorder() as recorder:
        recorder.notes += [note(name=str(number)) for number in range(100)]
        F.layer_norm(torch.ones(3), (3,))
    assert len(recorder.notes) == 100
