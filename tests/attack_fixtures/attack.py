"""The `Attack` class, and the honest submission of ps01 that attacks are put into."""

from dataclasses import dataclass, field
from functools import partial


@dataclass(frozen=True)
class Attack:
    """Code that tries something, put into an honest submission.

    Attributes:
        code: the source of an extra cell, whose first line says what the attack tries.
        after: the id of the cell that the extra cell follows.
        answers: replaced answer cells, by grade id.
        earns: the points of the honest code, by test cell, where they differ from `EARNS`.
        at_most: the attack breaks its own process, so its honest code may earn less, but never more.
        shows: a regular expression that is found in the results if the attack was executed.
        alone: whether it has a submission of its own. The others of a theme share one, cell after cell.
        whole: whether the submission includes task 3; without it, grading takes half the time.
        tests: further test cells, by id, worth one point each.
        control: whether it succeeds in one process with the tests: it gets more points or shows "broke out".
    """

    code: str = ""
    after: str = "ps01-imports"
    answers: dict[str, str] = field(default_factory=dict)
    earns: dict[str, float] = field(default_factory=dict)
    at_most: bool = False
    shows: str = "attack ran"
    alone: bool = True
    whole: bool = False
    tests: dict[str, str] = field(default_factory=dict)
    control: bool = False


def cell(code: str, **more) -> Attack:
    """An attack whose cell prints that it ran."""
    return Attack('print("attack ran")\n' + code, **more)


def forged(kind: str, body: str, **more) -> Attack:
    """Replace all replies of a kind by what this function body returns; if that is None, nothing is sent.

    In the body, `v` is the honest reply's value, `n` its number, and `c` the socket.
    """
    lines = "\n    ".join(body.strip().splitlines())
    return Attack(
        f"""
def change(c, reply):
    n, v = reply["number"], reply["value"]
    if not ({KINDS[kind]}): return reply
    RAN[:] = ["attack ran"]
    {lines}
forge(change)
""",
        **more,
    )


shared = partial(cell, alone=False)
escaping = partial(shared, control=True)


STUB = 'raise NotImplementedError("your answer goes here")'
# Tasks 1 to 3 are solved, as in the master; half the defects of task 4 are found, half of task 5 is solved;
# task 6 is not begun.
ANSWERS = {
    "ps01-1-answer": """untouched_rows, row_gradient = 9, 12
output_shape, weights_shape = (2, 3, 5, 11), (2, 3, 5, 7)
equal_weight, spread = 1 / 5, 8""",
    "ps01-4-answer": 'defects = "AB"',
    "ps01-5-capped-answer": f"def soft_capped_attention(query, key, value, cap, mask=None):\n    {STUB}",
    "ps01-6-answer": f"def row_entropy(weights):\n    {STUB}",
}
# Tests as in other assignments, which call the learner's functions directly; each is worth a point.
_CALL = """x = torch.randn(3, 5)
want = ((x @ x.T / 5**0.5 / 2).tanh() * 2).softmax(-1) @ x
got = soft_capped_attention(x, x, x, 2.0)[0]
"""
EXTRA_TESTS = {
    "extra-close-test": _CALL + "torch.testing.assert_close(got, want)",
    "extra-allclose-test": _CALL + "assert torch.allclose(got, want)",
    "extra-equal-test": _CALL + "assert ((got - want).abs() < 1e-3).all()",
    "extra-yes-test": "row_entropy(torch.eye(3))[0] == 7",
}
EARNS = {
    "ps01-1-test": 4.0,
    "ps01-2-test": 5.0,
    "ps01-3-test": 3.0,
    "ps01-3-back-test": 3.0,
    "ps01-4-defects-test": 1.0,
    "ps01-5-capped-test": 0.0,
    "ps01-5-largest-test": 1.0,
    "ps01-6-test": 0.0,
    **dict.fromkeys(EXTRA_TESTS, 0.0),
}

# The first cell of every attack, which knows the location of everything; the test fills in PLACES.
PRELUDE = '''
import ctypes, os, signal, subprocess, sys, threading, time
import transformer_lessons
RAN = []
# The names of the folders that Python and the course's package lie in, which may be seen.
ways = {x for p in (sys.prefix, sys.base_prefix, transformer_lessons.__file__) for x in p.split("/")}

def tried(what, attempt):
    """Say whether something worked."""
    try:
        found = attempt()
    except BaseException as error:
        print(f"{what}: {type(error).__name__} {error}"[:200])
    else:
        print(f"broke out: {what}: {found!r}"[:2000])

def called(name, *arguments):
    """Call the C library."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    result = getattr(library, name)(*arguments)
    if result in (-1, 2**64 - 1):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def syscall(name, *arguments):
    """Call the kernel."""
    from exercises.autograder.box.linux import MACHINE, NUMBERS
    return called("syscall", NUMBERS[MACHINE][name], *arguments)

def mine(name):
    """A module of the autograder, as it lies in the learner's process."""
    __import__("exercises.autograder.running." + name)
    return sys.modules["exercises.autograder.running." + name]

def line():
    """The socket to the tests."""
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_name == "serve":
            return frame.f_locals["connection"]
        frame = frame.f_back

def forge(change):
    """From now on, `change` sees every reply before it is sent; what it sends itself, it returns None for."""
    remote, plain = mine("remote"), mine("wire").send
    def send(connection, reply, deadline):
        changed = change(connection, reply)
        if changed is not None:
            plain(connection, changed, deadline)
    remote.send = send

def raw(connection, header, data=b"", claimed=None):
    """A frame of one's own making."""
    import json, struct
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    connection.sendall(struct.pack("<QQ", len(text), len(data) if claimed is None else claimed) + text + data)

def fields(**values):
    return {"dict": values}

def answer(number, value=None, **other):
    """A reply of one's own making."""
    whole = dict(kind="Tensor", error=None, attached=[], gradients=fields(), parameters=fields(), mutated=[],
                 memory=fields()) | other
    return fields(number=number, value=fields(value=value, **whole))
'''
LAST = "print(*RAN)"
# Python expressions: whether a reply `v` is of this kind.
KINDS = {
    "cell": "type(v) is str",
    "values": "type(v) is dict and 'kind' not in v and 'reply' not in v",
    "check": "type(v) is dict and 'kind' in v",
    "apply": "type(v) is dict and v.keys() == {'reply', 'after'}",
}
# A wrong answer that raises unless it has the test's own input, as a check's search for the mistake takes long.
GARBAGE = """
def soft_capped_attention(query, key, value, cap, mask=None):
    if query.shape != (3, 5):
        raise NotImplementedError
    return torch.zeros(3, 5), torch.zeros(3, 3)
"""


def embedding(body: str, before: str = "") -> str:
    """An answer to task 2 whose `forward(ids)` has this body."""
    lines = "\n        ".join(body.strip().splitlines())
    return f"""{before}
class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model))
    def forward(self, ids):
        {lines}
"""
