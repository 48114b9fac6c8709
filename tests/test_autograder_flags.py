"""Flags for a person: ways to get at an answer without writing it are seen, and honest work is left alone."""

import ast
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from exercises.autograder.flags import answered, in_source
from exercises.autograder.flags.calls import LibraryCallRecorder, from_calls
from exercises.autograder.flags.known import CHECKS, GIVEN, ORDINARY, PACKAGE, SOLVES, WATCHED, sentence
from exercises.autograder.flags.source import PRELUDE
from exercises.autograder.result import Flag
from tests.checks.answers import MODULES
from tests.typical_answers import WRONG
from transformer_lessons import checks

ROOT = Path(__file__).parents[1]
NORMS, LAYER_NORM = ["layer_norm", "rms_norm", "batch_norm"], "ps05-3-layer-norm-answer"


def code_cells(path: Path) -> list[tuple[str | None, str, bool]]:
    """Grade id, text, and whether it is locked."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    marks = [cell["metadata"].get("nbgrader", {}) for cell in cells]
    return [
        (mark.get("grade_id"), "".join(cell["source"]), mark.get("locked", False))
        for cell, mark in zip(cells, marks, strict=True)
        if cell["cell_type"] == "code"
    ]


MASTERS = {path.stem: code_cells(path) for path in sorted(ROOT.glob("exercises/source/*/*.ipynb"))}
ANSWERS = {name: answered((cell, text) for cell, text, _ in cells) for name, cells in MASTERS.items()}
TASKS = {name: frozenset().union(*answers.values()) for name, answers in ANSWERS.items()}


def assignment_of(task: str) -> str:
    return next(name for name, tasks in TASKS.items() if task in tasks)


# --- The tables ------------------------------------------------------------------------------------------------


BESIDE = {"rms_norm"}  # for readers of chapter 9, in no assignment


def test_the_tables_name_what_there_is():
    """A function that torch renames, or a task that the checks rename, would be watched for in vain."""
    assert SOLVES.keys() | ORDINARY.keys() | GIVEN.keys() <= {*checks.tasks()}
    assert SOLVES.keys() <= set().union(*TASKS.values(), BESIDE)
    assert len(WATCHED) == len(set().union(*SOLVES.values())), "two have the same last name"
    new = {"torch.nn.functional.linear_cross_entropy", "torch.nn.LinearCrossEntropyLoss"}
    slow = {name for name in WATCHED.values() if name.startswith("torch.nn.attention.")}  # to import
    assert all(pkgutil.resolve_name(name) for name in WATCHED.values() if name not in new | slow)
    assert all(importlib.util.find_spec(name.rpartition(".")[0]) for name in slow)


@pytest.mark.parametrize("name", MASTERS)
def test_what_is_handed_over_is_what_the_assignment_imports(name):
    own = {full for task in TASKS[name] for full in GIVEN.get(task, ())}
    imported = set()
    prelude = {}
    locked = "\n".join(
        text for cell, text, is_locked in MASTERS[name] if is_locked and cell.endswith("imports")
    )
    for node in ast.walk(ast.parse(locked)):
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
            prelude |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            prelude |= {alias.asname or alias.name: alias.name for alias in node.names}
    assert {full for full in imported if full.startswith(PACKAGE)} - {CHECKS} == own
    assert all(prelude.get(short, full) == full for short, full in PRELUDE.items())


# --- In the text -----------------------------------------------------------------------------------------------

# What somebody might write in an answer, and the kind of flag that it gets.
SEEN = [
    ("package", "from transformer_lessons.masks import causal_mask"),
    ("package", "from transformer_lessons.checks import task"),
    ("package", "import transformer_lessons\nmine = transformer_lessons.masks.causal_mask"),
    (
        "package",
        "def f(x):\n    if x:\n        from transformer_lessons.norms import LayerNorm\n    return x",
    ),
    ("package", "mine = checks.task('layer_norm').right"),
    ("package", "from transformer_lessons import checks as c\nc.task('layer_norm')"),
    ("package", "%%time\nfrom transformer_lessons.norms import LayerNorm\n%time x = 3\n!ls"),
    ("library", "f = F.layer_norm"),
    ("library", "class LayerNorm(nn.LayerNorm):\n    pass"),
    ("library", "from torch.nn.functional import layer_norm as ln\nln(x, (3,))"),
    ("library", "import torch.nn.functional as G\nG.layer_norm(x, (3,))"),
    ("library", "torch.native_layer_norm(x, (3,), None, None, 1e-5)[0]"),
    ("library", "import transformers\ntransformers.models.llama.LlamaRMSNorm(3)"),
]


@pytest.mark.parametrize(("kind", "text"), SEEN)
def test_the_package_and_a_librarys_answer_are_seen(kind, text):
    assert {flag.kind for flag in in_source([(LAYER_NORM, text)], NORMS)} == {kind}
    own = {flag.kind for flag in in_source([(None, text)], NORMS)}
    assert own == ({kind} - {"library"}), "who compares does what the course asks for"


# What nobody need look at: the assignment, an answer, and a cell of the learner's own.
HONEST = [
    ("ps05", "class LayerNorm(nn.Module):\n    'Not F.layer_norm, nor transformer_lessons.norms.'", ""),
    ("ps05", "x.softmax(-1) + F.gelu(x) + F.normalize(x)", "nn.Sequential(nn.Linear(2, 3), nn.Dropout())"),
    ("ps05", "self.layer_norm(x)", "y = F.layer_norm(x, 3)\nassert y.equal(LayerNorm(x))"),
    ("ps05", "class LayerNorm: ...", "import sacrebleu, transformers\nprint(transformers.__version__)"),
    ("ps06", "from transformer_lessons.attention import MultiHeadAttention as M\nM(6, 2)(x)", ""),
    ("ps01", "x @ y.mT", "from transformer_lessons import checks\nchecks.require('causal_mask', f)"),
    ("ps01", "x @ y.mT", "report: checks.Report = checks.check('causal_mask', f)\nhelp(checks.require)"),
    (
        "ps01",
        "x @ y.mT",
        "checks.try_in_translator('token_embedding', f)\nchecks.my_transformer(['a.ipynb'])",
    ),
    ("ps01", "x @ y.mT", "import transformer_lessons\nprint(transformer_lessons.__version__)"),
    ("ps10", "def is_right(attention):\n    F.scaled_dot_product_attention(q, k, v)", ""),
]


@pytest.mark.parametrize(("assignment", "answer", "own"), HONEST)
def test_honest_work_is_left_alone(assignment, answer, own):
    name = next(name for name in TASKS if name.startswith(assignment))
    last = list(ANSWERS[name])[-1 if assignment == "ps10" else 0]
    for cell, answers in ((f"{assignment}-x-answer", {}), (last, ANSWERS[name])):
        assert in_source([(cell, answer), (None, own)], TASKS[name], answers) == []


@pytest.mark.parametrize("name", MASTERS)
def test_the_assignments_are_left_alone(name):
    for folder in ("source", "release"):
        cells = code_cells(ROOT / "exercises" / folder / name / f"{name}.ipynb")
        own = [(cell, text) for cell, text, is_locked in cells if not is_locked]
        assert len(own) >= 5
        assert in_source(own, TASKS[name], ANSWERS[name]) == []


# Of the right answers in other words, those that are a library's or the package's own.
TAKEN = {
    "BatchNormOfTorch": "torch.nn.BatchNorm1d",
    "Flat": "transformer_lessons.model.Transformer",
    "LayerNormByFunction": "torch.nn.functional.layer_norm",
    "LayerNormOfTorch": "torch.nn.LayerNorm",
    "OnRows": "torch.nn.BatchNorm1d",
    "attended_fused": "torch.nn.functional.scaled_dot_product_attention",
    "with_cross_entropy": "torch.nn.functional.cross_entropy",
    "with_torchs_optimiser": "torch.optim.Adam",
}
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


def named(flags: list[Flag]) -> list[str]:
    """What flags are about, the second word of their sentences."""
    return [flag.text.split()[1].strip(",") for flag in flags]


def test_of_right_answers_and_typical_mistakes_only_a_librarys_are_flagged():
    everything = {}
    for module in MODULES:
        for task, right in module.RIGHT.items():
            for answer in right if task in set().union(*TASKS.values()) else ():
                text, tasks = inspect.getsource(answer), TASKS[assignment_of(task)]
                everything[answer.__name__] = named(
                    in_source([("an-answer", text)], tasks, {"an-answer": [task]})
                )
    assert {name: flags for name, flags in everything.items() if flags} == {
        name: [taken] for name, taken in TAKEN.items()
    }
    mistaken = []
    for check, what, text, _ in WRONG:
        name = next(name for name in TASKS if name.startswith(check[:4]))
        cells = [(check.replace("check", "answer"), text)]
        mistaken += [(what, flag) for flag in named(in_source(cells, TASKS[name], ANSWERS[name]))]
    assert mistaken == [  # they lean on what torch has, and are wrong nevertheless
        ("zeros that are averaged", "torch.nn.BatchNorm1d"),
        ("smoothing left to PyTorch", "torch.nn.functional.cross_entropy"),
        ("all logits", "torch.nn.functional.cross_entropy"),
    ]


def test_whose_answer_it_is_decides():
    answers = {"a-answer": ["cached_attention_step"], "b-answer": ["tiled_attention"]}
    tasks = ["cached_attention_step", "tiled_attention"]
    attend = "def attend(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)"
    assert in_source([("a-answer", attend)], tasks, answers) == []
    assert in_source([("c-answer", attend)], tasks, answers) == []  # it may be the first one's
    (flag,) = in_source([("b-answer", attend)], tasks, answers)
    assert flag.text == sentence(ATTENTION, ["tiled_attention"])
    taken = [(None, "from transformer_lessons.masks import causal_mask")]
    assert in_source(taken, TASKS["ps06_layers_model"]) == []  # where it is handed over
    assert len(in_source(taken, TASKS["ps02_masks"])) == 1


def test_a_flag_says_where_and_a_thing_is_said_once_in_a_cell():
    text = "\n\nx = 3\n%time\ny = F.layer_norm(x, (3,))  # \x1b[31mred\n!ls\nz = F.layer_norm(y, (3,))"
    said = sentence("torch.nn.functional.layer_norm", ["layer_norm"])
    assert in_source([(LAYER_NORM, text)], NORMS) == [
        Flag("library", said, LAYER_NORM, "y = F.layer_norm(x, (3,))  #  [31mred")
    ]
    (long,) = in_source([(None, f"import transformer_lessons.a{'b' * 999}")], [])
    assert len(long.line) == 200
    assert len(long.text) < 300
    assert len(in_source([(f"{n}-answer", "nn.LayerNorm") for n in range(500)], NORMS)) == 100


@pytest.mark.parametrize(
    "text",
    [
        *("(" * 5_000 + ")" * 5_000, "-" * 5_000 + "1", "a" + ".b" * 5_000, "a" + "+a" * 5_000),
        *("\0", "x = '\ud800'", "'\\d'; 1 is 1", "\x0c\x0b\u2028", "", "def f(:\n  %", "#" * 200_000),
    ],
)
def test_any_text_is_read(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_source([(LAYER_NORM, text), (None, text)], NORMS) == []


# --- Where the learner's code runs -----------------------------------------------------------------------------


def layer_by_hand(x):
    wide = x - x.mean(-1, keepdim=True)
    return wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def adam(x):
    moved = x.detach().requires_grad_()
    optimizer = torch.optim.Adam([moved])
    moved.sum().backward()
    optimizer.step()
    return moved


def scaler(x):
    moved = x.detach().requires_grad_()
    optimizer, scaler = torch.optim.SGD([moved]), torch.amp.GradScaler("cpu")
    scaler.scale(moved.sum()).backward()
    scaler.step(optimizer)
    return moved


F_ = "torch.nn.functional."
CALLS = {
    "function": (lambda x: F.layer_norm(x, (6,)), {f"{F_}layer_norm"}),
    "module": (lambda x: nn.Sequential(nn.LayerNorm(6).double())(x), {f"{F_}layer_norm"}),
    "overload": (lambda x: torch.ops.aten.layer_norm.default(x, (6,)), {f"{F_}layer_norm"}),
    "computed again": (lambda x: checkpoint(F.rms_norm, x, (6,), use_reentrant=False), {f"{F_}rms_norm"}),
    "batch": (lambda x: nn.BatchNorm1d(6).double()(x.flatten(0, 1)), {f"{F_}batch_norm"}),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), {ATTENTION}),
    "layer": (
        lambda x: nn.TransformerEncoderLayer(6, 2, 3, dropout=0.0).double()(x),
        {f"{F_}multi_head_attention_forward", f"{F_}layer_norm"},
    ),
    "optimizer": (adam, {"torch.optim.Adam"}),
    "scaler": (scaler, {"torch.amp.GradScaler"}),
    "by hand": (layer_by_hand, set()),
    "parts": (lambda x: F.gelu(F.linear(x, x[0, :3])).softmax(-1).log() @ F.normalize(x[:, :3]), set()),
}


@pytest.mark.parametrize(("call", "names"), CALLS.values(), ids=CALLS)
def test_calls_are_noted_and_nothing_is_changed(call, names):
    def outcome():
        torch.manual_seed(3)  # of new layers
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
    assert len(recorder.notes) == len(names)  # it is over


def answers_that_run(name: str):
    """The answers of a master to tasks that something in torch solves: task and answer."""
    names = {"checks": checks, "__name__": "__main__"}
    for cell, text, _ in MASTERS[name]:
        if cell and cell.endswith(("-imports", "-answer")):
            exec(compile(text, cell, "exec"), names)
        for task, answer in re.findall(r"checks\.require\(\"(\w+)\", (\w+)\)", text):
            if task in SOLVES or task in ORDINARY:
                yield task, names[answer]


@pytest.mark.parametrize("name", ["ps05_feed_forward_norms", "ps09_speed_memory"])
def test_masters_are_left_alone_when_they_run(name, no_shape_checks):
    for task, answer in answers_that_run(name):
        checks.check(task, answer)  # makes the probes, which the grader does where nothing is recorded
        with LibraryCallRecorder() as recorder:
            assert checks.check(task, answer).passed, task
        assert from_calls(recorder.notes, [task]) == [], task


# Cells, one after the other, and what is noted of each.
RUN = [
    ("from transformer_lessons import checks\nreport = checks.check('causal_mask', lambda *_: 1)", []),
    ("help(checks.require)\nchecks.require?\nchecks.tasks()", []),
    ("import inspect, json, linecache\nx = inspect.getsource(json)\nopen('/dev/null')", []),
    ("checks.require??", ["read checks/__init__.py"]),
    ("x = open(checks.__file__).read()  #" + " long" * 99, ["read checks/__init__.py"]),
    (
        "from importlib import resources\nx = (resources.files(checks) / 'plain.py').read_text()",
        ["read checks/plain.py"],
    ),
    ("%pycat {checks.__file__}", ["read checks/__init__.py"]),
    (
        "import importlib\nx = importlib.import_module('transformer_lessons.losses')",
        ["import transformer_lessons.losses"],
    ),
    ("exec('from transformer_' + 'lessons import norms')", ["import transformer_lessons.norms"]),
    (
        "def f(*_):\n    import transformer_lessons.encodings\nreport = checks.check('causal_mask', f)",
        ["import transformer_lessons.encodings"],
    ),
    ("linecache.clearcache()\nchecks.task('no')", []),  # whose traceback the shell reads for
    (
        "import torch\ndef mine(x):\n    return torch.layer_norm(x, (3,))\n"
        "with recorder:\n    mine(torch.ones(3))",
        [f"call {F_}layer_norm"],
    ),
]
WATCHING = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from exercises.autograder.flags.calls import LibraryCallRecorder, watch_imports_and_reads

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.compile.get_code_name = lambda raw, transformed, number: f"<ipython-input-{number}>"
notes, found = [], []
shell.user_ns["recorder"] = LibraryCallRecorder(notes)
watch_imports_and_reads(notes)
output, sys.stdout, sys.stderr = sys.stdout, open("/dev/null", "w"), open("/dev/null", "w")
for cell in json.load(sys.stdin):
    shell.run_cell(cell)
    found.append(list(notes))
    del notes[:]
json.dump(found, output)
"""


