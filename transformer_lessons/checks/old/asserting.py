"""An answer that is right but for refusing with `assert`."""

from transformer_lessons.checks.adapter import Reply
from transformer_lessons.checks.old.compare import outcome
from transformer_lessons.checks.old.core import Mistake, Probe, Task
from transformer_lessons.checks.old.judge import find

__all__ = ["asserting"]


def asserting(task: Task, exam: dict[str, tuple[Probe, Reply]], shown: dict[str, Reply]) -> Mistake | None:
    """The mistake of asserting what should be refused, if that and nothing else is wrong."""
    wrong = {
        name
        for requirement in task.requirements
        for name in requirement.probes
        if find(task, requirement, exam[name][0], shown[name], exam[name][1])
    }
    if not all(exam[name][0].refused and outcome(shown[name]) == "asserted" for name in wrong):
        return None
    return Mistake(
        "refused_by_assert",
        "you refuse with `assert`, which raises AssertionError; raise ValueError",
        "It is the shortest way to write a condition down.",
        "Callers who catch ValueError do not catch it, and under `python -O` it is not there at all.",
        task.requirements[0].anchor,
        (),
    )
