"""Cells run as in a notebook, and tests as an instructor expects, in separate processes."""

import json
import threading
import time

import pytest

from exercises.autograder.box.confine import Limits
from exercises.autograder.running import notebook
from exercises.autograder.running.runner import Cell
from exercises.autograder.running.worker import Worker, WorkerError
from transformer_lessons import checks

pytestmark = pytest.mark.isolated

SECONDS = 2.0
GONE = "the other process has ended, by an exit, a crash, or for lack of memory"
PATIENT, IMPATIENT = Limits(cell_seconds=20, seconds=100), Limits(cell_seconds=SECONDS, seconds=60)


def worker() -> Worker:
    """The worker that does all grading in this process."""
    return notebook.worker(threading.get_ident())


def run(*cells: str | tuple, limits: Limits = PATIENT) -> list[dict]:
    """Run cells, each a source, (role, source) or (role, source, points); return their outcomes."""
    made = []
    for number, cell in enumerate(cells):
        role, source, *points = ("learner", cell) if isinstance(cell, str) else cell
        made.append(Cell(f"cell-{number}", role, source, *points))
    *outcomes, _ = worker().grade(made, limits)
    assert [outcome["cell"] for outcome in outcomes] == list(range(len(cells)))
    return [outcome | {"outputs": json.loads(outcome["outputs"])} for outcome in outcomes]


def text(outcome: dict) -> str:
    """All text that a cell showed."""
    return "".join(
        output.get("text") or output.get("evalue") or output.get("data", {}).get("text/plain", "")
        for output in outcome["outputs"]
    )


CELLS = {
    "printed and shown": ("print('a'); 3", "a\n3"),
    "assigned": ("x = 5", ""),
    "await": ("import asyncio; await asyncio.sleep(0.001); 'slept'", "'slept'"),
    "a line magic": ("%time 2", "2"),
    "a command": ("word = 'filled'\n!echo {word} $word", "filled filled\n"),
    "display": ("display('a', 'b')", "'a''b'"),
    "the shell": ("get_ipython() is not None", "True"),
    "an error": ("1 / 0", "division by zero"),
    "no Python": ("def f(:", "invalid syntax"),
    "a keyboard": ("input()", "there is no keyboard input"),
    "a module of one's own": ("open('own.py', 'w').write('x = 7')\nimport own; own.x", "7"),
    "a warning": ("import warnings; warnings.warn('careful')", "careful"),
    "the end": ("exit()", ""),
    "a source": ("def f(): return 7\nimport inspect; inspect.getsource(f)", "'def f(): return 7\\n'"),
    "clearing": ("from IPython.display import clear_output\nprint(1); clear_output(); print(2)", "2\n"),
    "a threaded print": ("import threading\nt = threading.Timer(0, print, 't'); t.start(); t.join()", "t\n"),
    "several processes": ("import multiprocessing as mp\nmp.Pool(2).map(abs, [1, -2])", "[1, 2]"),
    "data of several": (
        "from torch.utils.data import DataLoader\n[batch.tolist() for batch in DataLoader("
        "[3, 5, 7], 2, num_workers=2, timeout=9, persistent_workers=True, prefetch_factor=4)]",
        "[[3, 5], [7]]",
    ),
    "compiled": ("import torch; torch.compile(lambda x: x + 1)(torch.ones(2)).tolist()", "[2.0, 2.0]"),
}


def test_cells_run_as_in_a_notebook():
    outcomes = run(*(source for source, _ in CELLS.values()))
    for (name, (_, expected)), outcome in zip(CELLS.items(), outcomes, strict=True):
        assert expected in text(outcome), name
        assert bool(expected) == bool(outcome["outputs"]) or name == "the end", name


def test_figures_are_drawn_inline():
    drawing = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); print('drawn')"
    figure, handle = run(drawing, "plt.get_fignums()")
    assert [output["output_type"] for output in figure["outputs"]] == ["stream", "display_data"]
    assert figure["outputs"][1]["data"]["image/png"].startswith("iVBOR")
    assert text(handle) == "[]"


def test_excessive_output_is_cut():
    flood, many, picture, after = run(
        "print('x' * 10**7)\nprint('more')",
        "for i in range(10_000): display(i)",
        "from IPython.display import Image\ndisplay({'image/png': 'A' * 10**6}, raw=True)",
        "'still here'",
    )
    assert len(json.dumps(flood["outputs"])) < 25_000
    assert "[cut: too much was printed]" in text(flood)
    assert len(many["outputs"]) == 200
    assert text(picture) == "[cut: too large an output]"
    assert text(after) == "'still here'"


