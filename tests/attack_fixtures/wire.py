"""Lies on the socket: replies that no honest process sends, before, instead of and beside the honest ones."""

from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS"]

LAST = "ps01-6-answer"


# Python that says whether a reply, `v`, is of a kind.
KINDS = {
    "cell": "type(v) is str",
    "values": "type(v) is dict and 'kind' not in v and 'reply' not in v",
    "check": "type(v) is dict and 'kind' in v",
    "apply": "type(v) is dict and v.keys() == {'reply', 'after'}",
}


def _forged(name: str, tries: str, kind: str, body: str, **more) -> Attack:
    """Replies of a kind are replaced; `v` is the honest one's value, `n` its number, `c` the socket."""
    lines = "\n    ".join(body.strip().splitlines())
    code = f"""
def change(c, reply):
    n, v = reply["number"], reply["value"]
    if not ({KINDS[kind]}): return reply
    RAN[:] = ["attack ran"]
    {lines}
forge(change)
"""
    return Attack(name, tries, code, **{"after": LAST} | more)


# In the cells behind, "attack ran" would be lost with the outputs; so the change is made only once.
ONCE = """
if 'done' in globals(): return reply
globals()['done'] = True
"""
# What the test's fate shows where the process that would say it has been replaced.
_ENDED = "(Your code ended the test|This cell was ended)"
RAN = f"attack ran|{_ENDED}: (reply|frame|header|tensor|value|the other process)"

OUTPUTS = (
    _forged(
        "outputs that are too long",
        "a cell's outputs of 700,000 characters",
        "cell",
        ONCE + "raw(c, fields(number=n, value='[\"' + 'x' * 700_000 + '\"]'))",
        after="ps01-imports",
        shows="This cell was ended: header: no value",
    ),
    _forged(
        "outputs of no sort",
        "outputs that are no notebook's",
        "cell",
        ONCE
        + """
import json
points = {'output_type': 'execute_result', 'data': {'text/plain': '6.0'}, 'metadata': {}}
odd = [1, None, {}, {'output_type': 'x'}, points, {'output_type': 'stream', 'name': 3, 'text': {}}]
raw(c, fields(number=n, value=json.dumps(odd)))
""",
        after="ps01-imports",
    ),
    _forged(
        "nonsense, for a cell",
        "bytes that are no frame",
        "cell",
        ONCE + "c.sendall(os.urandom(64))",
        after="ps01-imports",
        shows="This cell was ended",
    ),
)

FRAMES = (
    *(
        _forged(name, tries, "check", f"raw(c, {header})", after="ps01-5-capped-answer", shows=RAN)
        for name, tries, header in (
            ("the number before", "the reply to another question", "answer(n - 1, True)"),
            (
                "other fields",
                "a reply with a field `passed`",
                "fields(number=n, value=fields(passed=True, value=1))",
            ),
            (
                "lone surrogates",
                "text that is no text",
                "answer(n, '\\ud800', kind='\\udfff', error=fields(type='\\ud800', message='\\udfff', line=''))",
            ),
            ("kinds that are none", "a tuple that is none", "answer(n, 5, kind='tuple')"),
            (
                "fields that do not fit",
                "more gradients than outputs, and bytes that are lists",
                "answer(n, [True], kind='tuple', attached=[True] * 900, memory=fields(saved=[1], shape=3))",
            ),
        )
    ),
    _forged(
        "no reply",
        "no answer at all",
        "check",
        "return None",
        after="ps01-5-capped-answer",
        shows="took too long",
    ),
    _forged(
        "two replies",
        "every reply twice",
        "check",
        """
plain = mine('wire').send
plain(c, reply, float('inf'))
return reply
""",
        after="ps01-5-capped-answer",
        shows=RAN,
        at_most=True,
        why="the second is taken for the answer to the next question",
    ),
    Attack(
        "frames before",
        "frames before anything was asked",
        """
print('attack ran')
for number in range(1, 40): raw(line(), answer(number, True))
""",
        shows="",
        at_most=True,
        why="what follows is out of step; the cell itself is taken to be answered",
    ),
    Attack(
        "everything that is asked is right",
        "to all that the checks ask: True",
        """
def change(c, reply):
    if type(reply["value"]) is dict and "kind" in reply["value"]:
        RAN[:] = ["attack ran"]
        reply["value"] |= {"value": True, "kind": "bool", "error": None}
    return reply
forge(change)
""",
        after="ps01-5-capped-answer",
    ),
)

