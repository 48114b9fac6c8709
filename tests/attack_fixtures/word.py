"""False reports that only the process itself can give: the memory it used, whether it changed its arguments.

Such lies are easy and cannot be detected from outside. In this theme, unlike the others, full points are
expected for the requirement that is lied about. The tests have few such requirements, each worth little.
"""

from dataclasses import replace

from tests.attack_fixtures.attack import Attack, forged

CHANGES = """
def adam_step(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    first.mul_(betas[0]).add_((1 - betas[0]) * gradient)
    second.mul_(betas[1]).add_((1 - betas[1]) * gradient**2)
    RAN[:] = ["attack ran"]
    root = (second / (1 - betas[1] ** step)).sqrt()
    return parameter - rate * first / (1 - betas[0] ** step) / (root + eps), first, second
"""
# All logits at once, which is what the task is meant to avoid.
WHOLE = """
def chunked_cross_entropy(hidden, weight, targets, chunk, pad_id):
    RAN[:] = ["attack ran"]
    summed = torch.nn.functional.cross_entropy(hidden @ weight.mT, targets, ignore_index=pad_id, reduction="sum")
    return summed / (targets != pad_id).sum().clamp(min=1)
"""


def _says(field: str, code: str, test: str) -> Attack:
    made = forged("check", f"v |= {field}\nreturn reply", after="ps01-2-answer")
    word = "extra-word-test"
    return replace(made, code=code + made.code, tests={word: test}, earns={word: 1.0})


ATTACKS = {
    # It claims to have changed none of its arguments.
    "changed nothing": _says(
        "{'mutated': []}",
        CHANGES,
        'checks.check("adam_step", adam_step, seed=1).score(kept=1)',
    ),
    "used no memory": _says(
        "{'memory': {'saved': 0, 'largest': 0, 'peak': 0, 'shape': [1]}}",
        WHOLE,
        'checks.check("chunked_cross_entropy", chunked_cross_entropy, seed=1).score(saved=0.4, peak=0.6)',
    ),
}