def test_a_loop_is_ended_and_what_was_defined_stays():
    began = time.monotonic()
    outcomes = run(
        "def answer(): return 42",
        "late = 1\nwhile True: pass",
        "import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass",
        "import os; os._exit(1)",
        "import time; lambda: 0; torch = None",
        ("test", "answer()", 42),
        limits=IMPATIENT,
    )
    assert text(outcomes[1]) == "this took longer than 2.0 s"
    assert "the other process took too long to answer" in text(outcomes[2])
    assert text(outcomes[3]) == f"This cell was ended: {GONE}."
    assert outcomes[5]["result"]["earned"] == 42
    # Two cells took too long, one of them beyond the grace period; the other runs again twice, for 1 s.
    assert time.monotonic() - began < 2 * (SECONDS + 2) + 8


def test_learners_names_do_not_shadow_the_tests_own():
    *_, honest = run(
        "float = bool = len = max = abs = all = any = str = lambda *a: 10**6\nsum = isinstance = print = 3",
        "class checks: check = require = staticmethod(lambda *a, **k: None)\nmath = torch = near = helper = None",
        "globals()['__builtins__'] = {}\n__name__ = 'nobody'\nanswer = 4",
        ("instructor", "import math\n\n\ndef helper(x):\n    return math.sqrt(x)"),
        "def helper(x): return 10**6\nhelper_is_mine = True",
        ("test", "def near(x): return abs(float(x) - 2) < 1e-9\n3 * near(helper(answer)) * (answer == 4)", 3),
    )
    assert (honest["result"]["earned"], honest["result"]["status"]) == (3.0, "done")


GRADIENTS = """
import torch
from torch.autograd import gradcheck

torch.manual_seed(1)
x, w = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5), (5, 2)))
assert gradcheck(product, (x, w))
out, detached = product(x, w), loose(x)
assert out.requires_grad and not detached.requires_grad
(out ** 2).sum().backward()
assert torch.allclose(w.grad, (2 * x.T @ (x @ w)).detach())

module = Module(5, 2)
module.double()
assert gradcheck(module, (x,))
assert sorted(module.state_dict()) == ["bias", "weight"]
assert module.eval().mode(0) == "eval" and module.train().mode(0) == "train"
assert first(module, 3) == 2
pair = both(x)
assert type(pair) is tuple and type(pair[1]) is list
try:
    Module(-1, 2)
    wrong(1)
except ValueError as error:
    assert str(error) == "a: expected more"
"""
# What a learner defines, and a test that then gives its point.
SEEN = {
    "plain values, functions and nothing else": (
        "import numpy as np, torch, fractions\n"
        "a = 3; b = np.float32(0.5); c = torch.Size([2, 3]); d = np.arange(3); e = {'x': [1, (2, None)]}\n"
        "f = {'B', 'A'}; g = range(3); h = fractions.Fraction(1, 4); i = np.bool_(True); j = 'text'\n"
        "class S(str):\n    def upper(self): return 'forged'\nk = S('low')\n"
        "m = torch.ones(2, requires_grad=True)\n"
        "def twice(x): return 2 * x\nclass C: pass\nn = C()",
        "seen = [a, b, c, e, f, g, h, i, j, k.upper(), d.tolist(), m.tolist(), m.requires_grad]\n"
        "assert seen == [3, 0.5, [2, 3], {'x': [1, [2, None]]}, ['A', 'B'], [0, 1, 2], 0.25, True, 'text',\n"
        "                'LOW', [0, 1, 2], [1.0, 1.0], False], seen\n"
        "assert twice(21) == 42 and 'nothing' not in globals() and '_twice' not in globals()\n"
        "assert type(n).__name__ == 'Name' and globals().get('undefined_name') is None",
    ),
    "values that cannot be sent cost no points elsewhere": (
        "import torch\nx = torch.zeros(3)\nanswer = 4\nnested = torch.nested.nested_tensor([x, x])\n"
        "quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)\n"
        "meta, sparse, small = x.to('meta'), x.to_sparse(), x.to(torch.float8_e4m3fn)\n"
        "listed, unsigned = [meta], x.numpy().astype('uint16')\n"
        "huge, long, longer, wide = 2**70, list(range(9_000)), list(range(9_500)), torch.zeros(10**6)\n"
        "keys, endless, deep = {'k' * 3_000_000: 1}, range(10**20), [[0] * 9_000] * 9_000\n"
        "globals().update({f'name{n}': x for n in range(2_000)})\ndef late(): return 5",
        "odd = [nested, quantized, meta, sparse, small, listed, unsigned, huge, longer, wide]\n"
        "odd += [keys, endless, deep]\n"
        "assert answer == 4 and late() == 5 and len(long) == 9_000\n"
        "assert {type(one).__name__ for one in odd} == {'Name'}",
    ),
    "results in other forms than a list or a float": (
        "import decimal, fractions, itertools\nhalf = decimal.Decimal('0.5')\n"
        "def parts(): return {3}, (x for x in 'ab'), range(2), half, [fractions.Fraction(1, 4), {}.keys()]\n"
        "def endless(): return itertools.count()",
        "assert (half, parts()) == (0.5, ([3], ['a', 'b'], [0, 1], 0.5, [0.25, []]))\n"
        "try: endless()\n"
        "except Exception as error: assert 'too large' in str(error)\n"
        "else: assert False",
    ),
    "changes in place": (
        "def changes(x, numbers, inner):\n    x += 1; numbers.append(9); inner['a'][0] = 5; return x\n"
        "def leaves(x, numbers, inner): return x + 1",
        "import torch\nx, numbers, inner = torch.zeros(2), [1, 2], {'a': [1]}\n"
        "leaves(x, numbers, inner=(inner,))\n"
        "assert (x.tolist(), numbers, inner) == ([0, 0], [1, 2], {'a': [1]})\n"
        "changes(x, numbers, inner)\nassert (x.tolist(), numbers, inner) == ([1, 1], [1, 2, 9], {'a': [5]})",
    ),
    "gradients of arguments and parameters": (
        "import torch\ndef product(x, w): return x @ w\ndef loose(x): return x.detach()\n"
        "class Module(torch.nn.Linear):\n    def __init__(self, a, b):\n"
        "        if a < 0: raise ValueError('a: expected more')\n        super().__init__(a, b)\n"
        "    def mode(self, _): return 'train' if self.training else 'eval'\n"
        "def first(module, n): return module.out_features\ndef both(x): return x, [x]",
        GRADIENTS,
    ),
}


