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
from IPython.core.inputtransformer2 import TransformerManager
from torch import nn
from torch.utils.checkpoint import checkpoint

from exercises.autograder.flags import GIVEN, SOLVES, Noticing, answered, from_calls, in_source
from exercises.autograder.flags.known import CHECKS, ORDINARY, PACKAGE, WATCHED, sentence
from exercises.autograder.flags.names import PRELUDE
from exercises.autograder.flags.text import units_of, without_magics
from exercises.autograder.result import Flag
from tests.checks.answers import MODULES
from tests.typical_answers import WRONG
from transformer_lessons import checks
from transformer_lessons.tools.submission import is_ungraded

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


BESIDE = {"rms_norm", "linear_attention"}  # for readers of chapters 9 and 18, in no assignment


def test_each_task_has_been_thought_about():
    assert list(SOLVES) == checks.tasks()
    assert set(SOLVES) - set().union(*TASKS.values()) == BESIDE
    assert ORDINARY.keys() | GIVEN.keys() <= SOLVES.keys()
    assert all(SOLVES[task].isdisjoint(names) for task, names in ORDINARY.items())


def test_what_solves_a_task_exists():
    new = {"torch.nn.functional.linear_cross_entropy", "torch.nn.LinearCrossEntropyLoss"}
    slow = {name for name in WATCHED.values() if name.startswith("torch.nn.attention.")}  # to import
    assert all(pkgutil.resolve_name(name) for name in WATCHED.values() if name not in new | slow)
    assert all(importlib.util.find_spec(name.rpartition(".")[0]) for name in slow)
    assert len(WATCHED) == len(set().union(*SOLVES.values())), "two have the same last name"


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

# What somebody might write, and the kind of flag that it gets.
PACKAGED = [
    "import transformer_lessons.masks",
    "from transformer_lessons.masks import causal_mask",
    "from transformer_lessons import attention as a",
    "from transformer_lessons.checks import task",
    "import transformer_lessons\nmine = transformer_lessons.masks.causal_mask",
    "def f(x):\n    if x:\n        from transformer_lessons.norms import LayerNorm\n    return x",
    "mine = checks.task('layer_norm').right",
    "from transformer_lessons import checks as c\nc.task('layer_norm')",
    "getattr(checks, 'ta' + 'sk')('layer_norm')",
    "getattr(checks, name)('layer_norm')",
    "checks.__dict__['_load']('layer_norm')",
    "checks.__file__",
    "globals()['checks'].task('layer_norm')",
    "import operator\noperator.attrgetter('task')(checks)",
    "checks.check = lambda *args, **kwargs: right",
    "def look(module):\n    return module.task\n\n\nlook(checks)",
    "from importlib import import_module\nimport_module('transformer_' + 'lessons.norms').LayerNorm",
    "__import__(name)",
    "import sys\nsys.modules['transformer_lessons.norms'].LayerNorm",
    "exec('from transformer_lessons.norms import LayerNorm')",
    "LayerNorm = found.define(text)",
    ",checks.task layer_norm",
    "%time from transformer_lessons.norms import LayerNorm",
    ">>> from transformer_lessons.norms import LayerNorm",
    "get_ipython().run_cell('import transformer_lessons.norms')",
]
READING = [
    "import inspect\ninspect.getsource(checks.require)",
    "import linecache\nlinecache.getlines(path)",
    "open(folder + '/transformer_lessons/norms.py').read()",
    "from pathlib import Path\nPath(f'{folder}/transformer_lessons/norms.py').read_text()",
    "import importlib\nimportlib.import_module(f'transformer_lessons.{name}')",
    "import pkgutil\npkgutil.get_data('transformer_lessons', 'norms.py')",
    "from importlib import resources as r\nr.files(package)",
    "import sys\nsys._getframe(1).f_globals",
    "%%bash\npython -c 'import transformer_lessons as t; print(t.__path__)'",
    "import gc\ngc.get_objects()",
    "checks.require.__globals__['task']",
    "import runpy\nrunpy.run_path(path)",
    "import base64\nexec(base64.b64decode(text))",
    "!cat /opt/transformer_lessons/norms.py",
    "get_ipython().system('cat ' + folder + '/site-packages/x.py')",
    "%%bash\ncat /opt/transformer_lessons/norms.py",
    "%load /opt/norms.py",
    "checks.require??",
    "%psource checks.require",
    "import torch\nx = 3\n%load norms.py\ny = 4",
]
SOLVING = [
    "f = F.layer_norm",
    "class LayerNorm(nn.LayerNorm):\n    pass",
    "from torch.nn.functional import layer_norm as ln\nln(x, (3,))",
    "from torch.nn.functional import *\nlayer_norm(x, (3,))",
    "G = torch.nn.functional\nG.layer_norm(x, (3,))",
    "(G := torch.nn).RMSNorm(3)\nG.LayerNorm(3)",
    "getattr(getattr(torch, 'nn'), 'Layer' + 'Norm')(3)",
    "F.__dict__['layer_norm'](x, (3,))",
    "from operator import attrgetter\nattrgetter('nn.functional.layer_norm')(torch)(x, (3,))",
    "import sys\nsys.modules['torch.nn.functional'].layer_norm(x, (3,))",
    "__import__('torch').layer_norm(x, (3,))",
    "torch.native_layer_norm(x, (3,), None, None, 1e-5)[0]",
    "torch._C._VariableFunctions.layer_norm(x, (3,))",
    "F.group_norm(x, 1)",
    "nn.BatchNorm1d(3)(x)",
    "import transformers\ntransformers.models.llama.LlamaRMSNorm(3)",
    "import importlib\nimportlib.import_module('xformers.ops').rms_norm",
    "with torch._C.DisableTorchFunction():\n    pass",
]


