"""Says whether an answer is right and, if it makes a known mistake, which one.

    >>> from transformer_lessons import checks
    >>> checks.require("causal_mask", my_causal_mask)

A task is the right answer's text and a list of requirements, each shown by a few calls. A known mistake is a
change of that text. An answer that shows on every call what a changed text shows makes that mistake, and loses
what it costs; any other is held against each requirement. Read `definitions`, then `engine`, then any file of
`catalogue/` beside its list in `mistakes/`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.catalogue import TASKS
from transformer_lessons.checks.definitions import Mistake, Task
from transformer_lessons.checks.engine import Verdict, judge
from transformer_lessons.checks.local import Local
from transformer_lessons.checks.message import write
from transformer_lessons.checks.report import Report, scored

__all__ = [
    "Adapter",
    "Local",
    "Mistake",
    "Reply",
    "Report",
    "Task",
    "check",
    "mistake",
    "require",
    "scored",
    "sentences",
    "task",
    "tasks",
]


def tasks() -> list[str]:
    """The names of all tasks, in the order of the chapters."""
    return list(TASKS)


def task(name: str) -> Task:
    """A task by its name: its requirements and its mistakes. It is imported only now: most programs need one.

    Raises:
        ValueError: if there is none of that name.
    """
    if name not in TASKS:
        raise ValueError(f"task: expected one of {tasks()}, got {name!r}")
    return import_module(f"transformer_lessons.checks.catalogue.{name}").TASK


def check(task_name: str, candidate: Any, *, seed: int = 0) -> Report:
    """Try an answer and say what it does wrong; never raises because of the answer.

    Args:
        task_name: one of `tasks()`.
        candidate: the answer, or an `Adapter` to where it lives.
        seed: makes the arguments; another seed, other numbers.

    Raises:
        ValueError: if there is no such task.
    """
    known = task(task_name)
    adapter = candidate if isinstance(candidate, Adapter) else known.local(candidate)
    with _one_thread():
        verdict = judge(known, adapter, seed)
        message = write(known, verdict, adapter)
    return Report(
        task=task_name,
        passed=not verdict.lost,
        requirement=verdict.lost[0] if verdict.lost else None,
        misconception=verdict.mistakes[0].name if verdict.mistakes else None,
        message=message.text(),
        also=tuple(mistake.name for mistake in verdict.mistakes[1:]),
        link=_anchor(known, verdict),
        requirements={r.name: r.name not in verdict.lost for r in known.requirements},
        worth={r.name: r.points for r in known.requirements},
        html=message.html(),
    )


def _anchor(known: Task, verdict: Verdict) -> str | None:
    if verdict.mistakes:
        return verdict.mistakes[0].anchor
    return next((r.anchor for r in known.requirements if r.name in verdict.lost), None)


@contextmanager
def _one_thread() -> Iterator[None]:
    """On tensors as small as these, threads that wait for one another cost ten times the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def require(task_name: str, candidate: Any, *, seed: int = 0) -> None:
    """Say what is right or, raising an error, what is wrong; in a notebook, with the numbers that differ marked.

    Raises:
        AssertionError: with the report's message, if the answer is not right.
        ValueError: if there is no such task.
    """
    __tracebackhide__ = True  # pytest's word for: show the message, not these lines
    report = check(task_name, candidate, seed=seed)
    is_shown = _shown(report)
    if not report.passed:
        error = AssertionError(report.message)
        told = report.message.splitlines()[0] if is_shown else report.message
        error._render_traceback_ = lambda: [f"AssertionError: {told}"]  # and IPython's
        raise error


def _shown(report: Report) -> bool:
    """In a notebook, the message with the numbers that differ marked; remarks on right answers, too."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if not (report.html and hasattr(shell, "kernel")):
        return False
    if not report.passed or "One thing more" in report.message:
        ipython.display.display(ipython.display.HTML(report.html))
    return True


def sentences(task_name: str) -> dict[str, str]:
    """What a task requires, by the requirements' names."""
    return {requirement.name: requirement.text for requirement in task(task_name).requirements}


def mistake(task_name: str, name: str) -> tuple[str, str] | None:
    """What the learner is told of a known mistake, and the anchor to read; None if it is not known."""
    return next(((m.you, m.anchor) for m in task(task_name).mistakes if m.name == name), None)