@pytest.mark.parametrize(("learner", "test"), SEEN.values(), ids=SEEN)
def test_what_a_test_sees_of_what_a_learner_defines(learner, test):
    _, tested = run(learner, ("test", test, 1))
    assert (tested["result"]["earned"], tested["result"]["messages"]) == (1, [])


ENDS = {
    "all": ("pass", "done", 4, ""),
    "a part": ("1.5", "done", 1.5, ""),
    "true": ("2 > 1", "done", 4, ""),
    "false": ("1 > 2", "done", 0, ""),
    "a tensor": ("import torch\ntorch.tensor(2)", "done", 2, ""),
    "an assertion": ("assert 1 > 2, 'one is less'", "error", 0, "AssertionError: one is less"),
    "another error": ("{}['secret 4711']", "error", 0, "The test stopped with KeyError."),
    "a name that is missing": ("undefined", "error", 0, "NameError: name 'undefined' is not defined"),
    "the learner's error": ("fails('odd')", "error", 0, "LearnerError: OddError: odd"),
    "too many points": ("5", "error", 0, "The test stopped with ValueError."),
    "fewer than none": ("-1", "error", 0, "The test stopped with ValueError."),
    "no number": ("float('nan')", "error", 0, "The test stopped with ValueError."),
    "warnings": ("import sys, warnings\nwarnings.warn('w'); print('e', file=sys.stderr)", "done", 4, ""),
    "a loop of its own": ("while True: pass", "timeout", 0, "The test took too long."),
    "an exit": ("raise SystemExit", "error", 0, "The test stopped with SystemExit."),
    "the learner's end": ("ends()", "missing", 0, f"Your code ended the test: {GONE}."),
    "an attribute's value": ("thing().right", "error", 0, "The test stopped with ValueError."),
    "an attribute as a condition": ("bool(thing().right)", "error", 0, "The test stopped with TypeError."),
    "the learner's loop": ("loops()", "error", 0, "LearnerError: TimeLimitError: this took too long"),
    "an error that gives all points": ("try: fails(1)\nexcept Exception: pass", "done", 4, ""),
}
# What a test calls and then catches whatever is raised, and what the student is told.
CAUGHT = {
    "errors": ("fails(1) or fails(2)", "fails: OddError: 1"),
    "a class's error": ("Odd()", "Odd: ValueError: odd"),
    "what cannot be sent": ("opaque()", "opaque: no test can use what this returns, an object"),
    "a missing name": ("undefined()", "NameError: name 'undefined' is not defined"),
    "a loop": ("loops()", "loops: TimeLimitError: this took too long"),
    "an end": ("ends()", f"Your code ended the test: {GONE}."),
    "nothing": ("float(right())", ""),
}
for name, (call, said) in CAUGHT.items():
    ENDS[f"{name}, caught"] = (f"try: {call}\nexcept Exception: pass\n1", "done", 1, said)
# What a person is told.
LOST = {"the learner's end": GONE, "an end, caught": GONE, "a loop, caught": CAUGHT["a loop"][1]}