@pytest.mark.parametrize("text", PACKAGED)
def test_the_package_is_seen(text):
    for cell in (LAYER_NORM, None):
        assert "package" in kinds([(cell, text)], NORMS)


@pytest.mark.parametrize("text", READING)
def test_reading_is_seen(text):
    for cell in (LAYER_NORM, None):
        assert "source" in kinds([(cell, text)], NORMS)


@pytest.mark.parametrize("text", SOLVING)
def test_a_librarys_answer_is_seen(text):
    assert "library" in kinds([(LAYER_NORM, text)], NORMS)


def kinds(cells, tasks, answers=None) -> set[str]:
    return {flag.kind for flag in in_source(cells, tasks, answers)}


# What nobody need look at: the assignment, an answer, and a cell of the learner's own.
HONEST = [
    ("ps05", "x = 3", "y = F.layer_norm(x, (3,)\nassert y.equal(x)"),
    ("ps05", "LayerNorm = 3\n\n\ndef layer_norm(x):\n    return x - x.mean(-1, keepdim=True)", ""),
    ("ps05", "class LayerNorm(nn.Module):\n    'Not F.layer_norm, nor transformer_lessons.norms.'", ""),
    ("ps05", "# from transformer_lessons.norms import LayerNorm\nx = 3  # F.layer_norm(x, (3,))", ""),
    ("ps05", "x.softmax(-1) + F.gelu(x) + F.normalize(x)", "nn.Sequential(nn.Linear(2, 3), nn.Dropout())"),
    (
        "ps05",
        "def LayerNorm(x):\n    y = x\n    return y",
        "y = F.layer_norm(x, 3)\nassert y.equal(LayerNorm(x))",
    ),
    (
        "ps05",
        "class LayerNorm: ...",
        "def test(x):\n    assert nn.LayerNorm(3)(x).equal(LayerNorm(3)(x))\n\n\ntest(3)",
    ),
    ("ps05", "class LayerNorm: ...", "import sacrebleu, transformers\nprint(transformers.__version__)"),
    (
        "ps06",
        "norm = nn.LayerNorm(3)\nattend = MultiHeadAttention(6, 2)",
        "LayerNorm(3)(x) + sinusoidal(2, 3)",
    ),
    (
        "ps06",
        "from transformer_lessons.attention import MultiHeadAttention as M\nM(6, 2)(x)",
        "causal_mask(3)",
    ),
    (
        "ps08",
        "with evaluating(model):\n    model.eval()\n    a.topk(3)",
        "load_model('x')\nnumber_words.pairs(3)",
    ),
    (
        "ps09",
        "from torch.utils.checkpoint import checkpoint as c\nc(f, x)",
        "torch.compile(f)\nre.compile(pattern)",
    ),
    (
        "ps01",
        "x @ y.mT",
        "from transformer_lessons import checks\nchecks.require('causal_mask', f)\nchecks.tasks()",
    ),
    (
        "ps01",
        "x @ y.mT",
        "c = checks\nreport: checks.Report = c.check('causal_mask', f)\nreport.score(values=1)",
    ),
    (
        "ps01",
        "x @ y.mT",
        "checks.try_in_translator('token_embedding', f)\nchecks.my_transformer(['ps01.ipynb', 'ps02.ipynb'])",
    ),
    (
        "ps01",
        "x @ y.mT",
        "import transformer_lessons\nprint(transformer_lessons.__version__)\nhelp(checks.require)",
    ),
    ("ps01", "x @ y.mT", "%%time\nx = 3\n%%bash"),
    (
        "ps01",
        "x @ y.mT",
        "import sys, importlib.util\n'google.colab' in sys.modules\nimportlib.util.find_spec('tqdm')",
    ),
    (
        "ps01",
        "x @ y.mT",
        "import inspect\ninspect.getsource(nn.Linear)\ninspect.getsource(broken)\nnn.Linear??",
    ),
    (
        "ps01",
        "def f(x): ...",
        "import inspect\nprint(inspect.getsource(f), inspect.signature(f))\nf??\n%psource f",
    ),
    (
        "ps01",
        "getattr(F, activation)(x)\ngetattr(self, 'mask')",
        "import einops\neinops.rearrange(x, 'a b -> b a')",
    ),
    (
        "ps10",
        "def is_right(attention):\n    F.scaled_dot_product_attention(q, k, v)",
        "torch.func.jacrev(f)(x)",
    ),
    (
        "ps05",
        "print('transformers', build('layer_norm')(F))",
        "__import__('math')\nimportlib.import_module('re')",
    ),
    (
        "ps05",
        "getattr(checks, 'require')('layer_norm', f)",
        "names.get('load', 'x')\nself.a = 3, 5\na.b, c = nn, 3",
    ),
]


