"""Says whether an answer is right and, if it makes a known mistake, which one.

    >>> from transformer_lessons import checks
    >>> checks.require("causal_mask", my_causal_mask)

A task is the right answer's text and a list of requirements, each shown by a few calls. A known mistake is a
change of that text. An answer that shows on every call what a changed text shows makes that mistake, and loses
what it costs; any other is held against each requirement. Read `definitions`, then `engine`, then any file of
`catalogue/` beside that of the same name in `mistakes/`. `learner/` is the way to an answer, wherever it lives;
`translator/` puts answers into a whole model.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from transformer_lessons.checks.answer import Answer
from transformer_lessons.checks.catalogue import TASKS
from transformer_lessons.checks.definitions import Mistake, Task
from transformer_lessons.checks.engine import judge
from transformer_lessons.checks.learner.adapter import Adapter, Reply
from transformer_lessons.checks.learner.local import Local
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
    "my_transformer",
    "require",
    "scored",
    "task",
    "tasks",
    "try_in_translator",
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
    answer = Answer(known, candidate)
    with _one_thread():
        verdict = judge(answer, seed)
        message = write(answer, verdict)
    return Report(
        task=task_name,
        passed=not verdict.lost,
        requirement=verdict.lost[0] if verdict.lost else None,
        misconception=verdict.mistakes[0].name if verdict.mistakes else None,
        message=message.text(),
        also=tuple(mistake.name for mistake in verdict.mistakes[1:]),
        link=verdict.anchor(known),
        requirements={r.name: r.name not in verdict.lost for r in known.requirements},
        worth={r.name: r.points for r in known.requirements},
        html=message.html(),
    )


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
    """Of a right answer, say where the package's stands; of another, raising an error, what is wrong with it.

    In a notebook, the numbers that differ are marked.

    Raises:
        AssertionError: with the report's message, if the answer is not right, or is the package's own.
        ValueError: if there is no such task.
    """
    __tracebackhide__ = True  # pytest's word for: show the message, not these lines
    if str(getattr(candidate, "__module__", "")).startswith("transformer_lessons."):
        raise AssertionError(f"{task(task_name).public}: this is the package's own; write yours")
    report = check(task_name, candidate, seed=seed)
    is_shown = _shown(report)
    if report.passed and "\n" in report.message and not is_shown:  # a remark
        print(report.message)
    if not report.passed:
        error = AssertionError(report.message)
        told = report.message.splitlines()[0] if is_shown else report.message
        error._render_traceback_ = lambda: [f"AssertionError: {told}"]  # and IPython's
        raise error
    module = task(task_name).right[-1].__module__
    if ".catalogue." not in module:  # where answers stand that no other code has a use for
        print(f"Compare it with `{task(task_name).public}` in {module.replace('.', '/')}.py.")


def try_in_translator(task_name: str, candidate: Any) -> None:
    """Put an answer, right or wrong, into the trained translator, and print what that says of five numbers.

    Where it says something else than with the package's part, both stand below each other. In a notebook, maps
    show where attention looks then. An error of the answer is told in a line. A pitfall: a translator that says
    the same as before is no proof; `require` looks where it does not.

    Raises:
        ValueError: if there is no such task, or the translator has no such part.
    """
    from transformer_lessons.checks.translator import (
        reading,  # loads a model, which most programs do not need
    )

    known = reading.part(task(task_name))
    try:
        print(reading.tell(known, reading.read_aloud(known, candidate)))
        if task_name in reading.LOOKS and _in_notebook():
            _display(reading.looks(known, candidate))
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        print(f"The trained translator breaks down with your {known.public}.\n{said}")


def my_transformer(
    paths: Sequence[str | Path], *, fill: bool = False, output: str | Path = "runs/mine"
) -> None:
    """Out of solved assignments, a Transformer of the learner's own parts: trained, compared, saved, read aloud.

    It says part by part whose it is. A pitfall: the notebooks' code runs here, with all that you may do.

    Args:
        paths: the notebooks; a part that several have is the last one's.
        fill: take the package's part where an answer is missing or not right.
        output: a folder for the run, for ``lessons translate --model runs/mine 421``.

    Raises:
        ValueError: for no notebooks, for files that are none, and for parts that are not right, without `fill`.
    """
    from transformer_lessons.checks.translator.assembly import from_notebooks

    from_notebooks(paths, fill=fill, output=output)


def _shown(report: Report) -> bool:
    """In a notebook, the message with the numbers that differ marked; remarks on right answers, too."""
    if not (report.html and _in_notebook()):
        return False
    if not report.passed or "One thing more" in report.message:
        _display(report.html)
    return True


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return bool(ipython) and hasattr(ipython.get_ipython(), "kernel")


def _display(text: str) -> None:
    ipython = sys.modules["IPython"]
    ipython.display.display(ipython.display.HTML(text))