def test_how_tests_end():
    learner = (
        "import os\nclass OddError(Exception): pass\ndef fails(what): raise OddError(what)\n"
        "def ends(): os._exit(0)\ndef loops():\n    while True: pass\ndef right(): return 4\n"
        "class thing: right = False\ndef opaque(): return [1, object()]\n"
        "class Odd:\n    def __init__(self): raise ValueError('odd')"
    )
    tests = (("test", source, 4) for source, *_ in ENDS.values())
    _, *outcomes = run(learner, *tests, limits=IMPATIENT)
    for (name, (_, *expected, message)), outcome in zip(ENDS.items(), outcomes, strict=True):
        result = outcome["result"]
        assert [result["status"], result["earned"]] == expected, name
        assert (result["messages"], outcome["lost"]) == ([message] * bool(message), LOST.get(name, "")), name
        assert all(output.get("name") != "stderr" for output in outcome["outputs"]), name


def test_what_the_checks_said_is_kept_by_requirement():
    *_, test = run(
        "def padding_mask(ids, pad_id): return ids.ne(0)[:, None, None]",
        ("instructor", "from transformer_lessons import checks"),
        ("test", 'checks.check("padding_mask", padding_mask, seed=7).score(values=1, pad_id=0.5)', 1.5),
    )
    local = checks.check("padding_mask", lambda ids, pad_id: ids.ne(0)[:, None, None], seed=7)
    assert test["result"]["messages"] == [local.message]
    assert [(part["requirement"], part["worth"], part["met"]) for part in test["result"]["parts"]] == [
        ("values", 1, local.requirements["values"]),
        ("pad_id", 0.5, local.requirements["pad_id"]),
    ]
    assert local.requirements["values"] != local.requirements["pad_id"]
    assert test["result"]["parts"][0]["sentence"] == checks.task("padding_mask").requirements[0].text


def test_random_numbers_of_the_tests_cannot_be_known():
    seen = set()
    for _ in range(2):
        imports = "import torch, random, numpy as np\n"
        drawn = "torch.initial_seed(), random.random(), np.random.rand()"
        learner, test = run(imports + drawn, ("test", f"{imports}print({drawn})"))
        numbers = {*text(learner).strip("()").split(", "), *text(test).split()}
        assert len(numbers) == 6
        seen |= set(text(test).split())
    assert len(seen) == 6


def test_tests_process_that_ends_gives_no_mark():
    tests = ("answer()", "import os; os._exit(0)", "answer()")
    cells = [Cell("", "learner", "def answer(): return 1"), *(Cell(test, "test", test, 1) for test in tests)]
    *outcomes, took = worker().grade(cells, PATIENT)
    assert [outcome["cell"] for outcome in outcomes] == [0, 1]
    assert took["seconds"] < 20, "the end of the process was not noticed at once"
    *outcomes, _ = worker().grade(cells[:2], PATIENT)
    assert outcomes[1]["result"]["earned"] == 1


def test_rerunning_cells_takes_none_of_a_tests_time():
    slow = ["import os, time; time.sleep(0.45)"] * 6
    tests = ("def ends(): os._exit(0)", ("test", "ends()", 1), ("test", "1", 1))
    *_, ended, after = run(*slow, *tests, limits=Limits(cell_seconds=0.5, seconds=60))
    assert [one["result"]["status"] for one in (ended, after)] == ["missing", "done"]


def test_a_submissions_time_is_limited_too():
    loop = [Cell("", "learner", "while True: pass")] * 4
    limits = Limits(cell_seconds=5, seconds=3)
    *outcomes, took = worker().grade([*loop, Cell("t", "test", "1", 1)], limits)
    assert took["seconds"] < 3 + 2
    assert [bool(outcome.get("lost")) for outcome in outcomes] == [False, True, True, True, True]
    assert outcomes[-1]["result"]["status"] == "timeout"


def test_worker_errors_are_reported_and_a_killed_worker_is_restarted(monkeypatch):
    working, cell = worker(), [Cell("", "learner", "1")]
    with monkeypatch.context() as patch:
        patch.setattr(working._folder, "name", "/nowhere")
        with pytest.raises(WorkerError, match=r"ConfinementError: .*No such file"):
            list(working.grade(cell, PATIENT))
    assert len(list(working.grade(cell, PATIENT))) == 2
    working._process.kill()
    working._process.wait()
    with monkeypatch.context() as patch:
        patch.setattr(working, "_start", lambda: None)  # it seemed alive when it was checked
        with pytest.raises(WorkerError, match="Broken pipe"):
            list(working.grade(cell, PATIENT))
    assert len(list(working.grade(cell, PATIENT))) == 2