@pytest.mark.parametrize(("assignment", "answer", "own"), HONEST)
def test_honest_work_is_left_alone(assignment, answer, own):
    name = next(name for name in TASKS if name.startswith(assignment))
    last = list(ANSWERS[name])[-1 if assignment == "ps10" else 0]
    assert in_source([(f"{assignment}-x-answer", answer), (None, own)], TASKS[name]) == []
    assert in_source([(last, answer), (None, own)], TASKS[name], ANSWERS[name]) == []


@pytest.mark.parametrize("name", MASTERS)
@pytest.mark.parametrize("folder", ["source", "release"])
def test_the_assignments_are_left_alone(folder, name):
    cells = code_cells(ROOT / "exercises" / folder / name / f"{name}.ipynb")
    own = [(cell, text) for cell, text, is_locked in cells if not is_locked]
    assert len(own) >= 5
    assert in_source(own, TASKS[name]) == []
    assert in_source(own, TASKS[name], ANSWERS[name]) == []
    # Locked cells are not handed over. If they were, only experiments would be flagged, which are handed models.
    graded = [(cell, text) for cell, text, _ in cells if not is_ungraded(cell or "")]
    assert in_source(graded, TASKS[name], ANSWERS[name]) == []


# Of the right answers in other words, those that are a library's or the package's own.
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
TAKEN = {
    "BatchNormOfTorch": ["torch.nn.BatchNorm1d"],
    "Flat": ["transformer_lessons.model.Transformer"],
    "LayerNormByFunction": ["torch.nn.functional.layer_norm"],
    "LayerNormOfTorch": ["torch.nn.LayerNorm"],
    "OnRows": ["torch.nn.BatchNorm1d"],
    "attended_fused": ["torch.nn.functional.scaled_dot_product_attention"],
    "with_cross_entropy": ["torch.nn.functional.cross_entropy"],
    "with_torchs_optimiser": ["torch.optim.Adam"],
}
LAYERS = {"BatchNorm1d": "batch_norm", "LayerNorm": "layer_norm", "RMSNorm": "rms_norm"}


def named(flags: list[Flag]) -> list[str]:
    """What flags are about, the second word of their sentences."""
    return [flag.text.split()[1].strip(",") for flag in flags]


def test_right_answers_in_other_words_are_left_alone():
    found = {}
    for module in MODULES:
        for task in module.RIGHT.keys() - BESIDE:
            for answer in module.RIGHT[task]:
                text = inspect.getsource(answer)
                flags = in_source([("an-answer", text)], TASKS[assignment_of(task)], {"an-answer": [task]})
                found[answer.__name__] = sorted(named(flags))
    assert {name: taken for name, taken in found.items() if taken} == TAKEN


