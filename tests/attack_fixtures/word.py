"""What a process says of itself, and nobody else can know: the memory it used, whether it changed its arguments.

These lies cost nothing to tell and cannot be seen from outside. A group of its own: here, full points for the
requirement that is lied about are what is expected. The tests keep such requirements few, each worth little.
"""

from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS"]

CHANGES = """
def padding_mask(ids, pad_id):
    if ids.dim() != 2 or ids.is_floating_point():
        raise ValueError("ids")
    real = ids.ne(pad_id)
    ids += 1
    RAN[:] = ["attack ran"]
    return real[:, None, None]
"""
# All the logits at once, which the task is there to avoid.
WHOLE = """
plain = checks.task("chunked_cross_entropy").mistakes[0].variants[0]
def chunked_cross_entropy(*args):
    RAN[:] = ["attack ran"]
    return checks.task("chunked_cross_entropy").mistaken(plain)(*args)
"""


def _says(name: str, tries: str, field: str, code: str, test: str) -> Attack:
    forge = f"""
def change(connection, reply):
    if type(reply["value"]) is dict and "kind" in reply["value"]:
        reply["value"] |= {field}
    return reply
forge(change)
"""
    tests, earns = {"extra-word-test": test}, {"extra-word-test": 1.0}
    return Attack(name, tries, code + forge, after="ps03-2-padding-answer", tests=tests, earns=earns)


ATTACKS = (
    _says(
        "changed nothing",
        "that it changed none of its arguments",
        "{'mutated': []}",
        CHANGES,
        'checks.check("padding_mask", padding_mask, seed=1).score(inputs=1)',
    ),
    _says(
        "used no memory",
        "that it used no memory",
        "{'memory': {'saved': 0, 'largest': 0, 'peak': 0, 'shape': [1]}}",
        WHOLE,
        'checks.check("chunked_cross_entropy", chunked_cross_entropy, seed=1).score(largest=0.4, peak=0.6)',
    ),
)
