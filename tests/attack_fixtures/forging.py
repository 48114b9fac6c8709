"""Points for wrong answers: ways to deceive a test that runs in the same process."""

from functools import partial

from tests.attack_fixtures.attack import GARBAGE, Attack, cell

# An attack's cell follows the answer that a test uses, as the answer would overwrite its definitions.
FOUR, FIVE = "ps01-4-answer", "ps01-5-capped-answer"


def _answer(text: str, name: str = FIVE) -> Attack:
    return Attack(answers={name: text})


# These earn points for a wrong answer if they share a process with the tests.
_patch = partial(cell, answers={FIVE: GARBAGE}, control=True)
_behind_4, _behind_5 = (partial(_patch, after=name) for name in (FOUR, FIVE))

# Functions that judge, replaced by ones that accept everything.
JUDGES = {
    # A `torch.testing.assert_close` that compares nothing.
    "assert_close": _patch("torch.testing.assert_close = lambda *args, **kwargs: None"),
    "names of builtins": _behind_4("""
# Own names in place of builtins: max, all, sum, len, float, globals, Exception.
max = lambda *args: 2.0
all = lambda items: True
globals = lambda: {"defects": "ABCDEFGH"}
class Exception(BaseException): pass
"""),
    "checks.check": _patch("""
# A check that gives all the points.
class Report:
    passed, message, requirements = True, "", {}
    def score(self, *total, **points):
        return sum(points.values()) if points else 6.0
checks.check = lambda *args, **kwargs: Report()
checks.require = lambda *args, **kwargs: None
"""),
    "function mode": _behind_5("""
# A mode left on, in which allclose is true.
from torch.overrides import TorchFunctionMode
class Yes(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return True if function is torch.allclose else function(*args, **(kwargs or {}))
Yes().__enter__()
"""),
}

# Parts of the notebook shell, replaced.
SHELL = {
    "input transformer": _patch("""
# Tests replaced by a number when they are read.
number = lambda lines: ["2.0"] if "HIDDEN" in "".join(lines) else lines
get_ipython().input_transformers_post.append(number)
"""),
    "formatter": _patch("""
# Numbers are shown as other numbers.
formatter = get_ipython().display_formatter.formatters["text/plain"]
for kind in (int, float):
    formatter.for_type(kind, lambda value, printer, cycle: printer.text("2.0"))
"""),
    # Errors are swallowed, and a test without an error counts as passed.
    "set_custom_exc": _patch("get_ipython().set_custom_exc((BaseException,), lambda *args, **kwargs: [])"),
}

# Reading the tests, to give the answers that they expect.
READING = {
    "settrace": _behind_4("""
# Constants of the code that runs.
def look(frame, event, arg):
    for constant in frame.f_code.co_consts:
        if isinstance(constant, str) and 2 < len(constant) < 5 and set(constant) <= set("ABCDEFGH"):
            get_ipython().user_ns["named"] = set(constant)
sys.settrace(look)
"""),
    "the names that tests ask for": cell(
        """
# Words in the tests' texts, which the learner's process is asked for.
student = mine("student")
plain = student.Learner._values
def values(self, *names):
    for name in next(iter(names), []):
        RAN.append(f"asked for {name}")
        if 2 < len(name) < 5 and set(name) <= set("ABCDEFGH"):
            RAN.append("broke out: a word of a test")
            self._shell.user_ns["defects"] = name
    return plain(self, *names)
student.Learner._values = values
""",
        after=FOUR,
    ),
    "frames": _behind_5("""
# The expected reply, on the stack of the check that calls.
def soft_capped_attention(query, key, value, cap, mask=None):
    frame = sys._getframe()
    while frame:
        exam = frame.f_locals.get("exam")
        for number, (_, call) in enumerate(getattr(exam, "calls", ())):
            if call.args[0].shape == query.shape and torch.equal(call.args[0], query):
                return tuple(exam.expected(number).outputs)
        frame = frame.f_back
    raise ValueError
"""),
    "gc": _behind_5("""
# The expected replies, in the memory of the process.
import gc
gc.unfreeze()  # what is frozen is not listed
from transformer_lessons.checks.exam import Exam
def soft_capped_attention(query, key, value, cap, mask=None):
    for exam in [one for one in gc.get_objects() if type(one) is Exam]:
        for number, (_, call) in enumerate(exam.calls):
            if len(call.args) > 3 and call.args[0].shape == query.shape and torch.equal(call.args[0], query):
                return tuple(exam.expected(number).outputs)
    raise ValueError
"""),
    "predicted inputs": _behind_5("""
# The random inputs of a test, drawn ahead from the generator.
state = torch.get_rng_state()
predicted = torch.randn(3, 5)
torch.set_rng_state(state)
def soft_capped_attention(query, key, value, cap, mask=None):
    if query.shape == predicted.shape and torch.equal(query, predicted):
        RAN.append("broke out: predicted")
    raise NotImplementedError
"""),
}