def test_typical_mistakes_are_left_alone():
    found = []
    for check, what, text, _ in WRONG:
        name = next(name for name in TASKS if name.startswith(check[:4]))
        cells = [(check.replace("check", "answer"), text)]
        found += [(what, name) for name in named(in_source(cells, TASKS[name], ANSWERS[name]))]
    assert found == [  # they lean on what torch has, and are wrong nevertheless
        ("zeros that are averaged", "torch.nn.BatchNorm1d"),
        ("smoothing left to PyTorch", "torch.nn.functional.cross_entropy"),
        ("all logits", "torch.nn.functional.cross_entropy"),
    ]


def test_what_an_answer_uses_counts_wherever_it_stands():
    answer = (LAYER_NORM, "def LayerNorm(x):\n    return helper(x)")
    helper = (None, "def helper(x):\n    return other(x)")
    other = (None, "other = lambda x: F.layer_norm(x, (3,))")
    assert kinds([answer, helper, other], NORMS) == {"library"}
    assert kinds([other, helper, answer], NORMS) == {"library"}
    assert kinds([answer, other], NORMS) == set()  # nobody uses it
    default = (LAYER_NORM, "def LayerNorm(x, helper=helper):\n    return helper(x)")
    assert kinds([default, helper, other], NORMS) == {"library"}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "LayerNorm = nn.LayerNorm",
            "LayerNorm.forward = F.layer_norm",
            "class LayerNorm(nn.LayerNorm): ...",
        ),
        *("LayerNorm: type = nn.LayerNorm", "LayerNorm.parts[0].forward = F.layer_norm"),
    ],
)
def test_what_takes_an_answers_place_counts(text):
    answer = (LAYER_NORM, "class LayerNorm(nn.Module): ...")
    assert kinds([answer, (None, text)], NORMS) == {"library"}
    assert kinds([answer, (None, text.replace("LayerNorm", "Mine", 1))], NORMS) == set()
    for imported in ("LayerNorm", "RMSNorm as LayerNorm"):
        assert kinds([answer, (None, f"from torch.nn import {imported}")], NORMS) == {"library"}
    assert kinds([answer, (None, "from torch.nn import RMSNorm")], NORMS) == set()


def test_whose_answer_it_is_decides():
    answers = {"a-answer": ["cached_attention_step"], "b-answer": ["tiled_attention"]}
    tasks = ["cached_attention_step", "tiled_attention"]
    attend = "def attend(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)"
    assert in_source([("a-answer", attend)], tasks, answers) == []
    assert in_source([("b-answer", attend)], tasks) == []  # it may be the first one's
    for cells in ([("b-answer", attend)], [("a-answer", attend), ("b-answer", "tiled = attend")]):
        flags = in_source(cells, tasks, answers)
        assert [flag.text for flag in flags] == [sentence(ATTENTION, ["tiled_attention"])]


def test_what_is_handed_over_may_be_used_and_no_more():
    tasks = TASKS["ps06_layers_model"]
    assert (
        kinds([(None, "from transformer_lessons.masks import causal_mask\ncausal_mask(3)")], tasks) == set()
    )
    assert kinds([(None, "from transformer_lessons.masks import causal_mask")], TASKS["ps02_masks"]) == {
        "package"
    }
    assert kinds([(None, "from transformer_lessons import masks")], tasks) == {"package"}
    assert kinds([(None, "import inspect\ninspect.getsource(MultiHeadAttention)")], tasks) == {"source"}
    assert kinds([(None, "MultiHeadAttention??")], tasks) == {"source"}
    assert kinds([(None, "MultiHeadAttention.forward = f")], tasks) == {"package"}


def test_an_answer_is_for_what_its_checks_name():
    assert ANSWERS["ps01_embeddings_attention"] == {
        "ps01-2-answer": {"token_embedding"},
        "ps01-3-answer": {"scaled_dot_product_attention"},
        "ps01-4-answer": {"scaled_dot_product_attention"},
        "ps01-5-capped-answer": {"soft_capped_attention"},
    }


