"""Lies on the socket: replies that no honest process sends, before, instead of and beside the honest ones."""

from tests.attack_fixtures.attack import Attack

__all__ = ["ALIKE", "ATTACKS"]

LAST = "ps01-6-answer"


def _of(kind: str) -> str:
    """Python that says whether a reply, `v`, is of this kind."""
    return {
        "cell": "type(v) is str",
        "values": "type(v) is dict and 'kind' not in v and 'reply' not in v",
        "check": "type(v) is dict and 'kind' in v",
        "apply": "type(v) is dict and v.keys() == {'reply', 'after'}",
    }[kind]


def _forged(name: str, tries: str, kind: str, body: str, **more) -> Attack:
    """Replies of a kind are replaced; `v` is the honest one's value, `n` its number, `c` the socket."""
    lines = "\n    ".join(body.strip().splitlines())
    code = f"""
def change(c, reply):
    n, v = reply["number"], reply["value"]
    if not ({_of(kind)}): return reply
    RAN[:] = ["attack ran"]
    {lines}
forge(change)
"""
    return Attack(name, tries, code, **{"after": LAST, "whole": kind == "apply"} | more)


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
        "long outputs",
        "a cell's outputs of half a million characters, in many entries",
        "cell",
        ONCE + "raw(c, fields(number=n, value='[' + '1, ' * 170_000 + '1]'))",
        after="ps01-imports",
    ),
    _forged(
        "outputs that are too long",
        "a cell's outputs of 700,000 characters",
        "cell",
        ONCE + "raw(c, fields(number=n, value='[\"' + 'x' * 700_000 + '\"]'))",
        after="ps01-imports",
        shows="This cell was ended: header: no value",
    ),
    _forged(
        "outputs that are no text",
        "a number, a list, a tensor for a cell's outputs",
        "cell",
        "raw(c, fields(number=n, value=[1, [2], {'tensor': ['int8', [0]]}][n % 3]))",
        after="ps01-imports",
        at_most=True,
        why="nothing",
        shows="",
    ),
    _forged(
        "deep outputs",
        "outputs nested a hundred thousand deep",
        "cell",
        ONCE + "raw(c, fields(number=n, value='[' * 100_000))",
        after="ps01-imports",
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
        "a shape beyond all bounds",
        "a tensor whose sizes no machine can count",
        "cell",
        ONCE + "raw(c, fields(number=n, value={'tensor': ['float32', [0, 10**30]]}))",
        after="ps01-imports",
        shows="This cell was ended|attack ran",
    ),
    *(
        _forged(
            f"{name}, for a cell",
            tries,
            "cell",
            ONCE + f"c.sendall({frame})",
            after="ps01-imports",
            shows="This cell was ended",
        )
        for name, tries, frame in (
            ("nonsense", "bytes that are no frame", "os.urandom(64)"),
            ("too large", "lengths that no memory can hold", "bytes([255] * 16)"),
            ("empty", "a frame without anything", "bytes(16)"),
            ("no JSON", "a header that is no JSON", "(3).to_bytes(8, 'little') + bytes(8) + b'{\\xff}'"),
        )
    ),
)

