"""An answer that is right but for the order of its arguments."""

import itertools
from dataclasses import replace

from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.old.core import Mistake, Probe, Task
from transformer_lessons.checks.old.judge import find

__all__ = ["other_order"]

MOST = 5  # arguments: their orders are tried one by one, most fail on the first call


def other_order(task: Task, adapter: Adapter, exam: dict[str, tuple[Probe, Reply]]) -> Mistake | None:
    """The mistake of taking the arguments in another order, if that and nothing else is wrong."""
    probes = [(probe, want) for probe, want in exam.values() if not probe.refused and not probe.method]
    most = max((len(probe.args) for probe, _ in probes), default=0)
    if not 2 <= most <= MOST:
        return None
    full = [(probe, want) for probe, want in probes if len(probe.args) == most]
    for order in itertools.permutations(range(most)):
        if all(_is_right(task, adapter, probe, want, order) for probe, want in full):
            if order == tuple(range(most)):  # the order is not what is wrong
                return None
            names = ", ".join(task.arguments[n] for n in order)
            return Mistake(
                "argument_order",
                f"you take the arguments in the order ({names})",
                "Any order works as long as one calls the function oneself.",
                f"Callers write {task.signature}.",
                task.requirements[0].anchor,
                (),
            )
    return None


def _is_right(task: Task, adapter: Adapter, probe: Probe, want: Reply, order: tuple[int, ...]) -> bool:
    """Whether the values are right with the arguments in this order."""
    got = task.observe(adapter, replace(probe, args=[probe.args[n] for n in order], cotangents=None))
    first = task.requirements[0]
    return find(task, replace(first, aspects=("values",)), probe, got, want) is None