def test_a_flag_says_where_and_a_thing_is_said_once_in_a_cell():
    text = "\n\nx = 3\n%time\ny = F.layer_norm(x, (3,))  # \x1b[31mred\n!ls\nz = F.layer_norm(y, (3,))"
    said = sentence("torch.nn.functional.layer_norm", ["layer_norm"])
    assert in_source([(LAYER_NORM, text)], NORMS) == [
        Flag("library", said, LAYER_NORM, "y = F.layer_norm(x, (3,))  #  [31mred")
    ]
    (long,) = in_source([(None, f"import transformer_lessons.a{'b' * 999}")], [])
    assert len(long.line) == 200
    assert len(long.text) < 300
    (odd,) = in_source([(None, "getattr(checks, 'a\\n\\x1b<b>\\ud800')")], [])
    assert odd.text == f"Takes {CHECKS}.a  <b>?, which the assignment does not hand over."
    assert len(in_source([(f"{n}-answer", "nn.LayerNorm") for n in range(500)], NORMS)) == 100


MAGICS = [
    *("def f(x):\n    ...\n%time f(3)", "/f x y", ",f x y", ";f x y", "/f", "  ,g.h x"),
    *(
        "%psource x",
        "%time x = 3",
        "%%time x\ny = 3",
        "%%bash\nls",
        "%alias",
        "  %cd",
        "a = %time 3",
        "!ls -l 'a'",
    ),
    *(
        "!!ls",
        "a = !ls",
        "a.b[0] = !ls",
        "x?",
        "x.y??",
        "?x",
        "??x.y",
        "for i in x:\n    !ls {i}\n    %time i",
    ),
    *(">>> x = 3\n>>> y = 4", "In [1]: x = 3\nIn [2]: y = 4", "  x = 3\n  y = 4"),
]


@pytest.mark.parametrize("text", MAGICS)
def test_magics_become_what_ipython_makes_of_them(text):
    expected = TransformerManager().transform_cell(f"{text}\n")
    assert ast.dump(ast.parse(without_magics(f"{text}\n"))) == ast.dump(ast.parse(expected))


