"""Forged replies on the socket: before the honest ones, instead of them, and in addition to them."""

from functools import partial

from tests.attack_fixtures.attack import cell, forged

# The change is made only once: later, "attack ran" would be lost with the outputs of the cells.
ONCE = """
if 'done' in globals(): return reply
globals()['done'] = True
"""
# What the results show where the process that would print "attack ran" has been replaced.
_ENDED = "(Your code ended the test|This cell was ended)"
RAN = f"attack ran|{_ENDED}: (reply|frame|header|tensor|value|the other process)"

_cell = partial(forged, "cell", after="ps01-imports")
_values = partial(forged, "values", after="ps01-imports")
_check = partial(forged, "check", after="ps01-5-capped-answer", shows=RAN)
_apply = partial(forged, "apply", after="ps01-6-answer")
_inside = partial(cell, after="ps01-6-answer")

OUTPUTS = {
    "outputs that are too long": _cell(
        ONCE + "raw(c, fields(number=n, value='[\"' + 'x' * 700_000 + '\"]'))",
        shows="This cell was ended: header: expected a value",
    ),
    "outputs of no sort": _cell(f"""{ONCE}
import json
points = {{'output_type': 'execute_result', 'data': {{'text/plain': '6.0'}}, 'metadata': {{}}}}
odd = [1, None, {{}}, {{'output_type': 'x'}}, points, {{'output_type': 'stream', 'name': 3, 'text': {{}}}}]
raw(c, fields(number=n, value=json.dumps(odd)))
"""),
    "nonsense, for a cell": _cell(ONCE + "c.sendall(os.urandom(64))", shows="This cell was ended"),
}

FRAMES = {
    "the number before": _check("raw(c, answer(n - 1, True))"),
    "other fields": _check("raw(c, fields(number=n, value=fields(passed=True, value=1)))"),
    "lone surrogates": _check("""
error = fields(type='\\ud800', message='\\udfff', line='')
raw(c, answer(n, '\\ud800', kind='\\udfff', error=error))
"""),
    "kinds that are none": _check("raw(c, answer(n, 5, kind='tuple'))"),
    "fields that do not fit": _check("""
# More gradients than outputs, and bytes that are lists.
raw(c, answer(n, [True], kind='tuple', attached=[True] * 900, memory=fields(saved=[1], shape=3)))
"""),
    "no reply": _check("return None", shows="took too long"),
    "two replies": _check(
        """
plain = mine('wire').send
plain(c, reply, float('inf'))
return reply
""",
        at_most=True,  # the second reply is taken for the answer to the next request
    ),
    # Replies before any request.
    "frames before": cell(
        "for number in range(1, 40): raw(line(), answer(number, True))",
        shows="",
        at_most=True,  # later replies are out of step; the cell itself counts as answered
    ),
    "everything that is asked is right": _check("""
v |= {"value": True, "kind": "bool", "error": None}
return reply
"""),
}

CALLS = {
    "other arguments afterwards": _apply("""
# Arguments that were changed into something else.
v['after'] = [['x', [1, 2, 3], {'a': None}, float('nan')], {'mask': 1}]
v['reply'] |= {'error': None, 'value': [8, 8], 'kind': 'tuple'}
return reply
"""),
    "an error: StopIteration": _apply(
        """
# An error of a type with a meaning to Python: of nothing that is looked at, all are right.
v['reply'] |= {'error': {'type': 'StopIteration', 'message': '0', 'line': ''}}
return reply
""",
        tests={"extra-all-test": "all(map(lambda n: row_entropy(torch.eye(n)).sum() == 7, (2, 3)))"},
        earns={"extra-all-test": 0.0},  # its function raises errors, whatever their type
    ),
    # A reply where none is expected.
    "an answer for an answer": _apply("raw(c, answer(n, True))"),
}

VALUES = {
    "names of the tests' own": _values("""
# Values for names that a test defines or imports itself.
names = 'checks torch math nn near named shapes whole float len __builtins__ __name__ globals want x got'
names += ' bound_is_right entropy_is_right drawn full one none causal seldom'
v |= {name: ['plain', 1.0] for name in names.split()}
return reply
"""),
    "values that are none": _values(
        """
# Kinds that are none, and values in the wrong form.
v |= {'spread': [torch.ones(3), torch.ones(3)], 'equal_weight': [['plain'], 0.2]}
return reply
""",
        earns={"ps01-1-test": 2.0},  # two of its numbers are missing
    ),
    "a long text": _values(
        """
# Half a million letters for a few.
v |= {'defects': ['plain', 'ABCDEFGH' * 60_000]}
return reply
""",
        after="ps01-4-answer",
        earns={"ps01-4-defects-test": 0.5},  # it names all lines, four of them wrongly
    ),
}

INSIDE = {
    "Learner.answer": _inside("""
# What answers the tests, replaced.
student = mine('student')
plain = student.Learner.answer
mine_too = ('call', 'vjp', 'build')
student.Learner.answer = lambda self, verb, *rest: True if verb in mine_too else plain(self, verb, *rest)
"""),
    "wire": _inside("""
# Limits of the wire, lifted on its own side.
wire = mine('wire')
wire.HEADER_BYTES = wire.TENSOR_BYTES = wire.VALUES = wire.DEPTH = wire.TEXT = 10**12
row_entropy = lambda weights: ['x' * 1_000_000] * 2
"""),
    "the tests' code": _inside("""
# The tests' own functions, replaced where the learner's process has them.
from exercises.autograder import result
runner = mine('runner')
runner._points = lambda value, most: most
runner.TestRunner._run_test = lambda self, cell: {'outputs': '[]', 'result': {'earned': cell.points}}
result.CellResult = None
"""),
    "notes": _inside("""
# What is noted for a person, wiped and forged.
import gc
for found in gc.get_objects():
    if type(found).__name__ == 'Learner':
        found.recorder.notes[:] = [['x' * 100_000] * 10, {'a': torch.zeros(1000)}] * 100
"""),
}

ATTACKS = OUTPUTS | FRAMES | CALLS | VALUES | INSIDE