FRAMES = (
    *(
        _forged(name, tries, "check", f"raw(c, {header}{more})", after="ps01-5-capped-answer", shows=RAN)
        for name, tries, header, more in (
            ("the number before", "the reply to another question", "answer(n - 1, True)", ""),
            ("nested", "a header that is nested deeper than Python's stack", "b'[' * 1_000_000", ""),
            (
                "infinity",
                "numbers that JSON does not have",
                "answer(n, [float('inf'), float('nan'), -0.0, 1e308 * 10, 2**62], kind='list')",
                "",
            ),
            (
                "not enough bytes",
                "a tensor without its bytes",
                "answer(n, {'tensor': ['float64', [1000]]})",
                "",
            ),
            (
                "many axes",
                "a tensor of 1,000 axes",
                "answer(n, {'tensor': ['int8', [1] * 1000]})",
                ", bytes(1)",
            ),
            (
                "other fields",
                "a reply with a field `passed`",
                "fields(number=n, value=fields(passed=True, value=1))",
                "",
            ),
            (
                "other names",
                "names that mean something to Python",
                "fields(number=n, value=fields(__class__='Report', passed=True, __init__=1))",
                "",
            ),
            (
                "twice the same name",
                "a name twice",
                'b\'{"dict": {"number": 1, "number": %d, "value": null}}\' % n',
                "",
            ),
            (
                "lone surrogates",
                "text that is no text",
                "answer(n, '\\ud800', kind='\\udfff', error=fields(type='\\ud800', message='\\udfff', line=''))",
                "",
            ),
            (
                "control characters",
                "text that does something to a terminal or a page",
                "answer(n, error=fields(type='</pre><script>', message='\\x1b[2J\\x00<script>', line='\\r\\n'))",
                "",
            ),
            ("kinds that are none", "a tuple that is none", "answer(n, 5, kind='tuple')", ""),
            ("a list that is none", "a list that has no length", "answer(n, 5, kind='list')", ""),
            (
                "an opaque number",
                "a description that is none",
                "answer(n, [fields(opaque=5), fields(opaque=[])], kind='tuple')",
                "",
            ),
            (
                "memory that is none",
                "bytes that are lists",
                "answer(n, [1, 2], kind='tuple', memory=fields(saved=[1], largest=[2], peak=[], shape=3))",
                "",
            ),
            (
                "missing memory",
                "no bytes, where they are compared",
                "answer(n, [True, True], kind='tuple', attached=[True], mutated=[''] * 1000)",
                "",
            ),
            (
                "attached to nothing",
                "more gradients than there are outputs",
                "answer(n, [True], kind='tuple', attached=[True] * 19_000)",
                "",
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
        "half a reply",
        "the first half of a reply",
        "check",
        "c.sendall((1000).to_bytes(8, 'little') + bytes(8) + b'{')",
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
    _forged(
        "replies ahead",
        "the next hundred replies at once",
        "check",
        "for k in range(100): raw(c, answer(n + k, True, kind='bool'))",
        after="ps01-5-capped-answer",
        shows=RAN,
        at_most=True,
        why="the tests believe them, and all are wrong",
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

ERRORS = (
    *("StopIteration", "GeneratorExit", "SystemExit", "_TestTimeLimitError"),
    *("ExceptionGroup", "__import__", "SyntaxError", "AssertionError"),
)
CALLS = (
    _forged(
        "a long message",
        "an error with a message of half a megabyte, where a test calls the function itself",
        "apply",
        """
v['reply'] |= {'error': {'type': 'RuntimeError', 'message': 'm' * 500_000, 'line': 'l' * 500_000}}
return reply
""",
    ),
    _forged(
        "a message that is too long",
        "the same with 1.5 MB",
        "apply",
        """
error = fields(type='RuntimeError', message='m' * 1_500_000, line='')
whole = answer(n, error=error)['dict']['value']
raw(c, fields(number=n, value=fields(reply=whole, after=[[], fields()])))
""",
        shows=RAN,
    ),
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
        "arguments set to zero",
        "inputs changed, so that the answer is right for them",
        "apply",
        """
if len(v['after'][0]) < 4: return reply
v['after'] = [[torch.zeros(3, 5)] * 3 + [2.0], {}]
v['reply'] |= {'error': None, 'value': [torch.zeros(3, 5), torch.zeros(3, 3)], 'kind': 'tuple'}
return reply
""",
    ),
    *(
        _forged(
            f"an error: {kind}",
            "an error of a type with a meaning to Python",
            "apply",
            f"v['reply'] |= {{'error': {{'type': {kind!r}, 'message': '0', 'line': ''}}}}\nreturn reply",
        )
        for kind in ERRORS
    ),
    _forged("an answer for an answer", "a reply where none is expected", "apply", "raw(c, answer(n, True))"),
    _forged(
        "yes",
        "a tensor of several numbers, where a test ends with yes or no",
        "apply",
        """
v['reply'] |= {'error': None, 'value': [torch.ones(2)], 'kind': 'list'}
return reply
""",
    ),
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
        "classes for all names",
        "every name a class of the learner's",
        "values",
        """
v |= {name: ['object', 'class'] for name in ('checks', 'torch', 'math', 'near', 'named')}
return reply
""",
        after="ps01-4-answer",
    ),
    _forged(
        "weird names",
        "names that are no names",
        "values",
        """
v |= {name: ['plain', 0] for name in ('', ' ', '\\x00', 'a.b', '__class__', '\\u202e', 'ﬁ', '𝐱', '\\ud800')}
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
        "no values",
        "a reply of another form",
        "values",
        "raw(c, fields(number=n, value=[1, 2, 3]))",
        after="ps01-6-answer",
    ),
    _forged(
        "an error for values",
        "an error where values are asked for",
        "values",
        "raw(c, answer(n, None, error=fields(type='StopIteration', message='1', line='')))",
        after="ps01-6-answer",
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
    _forged(
        "sixteen axes",
        "a tensor of sixteen axes for a shape, and one without entries for a number",
        "values",
        """
deep, none = torch.tensor([2.0, 3, 5, 11]).reshape([1] * 15 + [4]), torch.zeros([0] * 16)
v |= {'output_shape': ['plain', deep], 'spread': ['plain', none]}
return reply
""",
        after="ps01-1-answer",
        earns={"ps01-1-test": 3.0},
        why="its numbers are right, but for one that is missing",
    ),
    _forged(
        "numbers without end",
        "a million numbers where four are expected",
        "values",
        """
v |= {'output_shape': ['plain', torch.zeros(2_000_000, dtype=torch.uint8)]}
return reply
""",
        after="ps01-1-answer",
        earns={"ps01-1-test": 3.75},
        why="one of its shapes is wrong",
        at_most=True,
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
                "Local",
                "what calls the learner's code, replaced",
                """
from transformer_lessons.checks import local
local.Local.call = local.Local.vjp = lambda *args, **kwargs: local.Reply(value=True, kind='bool')
""",
            ),
            (
                "Reply",
                "the class of replies, replaced",
                """
from transformer_lessons.checks import adapter, local
local.Reply = type('Reply', (), {'__init__': lambda self, **fields: self.__dict__.update(fields, passed=True)})
""",
            ),
            (
                "json",
                "what writes the header, replaced",
                """
import json
plain = json.dumps
json.dumps = lambda value, *args, **options: plain(value, *args, **options) + ' '
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
runner, result = mine('runner'), mine('result')
runner._points = lambda value, most: most
runner.TestRunner._tested = lambda self, cell: {'outputs': '[]', 'result': {'earned': cell.points}}
result.CellResult = None
""",
            ),
            (
                "the forking process",
                "its functions, replaced where the learner's process has them",
                """
for module in ('worker', 'box.confine'):
    for name in dir(mine(module)):
        if callable(getattr(mine(module), name)) and not name.startswith('__'): setattr(mine(module), name, None)
""",
            ),
            (
                "notes",
                "what is noted for a person, wiped and forged",
                """
import gc
for found in gc.get_objects():
    if type(found).__name__ == 'Learner':
        found.noticing.notes[:] = [['x' * 100_000] * 10, {'a': torch.zeros(1000)}] * 100
""",
            ),
        )
    ),
)

ATTACKS = (*OUTPUTS, *FRAMES, *CALLS, *VALUES, *INSIDE)
# Of each mechanism one way is tried at each commit; these are other ways.
ALIKE = {
    "outputs that are too long": (
        *("long outputs", "outputs that are no text", "deep outputs", "a shape beyond all bounds"),
    ),
    "nonsense, for a cell": ("too large, for a cell", "empty, for a cell", "no JSON, for a cell"),
    "other fields": ("other names", "twice the same name"),
    "lone surrogates": ("control characters",),
    "kinds that are none": (
        *("a list that is none", "an opaque number", "memory that is none", "missing memory"),
        "attached to nothing",
    ),
    "no reply": ("half a reply",),
    "two replies": ("replies ahead",),
    "a message that is too long": ("a long message",),
    "other arguments afterwards": ("arguments set to zero",),
    f"an error: {ERRORS[0]}": tuple(f"an error: {kind}" for kind in ERRORS[1:]),
    "names of the tests' own": ("classes for all names", "weird names"),
    "values that are none": ("no values", "an error for values"),
    "a long text": ("sixteen axes", "numbers without end"),
    "Learner.answer": ("Local", "Reply"),
    "the tests' code": ("the forking process",),
}