CALLS = (
    _forged(
        "other arguments afterwards",
        "arguments that were changed into something else",
        "apply",
        """
v['after'] = [['x', [1, 2, 3], {'a': None}, float('nan')], {'mask': 1}]
v['reply'] |= {'error': None, 'value': [8, 8], 'kind': 'tuple'}
return reply
""",
    ),
    _forged(
        "an error: StopIteration",
        "an error of a type with a meaning to Python: of nothing that is looked at, all are right",
        "apply",
        "v['reply'] |= {'error': {'type': 'StopIteration', 'message': '0', 'line': ''}}\nreturn reply",
        tests={"extra-all-test": "all(map(lambda n: row_entropy(torch.eye(n)).sum() == 7, (2, 3)))"},
        earns={"extra-all-test": 0.0},
        why="its function raises errors, of whatever type",
    ),
    _forged("an answer for an answer", "a reply where none is expected", "apply", "raw(c, answer(n, True))"),
)

VALUES = (
    _forged(
        "names of the tests' own",
        "values for names that a test defines or imports itself",
        "values",
        """
names = 'checks torch math nn near named shapes whole float len __builtins__ __name__ globals want x got'
names += ' bound_is_right entropy_is_right drawn full one none causal seldom'
v |= {name: ['plain', 1.0] for name in names.split()}
return reply
""",
        after="ps01-imports",
    ),
    _forged(
        "values that are none",
        "kinds that are none, and values in the wrong form",
        "values",
        """
v |= {'spread': [torch.ones(3), torch.ones(3)], 'equal_weight': [['plain'], 0.2]}
return reply
""",
        after="ps01-imports",
        earns={"ps01-1-test": 2.0},
        why="two of its numbers are gone",
    ),
    _forged(
        "a long text",
        "half a million letters for a few",
        "values",
        """
v |= {'defects': ['plain', 'ABCDEFGH' * 60_000]}
return reply
""",
        after="ps01-4-answer",
        earns={"ps01-4-defects-test": 0.5},
        why="it names all lines, of which four are wrong",
    ),
)

INSIDE = (
    *(
        Attack(name, tries, f"print('attack ran')\n{code}", after=LAST)
        for name, tries, code in (
            (
                "Learner.answer",
                "what answers the tests, replaced",
                """
student = mine('student')
plain = student.Learner.answer
mine_too = ('call', 'vjp', 'build')
student.Learner.answer = lambda self, verb, *rest: True if verb in mine_too else plain(self, verb, *rest)
""",
            ),
            (
                "wire",
                "limits of the wire, lifted on its own side",
                """
wire = mine('wire')
wire.HEADER_BYTES = wire.TENSOR_BYTES = wire.VALUES = wire.DEPTH = wire.TEXT = 10**12
row_entropy = lambda weights: ['x' * 1_000_000] * 2
""",
            ),
            (
                "the tests' code",
                "the tests' own functions, replaced where the learner's process has them",
                """
from exercises.autograder import result
runner = mine('runner')
runner._points = lambda value, most: most
runner.TestRunner._tested = lambda self, cell: {'outputs': '[]', 'result': {'earned': cell.points}}
result.CellResult = None
""",
            ),
            (
                "notes",
                "what is noted for a person, wiped and forged",
                """
import gc
for found in gc.get_objects():
    if type(found).__name__ == 'Learner':
        found.recorder.notes[:] = [['x' * 100_000] * 10, {'a': torch.zeros(1000)}] * 100
""",
            ),
        )
    ),
)

ATTACKS = (*OUTPUTS, *FRAMES, *CALLS, *VALUES, *INSIDE)