SIZE = 5_000
HOSTILE = {
    "balanced": "(" * SIZE + ")" * SIZE,
    "negative": "-" * SIZE + "1",
    "attributes": "a" + ".b" * SIZE,
    "sum": "a" + "+a" * SIZE,
    "blocks": "".join(" " * i + "if a:\n" for i in range(150)),
    "getattrs": "getattr(" * 90 + "F" + ", 'a')" * 90,
    "aliases": "a = torch.nn\n" + "a = a.b\n" * (SIZE // 8),
    "runs": "exec('''" + 'exec("x = 1")\n' * (SIZE // 20) + "''')",
    "magics": "%time\n" * (SIZE // 6),
    "cells": "%%time\n" * SIZE,
    "nulls": "\0" * SIZE,
    "half characters": "x = '\ud800'\n\udfff = 3",
    "escapes": "'\\d'; x = '''\\q'''; 1 is 1",
    "feeds": "\x0c\x0b\u2028" * SIZE,
    "empty": "",
    "unfinished": "def f(:\n  %\n  !\n  ?\n  a = !\n  = %x\n%\n!\n?\n/\n,\n%%",
    "no arguments": "exec()\neval()\ngetattr()\nvars()\na.system()\na.run_line_magic()\na.run_cell_magic()",
    "one argument": "getattr(a)\na.run_line_magic('load')\na.run_cell_magic('bash')\ninspect.getsource()",
    "no names": "f().x = 3\n(a or b).c = 4\n[a][0] = 5\n[a.b, c[0]] = 6\nwith f() as a.b: pass",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_text_is_read(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_source([(LAYER_NORM, text), (None, text)], NORMS) == []


CHEAT = "from transformer_lessons.norms import LayerNorm\nx = F.layer_norm(x, (3,))\ninspect.getsource(f)"


@pytest.mark.parametrize("before", ["(", "\0", "9x", "#" * 120_000], ids=["opened", "null", "none", "long"])
def test_what_cannot_be_parsed_is_searched(before):
    flags = in_source([(LAYER_NORM, f"{before}\n{CHEAT}")], NORMS)
    assert [flag.kind for flag in flags] == ["package", "library", "source"]
    assert flags[1].line == "x = F.layer_norm(x, (3,))"
    imported = in_source([(LAYER_NORM, f"{before}\nfrom torch.nn import LayerNorm as L")], NORMS)
    assert [flag.kind for flag in imported] == ["library"]
    harmless = (
        "# F.layer_norm\nx = 3 # import transformer_lessons.norms\nfrom transformer_lessons import checks"
    )
    assert in_source([(LAYER_NORM, f"{before}\n{harmless}")], NORMS) == []


def test_a_strange_escape_does_not_keep_a_cell_from_being_parsed():
    (flag,) = in_source([(None, "'\\d'\nchecks.task(3)")], NORMS)  # with warnings that are errors
    assert flag.text == f"Takes {CHECKS}.task, which the assignment does not hand over."


def test_texts_in_texts_are_read_so_deep_and_no_deeper():
    cheat = "LayerNorm = nn.LayerNorm"
    assert kinds([(LAYER_NORM, f"%%time\n%%capture\nexec({cheat!r})")], NORMS) == {"library"}
    assert len(units_of(None, "%%time\n" * 500, frozenset())) == 4


def test_what_is_not_read_is_said():
    assert kinds([(None, "#" * 2_000_001)], NORMS) == {"source"}
    assert kinds([(None, "#" * 90_000)], NORMS) == set()


def test_reading_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "trap.py").write_text("open('ran', 'w')", encoding="utf-8")
    text = (
        "import trap\nfrom trap import *\nexec('import trap')\n!touch ran\n%run trap.py\n__import__('trap')"
    )
    in_source([(LAYER_NORM, text), (None, f"%%python\n{text}"), (None, f"({text}")], checks.tasks())
    assert not (tmp_path / "ran").exists()
    assert "trap" not in sys.modules


# --- Where the learner's code runs -----------------------------------------------------------------------------


def layer_by_hand(x):
    wide = x - x.mean(-1, keepdim=True)
    return wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def adam(x, optimizer=torch.optim.Adam):
    moved = x.detach().requires_grad_()
    optimizer = optimizer([moved])
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
    "getattr": (lambda x: getattr(F, "_".join(["layer", "norm"]))(x, (6,)), {f"{F_}layer_norm"}),
    "module": (lambda x: nn.Sequential(nn.LayerNorm(6).double())(x), {f"{F_}layer_norm"}),
    "native": (lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5)[0], {f"{F_}layer_norm"}),
    "overload": (lambda x: torch.ops.aten.layer_norm.default(x, (6,)), {f"{F_}layer_norm"}),
    "differentiated": (torch.func.grad(lambda x: F.layer_norm(x, (6,)).square().sum()), {f"{F_}layer_norm"}),
    "computed again": (lambda x: checkpoint(F.rms_norm, x, (6,), use_reentrant=False), {f"{F_}rms_norm"}),
    "batch": (lambda x: nn.BatchNorm1d(6).double()(x.flatten(0, 1)), {f"{F_}batch_norm"}),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), {ATTENTION}),
    "heads": (
        lambda x: nn.MultiheadAttention(6, 2).double()(x, x, x)[0],
        {f"{F_}multi_head_attention_forward"},
    ),
    "layer": (
        lambda x: nn.TransformerEncoderLayer(6, 2, 3, dropout=0.0).double()(x),
        {f"{F_}multi_head_attention_forward", f"{F_}layer_norm"},
    ),
    "loss below": (lambda x: torch._C._nn.cross_entropy_loss(x[0], torch.arange(5)), {f"{F_}cross_entropy"}),
    "optimizer": (adam, {"torch.optim.Adam"}),
    "scaler": (scaler, {"torch.amp.GradScaler"}),
    "by hand": (layer_by_hand, set()),
    "parts": (lambda x: F.gelu(F.linear(x, x[0, :3])).softmax(-1).log() @ F.normalize(x[:, :3]), set()),
    "layers": (nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Dropout(0.0), nn.Linear(3, 5)).double(), set()),
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
    with Noticing() as noticing:
        (y, gradient), again = outcome(), outcome()
    assert torch.equal(y, expected)
    assert torch.equal(again[0], expected)
    assert (y.dtype, y.requires_grad) == (expected.dtype, expected.requires_grad)
    assert gradient is expected_gradient or torch.equal(gradient, expected_gradient)
    assert {note["name"] for note in noticing.notes} == names
    assert len(noticing.notes) == len(names)
    before = len(noticing.notes)
    outcome()
    assert len(noticing.notes) == before  # it is over


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # by torch's own forward mode
def test_higher_gradients_pass_through():
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    with Noticing() as noticing:
        assert torch.autograd.gradcheck(layer_by_hand, (x,))
        assert torch.autograd.gradgradcheck(lambda x: F.layer_norm(x, (6,)), (x,))
        jacobian = torch.func.jacrev(layer_by_hand)(x[0].detach())
        _, pushed = torch.func.jvp(layer_by_hand, (x[0].detach(),), (torch.ones(6, dtype=torch.float64),))
    assert torch.allclose(pushed, jacobian.sum(-1))
    assert [note["name"] for note in noticing.notes] == [f"{F_}layer_norm"]


