"""Says whether an answer is right and, if it makes a known mistake, which one.

    >>> from transformer_lessons import checks
    >>> checks.require("causal_mask", my_causal_mask)

A task consists of the right answer's text and a list of requirements, each tested by a few calls. A known
mistake is a change of that text. An answer that shows on every call what a changed text shows makes that
mistake and loses what it costs; any other is checked against each requirement. Read `definitions`, then
`engine`, then any file of `catalogue/` next to the one of the same name in `mistakes/`. `learner/` is the way
to an answer, wherever it runs; `translator/` puts answers into a whole model.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from transformer_lessons.checks.answer import Answer
from transformer_lessons.checks.catalogue import TASKS
from transformer_lessons.checks.definitions import Mistake, Task
from transformer_lessons.checks.engine import judge
from transformer_lessons.checks.learner.adapter import Adapter, Reply
from transformer_lessons.checks.learner.local import Local, plain_session
from transformer_lessons.checks.message import write
from transformer_lessons.checks.report import Report, scored

__all__ = ["Adapter", "Local", "Mistake", "Reply", "Report", "Task", "check", "my_transformer", "require"]
__all__ += ["scored", "task", "tasks", "try_in_translator"]


def tasks() -> list[str]:
    """The names of all tasks, in the order of the chapters."""
    return list(TASKS)


def task(name: str) -> Task:
    """A task, with its requirements and mistakes; it is imported only now, as most programs need one.

    Raises:
        ValueError: if there is no task of that name.
    """
    if name not in TASKS:
        raise ValueError(f"task: expected one of {tasks()}, got {name!r}")
    return import_module(f"transformer_lessons.checks.catalogue.{name}").TASK


def check(task_name: str, candidate: Any, *, seed: int = 0) -> Report:
    """Try an answer and report what it does wrong; never raises because of the answer.

    Args:
        task_name: one of `tasks()`.
        candidate: the answer, or an `Adapter` to where it runs.
        seed: the seed of the arguments.

    Raises:
        ValueError: if there is no such task.
    """
    known = task(task_name)
    answer = Answer(known, candidate)
    with plain_session():
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


def require(task_name: str, candidate: Any, *, seed: int = 0) -> None:
    """Raise an error that says what is wrong with an answer; if it is right, print where the package's is.

    In a notebook, the numbers that differ are marked.

    Raises:
        AssertionError: with the report's message, if the answer is not right, or is the package's own.
        ValueError: if there is no such task.
    """
    __tracebackhide__ = True  # tells pytest to show the message, not these lines
    if str(getattr(candidate, "__module__", "")).startswith("transformer_lessons."):
        raise AssertionError(f"{task(task_name).public_name}: this is the package's own; write yours")
    report = check(task_name, candidate, seed=seed)
    is_shown = _display_report(report)
    if report.passed and "\n" in report.message and not is_shown:  # a remark
        print(report.message)
    if not report.passed:
        error = AssertionError(report.message)
        text = report.message.splitlines()[0] if is_shown else report.message
        error._render_traceback_ = lambda: [f"AssertionError: {text}"]  # tells IPython the same
        raise error
    module = task(task_name).solution[-1].__module__
    if ".catalogue." not in module:  # which has the answers that no other code uses
        print(f"Compare it with `{task(task_name).public_name}` in {module.replace('.', '/')}.py.")


def try_in_translator(task_name: str, candidate: Any) -> None:
    """Put an answer, right or wrong, into the trained translator, and print what it says for five numbers.

    Where this differs from what it says with the package's part, both are printed. In a notebook, maps show
    where attention looks, if the task changes that. An error of the answer is printed in a line. A pitfall: a
    translator that says the same as before is no proof that the answer is right; `require` tests more.

    Raises:
        ValueError: if there is no such task, or the translator has no such part.
    """
    from transformer_lessons.checks.translator import reading  # loads a model that few programs need

    known = reading.require_part(task(task_name))
    try:
        print(reading.as_text(known, reading.compare(known, candidate)))
        if task_name in reading.SHOWN_ATTENTION and _in_notebook():
            _display(reading.attention_html(known, candidate))
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        print(f"The trained translator breaks down with your {known.public_name}.\n{problem}")


def my_transformer(
    paths: Sequence[str | Path], *, fill: bool = False, output: str | Path = "runs/mine"
) -> None:
    """Build a Transformer of own parts from solved assignments: it is trained, compared, saved and tried.

    It prints whose each part is. A pitfall: the notebooks' code runs here with all your permissions.

    Args:
        paths: the notebooks; if several have a part, the last one's is used.
        fill: use the package's part where a notebook's answer is missing or not right.
        output: a folder for the run, for ``lessons translate --model runs/mine 421``.

    Raises:
        ValueError: without notebooks, for files that are not notebooks, and, without `fill`, for wrong parts.
    """
    from transformer_lessons.checks.translator.assembly import from_notebooks

    from_notebooks(paths, fill=fill, output=output)


def _display_report(report: Report) -> bool:
    """Display failures, with the numbers marked, and remarks in a notebook; return whether this is one."""
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