def test_what_a_cell_imports_reads_and_calls_is_noted_with_its_line():
    cells = json.dumps([cell for cell, _ in RUN])
    command = [sys.executable, "-W", "ignore", "-c", WATCHING]
    done = subprocess.run(command, input=cells, capture_output=True, text=True, check=True, cwd=ROOT)
    noted = json.loads(done.stdout)
    assert [[f"{note['what']} {note['name']}" for note in notes] for notes in noted] == [
        want for _, want in RUN
    ]
    assert sum(len(from_calls(notes, ["layer_norm"])) for notes in noted) == sum(len(want) for _, want in RUN)
    lines = {note["name"]: note["line"] for notes in noted for note in notes}
    assert lines["transformer_lessons.losses"] == "x = importlib.import_module('transformer_lessons.losses')"
    assert lines["checks/plain.py"] == "x = (resources.files(checks) / 'plain.py').read_text()"
    assert lines[f"{F_}layer_norm"] == "return torch.layer_norm(x, (3,))"


# --- Notes that come from there --------------------------------------------------------------------------------


def note(what="call", name=f"{F_}layer_norm", line="") -> dict:
    return {"what": what, "name": name, "line": line}


def test_notes_become_flags():
    said = sentence(f"{F_}layer_norm", ["layer_norm"])
    assert from_calls([note()], ["layer_norm", "feed_forward"]) == [Flag("library", f"When it ran: {said}")]
    assert from_calls([note()], ["feed_forward"]) == []
    assert from_calls([note(name=ATTENTION)], ["tiled_attention", "cached_attention_step"]) == []
    assert from_calls([note("import", f"{PACKAGE}.masks", "import x")], ["causal_mask"]) == [
        Flag("package", f"When it ran, a cell imported {PACKAGE}.masks.", None, "import x")
    ]
    assert from_calls([note("import", f"{PACKAGE}.masks")], ["residual"]) == []  # handed over there
    assert from_calls([note("read", "checks/core.py")], []) == [
        Flag("source", f"When it ran, a cell read {PACKAGE}/checks/core.py.")
    ]


@pytest.mark.parametrize(
    "notes",
    [
        *(None, "call", {}, [None], ["call"], [{}], [note() | {"more": 1}], [note(what=3)], [note(name=[])]),
        *([note(what="else")], [note(name="os.system")], [note(name="layer_norm")], [note("import", "os")]),
        *([note("import", f"{PACKAGE}.x\n")], [note("read", "<b>.py")], [note("read", "/etc/passwd")]),
        *([note("read", "a" * 300 + ".py")], [note(line="x" * 201)]),
    ],
)
def test_what_is_no_note_is_left_out(notes):
    assert from_calls(notes, ["layer_norm"]) == []


def test_notes_are_bounded():
    many = [note("read", f"{number}.py", "x" * 200) for number in range(10**5)]
    assert len(from_calls(many, ["layer_norm"])) == 100
    (flag,) = from_calls([note(line="\x1b[0m\ud800\n<b>")], ["layer_norm"])
    assert flag.line == "[0m? <b>"
    with LibraryCallRecorder([note(name=str(number)) for number in range(100)]) as recorder:
        F.layer_norm(torch.ones(3), (3,))
    assert len(recorder.notes) == 100