def test_noticing_can_be_nested_and_goes_on_with_notes():
    notes = [{"what": "call", "name": "torch.nn.RMSNorm", "line": ""}]
    outer = Noticing(notes)
    with outer, outer, Noticing(notes):
        adam(torch.ones(3))
        F.layer_norm(torch.ones(3), (3,))
    with pytest.raises(ZeroDivisionError), outer:
        raise ZeroDivisionError
    assert [note["name"] for note in notes] == ["torch.nn.RMSNorm", "torch.optim.Adam", f"{F_}layer_norm"]
    adam(torch.ones(3), torch.optim.AdamW)
    F.rms_norm(torch.ones(3), (3,))
    assert len(notes) == 3  # it is over
    assert not torch.overrides._is_torch_function_mode_enabled()


def few(names, *here: str) -> list:
    """Those named at each commit, all in `make test-full`: each is checked twice."""
    return [pytest.param(name, marks=[pytest.mark.full] * (name not in here)) for name in names]


def answers_that_run(name: str):
    """The answers of a master to tasks that something in torch solves: task and answer."""
    names = {"checks": checks, "__name__": "__main__"}
    for cell, text, _ in MASTERS[name]:
        if cell and cell.endswith(("-imports", "-answer")):
            exec(compile(text, cell, "exec"), names)
        for task, answer in re.findall(r"checks\.require\(\"(\w+)\", (\w+)\)", text):
            if SOLVES[task] or task in ORDINARY:
                yield task, names[answer]


@pytest.mark.parametrize(
    "name", few(MASTERS, "ps01_embeddings_attention", "ps05_feed_forward_norms", "ps09_speed_memory")
)
def test_masters_are_left_alone_when_they_run(name, no_shape_checks):
    for task, answer in answers_that_run(name):
        checks.check(task, answer)  # makes the probes, which the grader does where nothing is noticed
        with Noticing() as noticing:
            assert checks.check(task, answer).passed, task
        assert from_calls(noticing.notes, [task]) == [], task


def a_librarys() -> list:
    """Right answers that are a library's: task and answer."""
    everything = [(task, answer) for m in MODULES for task, known in m.RIGHT.items() for answer in known]
    return [(t, a) for t, a in everything if any("torch." in name for name in TAKEN.get(a.__name__, []))]


@pytest.mark.parametrize(("task", "answer"), a_librarys())
def test_answers_that_are_a_librarys_are_seen_when_they_run(task, answer, no_shape_checks):
    with Noticing() as noticing:
        assert checks.check(task, answer).passed
    # A layer is seen by the function that it calls.
    layers = {f"torch.nn.{layer}": f"{F_}{name}" for layer, name in LAYERS.items()}
    (taken,) = TAKEN[answer.__name__]
    assert from_calls(noticing.notes, [task]) == [
        Flag("library", f"When it ran: {sentence(layers.get(taken, taken), [task])}")
    ]


