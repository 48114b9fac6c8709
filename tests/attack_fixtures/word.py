"""What a process says of itself, and nobody else can know: the memory it used, whether it changed its arguments.

These lies cost nothing to tell and cannot be seen from outside. A group of its own: here, full points for the
requirement that is lied about are what is expected. The tests keep such requirements few, each worth little.
"""

from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS"]

CHANGES = """
def adam_step(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    first.mul_(betas[0]).add_((1 - betas[0]) * gradient)
    second.mul_(betas[1]).add_((1 - betas[1]) * gradient**2)
    RAN[:] = ["attack ran"]
    root = (second / (1 - betas[1] ** step)).sqrt()
    return parameter - rate * first / (1 - betas[0] ** step) / (root + eps), first, second
"""
# All the logits at once, which the task is there to avoid.
WHOLE = """
def chunked_cross_entropy(hidden, weight, targets, chunk, pad_id):
    RAN[:] = ["attack ran"]
    summed = torch.nn.functional.cross_entropy(hidden @ weight.mT, targets, ignore_index=pad_id, reduction="sum")
    return summed / (targets != pad_id).sum().clamp(min=1)
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
    return Attack(name, tries, code + forge, after="ps01-2-answer", tests=tests, earns=earns)


ATTACKS = (
    _says(
        "changed nothing",
        "that it changed none of its arguments",
        "{'mutated': []}",
        CHANGES,
        'checks.check("adam_step", adam_step, seed=1).score(kept=1)',
    ),
    _says(
        "used no memory",
        "that it used no memory",
        "{'memory': {'saved': 0, 'largest': 0, 'peak': 0, 'shape': [1]}}",
        WHOLE,
        'checks.check("chunked_cross_entropy", chunked_cross_entropy, seed=1).score(saved=0.4, peak=0.6)',
    ),
)