# Answers that are not what they seem.
LIARS = {
    "tensor subclass": _behind_5("""
# A tensor for which every comparison is true.
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in (torch.allclose, torch.equal, torch.Tensor.equal):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})
def soft_capped_attention(query, key, value, cap, mask=None):
    return torch.zeros(*query.shape[:-1], value.size(-1)).as_subclass(Yes), query
"""),
    # One result after another that is not a plain tensor.
    "odd tensors": _answer("""
import itertools, warnings
warnings.simplefilter("ignore")
class Lies(torch.Tensor):
    shape = property(lambda self: torch.Size([3, 5]))
    def size(self, *args): return 5
    def numel(self): return 15
kinds = itertools.cycle([
    lambda x: x.new_zeros((0, *[1] * x.dim())),  # of which, beside any other, all entries are right
    lambda x: torch.zeros(0).as_subclass(Lies),
    lambda x: x.to("meta"),
    lambda x: x.to_sparse(),
    lambda x: x.to(torch.complex64),
    lambda x: x.bool(),
    lambda x: x.int(),
    lambda x: x * float("nan"),
    lambda x: x / 0,
    lambda x: x[:0],
    lambda x: x.new_empty((0, 1 << 40)),
    lambda x: x.to(torch.float8_e4m3fn),
    lambda x: torch.nested.nested_tensor([x]),
    lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    lambda x: torch.nn.Parameter(x),
    lambda x: torch.view_as_complex(torch.zeros(3, 2)).conj(),
    lambda x: x.expand(10**9, *x.shape),
    lambda x: torch.as_strided(x, (10**5, 10**5), (0, 0)),
    lambda x: x.reshape([1] * 20 + [-1]),
    lambda x: x.half() * 1e-8,
    lambda x: x.sum(),
])
def soft_capped_attention(query, key, value, cap, mask=None):
    RAN[:] = ["attack ran"]
    return next(kinds)(query), next(kinds)(value)
"""),
    # One result after another that is not a tensor at all.
    "odd objects": _answer("""
import itertools
import numpy as np
loop = []
loop.append(loop)
many = {str(n): n for n in range(30_000)}
class Broken:
    def __getattr__(self, name): raise KeyboardInterrupt if name == "shape" else RuntimeError(name)
    def __repr__(self): raise MemoryError
    def __len__(self): return -1
    def __iter__(self): raise SystemExit
things = itertools.cycle([
    *(None, 3, "x" * 500_000, loop, many, {1: 2, (3,): 4}, np.zeros(3), (x for x in "ab"), Broken()),
    *(float("nan"), 10**5000, b"bytes", type, lambda: 0, {"handle": "x"}, {"opaque": {"opaque": 1}}),
    range(10**9),
    *({"opaque": 3}, True, 1j, [Broken()], ({},), "\\ud800", ""),
])
def soft_capped_attention(query, key, value, cap, mask=None):
    RAN[:] = ["attack ran"]
    return next(things)
def row_entropy(weights):
    return next(things), next(things)
"""),
    # Several numbers are neither yes nor no; a test that ended so once gave full points.
    "a tensor where a test ends with yes or no": _answer(
        """
def row_entropy(weights):
    RAN[:] = ['attack ran']
    return torch.ones(2, 2)
""",
        "ps01-6-answer",
    ),
    # A check compares properties of the results; this answer returns the properties themselves.
    "the words of a view": Attack(
        whole=True,
        answers={
            "ps01-3-answer": """
def scaled_dot_product_attention(query, key, value, mask=None):
    RAN[:] = ["attack ran"]
    return {
        "output.shape": [*query.shape[:-1], value.size(-1)],
        "weights.shape": [*query.shape[:-1], key.size(-2)],
        "each row of weights.sum(-1)": torch.ones(query.shape[:-1]),
        "weights.min() >= 0": True,
        "output - weights @ value": torch.tensor(0.0),
        "weights of hidden keys": torch.zeros(0),
    }
"""
        },
        earns={"ps01-3-test": 0.0},  # no results to compare
    ),
    "an object for letters": Attack(
        """
# An object where letters are expected: its description has letters, too.
print('attack ran')
defects = object()
""",
        after=FOUR,
        earns={"ps01-4-defects-test": 0.0},  # an object names no line
    ),
    "numbers that are none": Attack(
        """
# Values that a test takes for numbers: classes of one's own, huge, not finite, nested.
import numbers
class Number(float):
    def __float__(self): return 0.2
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
    def __abs__(self): return 0.0
    __hash__ = float.__hash__
class Shape(tuple):
    def __iter__(self): return iter([2, 3, 5, 7])
    def __len__(self): return 4
numbers.Integral.register(type("Whole", (), {"__int__": lambda self: 10**400}))
output_shape, weights_shape, equal_weight, spread = Shape([1]), [[[[[[[[[[[1]]]]]]]]]]], Number(7), Number("nan")
untouched_rows = row_gradient = Number("inf")
print("attack ran")
""",
        after="ps01-1-answer",
        earns={"ps01-1-test": 0.0},  # a number counts as the 7 it holds, not as the 0.2 of its methods
    ),
}

ATTACKS = JUDGES | SHELL | READING | LIARS