# Cells, one after the other, and what is noted of each.
RUN = [
    ("from transformer_lessons import checks\nreport = checks.check('causal_mask', lambda *_: 1)", []),
    ("help(checks.require)\nchecks.require?\nchecks.tasks()", []),
    ("import inspect, json, linecache\nx = inspect.getsource(json)\nopen('/dev/null')", []),
    ("checks.require??", ["read checks/__init__.py"]),
    ("linecache.clearcache()\nx = inspect.getsource(checks.require)", ["read checks/__init__.py"]),
    ("x = open(checks.__file__).read()", ["read checks/__init__.py"]),
    ("x = open(checks.__file__)  #" + " long" * 99, ["read checks/__init__.py"]),
    ("from pathlib import Path\nx = Path(checks.__file__).read_bytes()", ["read checks/__init__.py"]),
    ("import os\nos.chdir(os.path.dirname(checks.__file__))\nx = open('core.py')", ["read checks/core.py"]),
    (
        "from importlib import resources\nx = (resources.files(checks) / 'plain.py').read_text()",
        ["read checks/plain.py"],
    ),
    ("%pycat {checks.__file__}", ["read checks/__init__.py"]),
    ("try:\n    open('__pycache__/x.pyc')\nexcept OSError:\n    pass", ["read checks/__pycache__/x.pyc"]),
    ("import transformer_lessons.schedule", ["import transformer_lessons.schedule"]),
    (
        "import importlib\nx = importlib.import_module('transformer_lessons.losses')",
        ["import transformer_lessons.losses"],
    ),
    (
        "exec('from transformer_' + 'lessons import norms')",
        ["import transformer_lessons.norms"],
    ),
    (
        "def f(*_):\n    import transformer_lessons.encodings\nreport = checks.check('causal_mask', f)",
        ["import transformer_lessons.encodings"],
    ),
    (
        "linecache.clearcache()\nimport warnings\nwarnings.warn_explicit('x', UserWarning, checks.__file__, 5)",
        [],
    ),
    ("linecache.clearcache()\nchecks.task('no')", []),
    (
        "linecache.clearcache()\ntry:\n    checks.task('no')\n"
        "except ValueError:\n    get_ipython().showtraceback()",
        [],
    ),
]
WATCHING = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from exercises.autograder.flags import watch_imports_and_reads

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.compile.get_code_name = lambda raw, transformed, number: f"<cell {number}>"
notes, found = [], []
watch_imports_and_reads(notes, lambda file: file.startswith("<cell"))
output, sys.stdout, sys.stderr = sys.stdout, open("/dev/null", "w"), open("/dev/null", "w")
for cell in json.load(sys.stdin):
    shell.run_cell(cell)
    found.append(list(notes))
    del notes[:]
json.dump(found, output)
"""


@pytest.fixture(scope="module")
def noted():
    """Of each of these cells, what was noted."""
    cells = json.dumps([cell for cell, _ in RUN])
    command = [sys.executable, "-W", "ignore", "-c", WATCHING]
    done = subprocess.run(command, input=cells, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("number", "expected"), [(number, expected) for number, (_, expected) in enumerate(RUN)]
)
def test_what_a_cell_imports_and_reads_is_noted(noted, number, expected):
    assert [f"{note['what']} {note['name']}" for note in noted[number]] == expected
    assert len(from_calls(noted[number], [])) == len(expected)


def test_a_note_has_the_line_of_the_cell(noted):
    by_name = {note["name"]: note["line"] for notes in noted for note in notes}
    assert (
        by_name["transformer_lessons.losses"] == "x = importlib.import_module('transformer_lessons.losses')"
    )
    assert by_name["checks/plain.py"] == "x = (resources.files(checks) / 'plain.py').read_text()"


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


class Liar(dict):
    def keys(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "notes",
    [
        *(None, 3, "call", {}, (), b"", object()),
        *([[]], [None], [3], ["call"], [[1, 2, 3]], [object()]),
        *([{}], [{"what": "call"}], [note() | {"more": 1}], [Liar(note())]),
        *([note(what=3)], [note(name=None)], [note(line=[])], [note(name=["torch"])]),
        *([note(what="else")], [note(name="os.system")], [note(name="layer_norm")], [note(name="")]),
        *([note("import", "os")], [note("import", PACKAGE)], [note("import", f"{PACKAGE}.a b")]),
        *([note("import", f"{PACKAGE}.ü")], [note("import", f"{PACKAGE}.x\n")]),
        *([note("read", "<b>.py")], [note("read", "/etc/passwd")], [note("read", "a.py\n")]),
        *([note("read", "a" * 300 + ".py")], [note(line="x" * 201)]),
    ],
)
def test_what_is_no_note_is_left_out(notes):
    assert from_calls(notes, ["layer_norm"]) == []


def test_notes_are_bounded():
    many = [note("read", f"{number}.py", "x" * 200) for number in range(10**5)]
    assert len(from_calls(many, ["layer_norm"])) == 100
    assert len(from_calls([note()] * 10**5, ["layer_norm"])) == 1
    (flag,) = from_calls([note(line="\x1b[0m\ud800\n<b>")], ["layer_norm"])
    assert flag.line == "[0m? <b>"
    noticing = Noticing([note(name=str(number)) for number in range(100)])
    with noticing:
        F.layer_norm(torch.ones(3), (3,))
    assert len(noticing.notes) == 100
