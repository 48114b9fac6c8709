"""Says whether an answer is right and, if it makes a known mistake, which one.

    >>> from transformer_lessons import checks
    >>> checks.require("causal_mask", my_causal_mask)

A task is a list of requirements, each shown by calls with made-up arguments. What the answer returns there (with
gradients, changed arguments and errors) is compared with the right answer, and if it differs, with the known
wrong ones. An answer that behaves exactly like a known mistake, or like several at once, gets its name;
any other gets the requirement it misses and the smallest arguments for which it does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import torch

from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.local import Local
from transformer_lessons.checks.old.asserting import asserting
from transformer_lessons.checks.old.catalogue import TASKS
from transformer_lessons.checks.old.core import Mistake, Requirement, Task, exam, small_exam
from transformer_lessons.checks.old.diagnosis import diagnose
from transformer_lessons.checks.old.judge import Finding, find
from transformer_lessons.checks.old.order import other_order
from transformer_lessons.checks.old.report import Report, counterexample, scored, write

__all__ = [
    "Adapter",
    "Local",
    "Mistake",
    "Reply",
    "Report",
    "Task",
    "check",
    "require",
    "scored",
    "task",
    "tasks",
]


def tasks() -> list[str]:
    """The names of all tasks, in the order of the chapters."""
    return list(TASKS)


def task(name: str) -> Task:
    """A task by its name: its requirements and its catalogue of mistakes.

    Raises:
        ValueError: if there is none of that name.
    """
    if name not in TASKS:
        raise ValueError(f"task: expected one of {tasks()}, got {name!r}")
    return _load(name)


@cache
def _load(name: str) -> Task:
    """From its module in the catalogue, which is imported only now: most programs ask about one task."""
    module, constant = TASKS[name].split(".")
    return getattr(import_module(f"transformer_lessons.checks.old.catalogue.{module}"), constant)


def check(task_name: str, candidate: Any, *, seed: int = 0) -> Report:
    """Try an answer and say what it does wrong; never raises because of the answer.

    Args:
        task_name: one of `tasks()`.
        candidate: the answer, or an `Adapter` to where it lives.
        seed: makes the arguments; another seed, other arguments of other sizes.

    Raises:
        ValueError: if there is no such task.
    """
    judged = task(task_name)
    adapter = candidate if isinstance(candidate, Adapter) else judged.local(candidate)
    with _one_thread():
        return _check(judged, adapter, seed)


@contextmanager
def _one_thread() -> Iterator[None]:
    """On tensors as small as these, threads that wait for one another cost ten times the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check(judged: Task, adapter: Adapter, seed: int) -> Report:
    probes = exam(judged, seed)
    shown = {name: judged.observe(adapter, probe) for name, (probe, _) in probes.items()}
    findings = [_finding(judged, requirement, probes, shown) for requirement in judged.requirements]
    met = {r.id: finding is None for r, finding in zip(judged.requirements, findings, strict=True)}
    for requirement, finding in zip(judged.requirements, findings, strict=True):
        if finding:
            mistakes = [] if _crashes(shown) else _mistakes(judged, adapter, probes, shown)
            return _failed(judged, adapter, requirement, finding, mistakes, met)
    return Report(
        judged.name, True, None, None, f"{judged.name}: all requirements are met.", requirements=met
    )


def require(task_name: str, candidate: Any, *, seed: int = 0) -> None:
    """Pass silently, or say what is wrong.

    Raises:
        AssertionError: with the report's message, if the answer is not right.
        ValueError: if there is no such task.
    """
    __tracebackhide__ = True  # pytest's word for: show the message, not these lines
    report = check(task_name, candidate, seed=seed)
    if not report.passed:
        error = AssertionError(report.message)
        error._render_traceback_ = lambda: [f"AssertionError: {report.message}"]  # and IPython's
        raise error


def _finding(judged: Task, requirement: Requirement, probes: dict, shown: dict[str, Reply]) -> Finding | None:
    for name in requirement.probes:
        probe, want = probes[name]
        finding = find(judged, requirement, probe, shown[name], want)
        if finding:
            return finding
    return None


def _mistakes(judged: Task, adapter: Adapter, probes: dict, shown: dict[str, Reply]) -> list[Mistake]:
    if found := diagnose(judged, probes, shown):
        return found
    other = asserting(judged, probes, shown) or other_order(judged, adapter, probes)
    return [other] if other else []


def _crashes(shown: dict[str, Reply]) -> bool:
    """Nothing but errors that no known mistake makes: nothing written yet, or a name misspelt."""
    unlike_any = {"NotImplementedError", "NotAFunctionError", "NameError", "UnboundLocalError"}
    return all(reply.error and reply.error["type"] in unlike_any for reply in shown.values())


def _failed(
    judged: Task,
    adapter: Adapter,
    requirement: Requirement,
    finding: Finding,
    mistakes: list[Mistake],
    met: dict[str, bool],
) -> Report:
    example = _smallest(judged, adapter, requirement) if finding.example else None
    return Report(
        task=judged.name,
        passed=False,
        requirement=requirement.id,
        misconception=mistakes[0].id if mistakes else None,
        message=write(judged, requirement, finding, mistakes, example),
        also=tuple(mistake.id for mistake in mistakes[1:]),
        deviation=finding.deviation,
        where=finding.where,
        counterexample=example,
        link=mistakes[0].anchor if mistakes else requirement.anchor,
        requirements=met,
    )


def _smallest(judged: Task, adapter: Adapter, requirement: Requirement) -> str | None:
    """The smallest call that shows the same requirement missed; None if only larger ones do, or none runs."""
    for number in range(len(judged.small)):
        for name, (probe, want) in small_exam(judged, number).items():
            if name not in requirement.probes:
                continue
            got = judged.observe(adapter, probe)
            finding = find(judged, requirement, probe, got, want)
            if finding:
                return counterexample(judged, probe, got, want, finding)
    return None
