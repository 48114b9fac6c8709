"""``lessons new-misconception``: one more known mistake, if it is one and not known already."""

import ast
import importlib
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from scaffold.files import anchor_of, filled, formatted, identifier, write
from scaffold.task import CATALOGUE
from transformer_lessons import checks
from transformer_lessons.checks.catalogue import TASKS

LEFT = (
    "its name (to the learner: “you …”), why people write it, and what it looks like from outside",
    "pytest tests/test_checks_catalogue.py -k {task} --full",
    "python -m benchmarks.check_table, then python -m book.syllabus: the page with all checks",
)


def new_misconception(
    task: str, name: str, step: str, code: str, anchor: str | None = None
) -> tuple[list[Path], list[str]]:
    """Begin a mistake: the file that was changed, and what is left to do.

    Args:
        task: whose catalogue it goes to.
        name: its id there.
        step: the step of the right answer that it replaces.
        code: what stands there instead.
        anchor: where the book explains it; the task's own without one.

    Raises:
        ValueError: for a task or step that does not exist, an id that is taken, code that does not run, an answer
            that is right after all, or one that makes a known mistake.
    """
    judged = checks.task(task)
    file, constant = TASKS[task].split(".")
    module = importlib.import_module(f"{checks.__name__}.catalogue.{file}")
    if identifier(name, "id") in {mistake.id for mistake in judged.mistakes} or hasattr(module, name.upper()):
        raise ValueError(f"id: expected a new one, {file}.py has {name!r} already")
    steps = [field.name for field in fields(judged.steps)]
    if step not in steps:
        raise ValueError(f"step: expected one of {', '.join(steps)}, got {step!r}")
    must_be_new(judged, {step: evaluated(code, module)})
    place = anchor_of(anchor) if anchor else judged.requirements[0].anchor
    values = {"constant": name.upper(), "name": name, "anchor": place, "step": step, "code": code}
    path = CATALOGUE / f"{file}.py"
    source = with_mistake(path.read_text(encoding="utf-8"), constant, filled("mistake.py.txt", **values))
    return write({}, {path: formatted(source, path)}), [line.format(task=task) for line in LEFT]


def evaluated(code: str, module: ModuleType) -> Any:
    """What the code stands for in the module.

    Raises:
        ValueError: if it does not run there.
    """
    try:
        return eval(code, dict(vars(module)))
    except Exception as error:
        raise ValueError(f"code: expected what runs in {Path(module.__file__).name}, got {error}") from None


def must_be_new(judged: checks.Task, variant: dict[str, Any]) -> None:
    """Refuse what is no mistake, and what has a name already.

    Raises:
        ValueError: for these.
    """
    report = checks.check(judged.name, judged.mistaken(variant))
    if report.passed:
        raise ValueError(f"code: expected a mistake; with it, {judged.name} meets all requirements")
    if report.misconception:
        known = " and ".join([report.misconception, *report.also])
        raise ValueError(
            f"code: expected a new mistake; with it, {judged.name} makes {known}, which is known"
        )


def with_mistake(source: str, constant: str, mistake: str) -> str:
    """A module's source with a mistake before the task of that name, and in the task's catalogue."""
    definitions = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    (task,) = [node for node in definitions if ast.unparse(node.targets[0]) == constant]
    (listed,) = [word.value for word in task.value.keywords if word.arg == "mistakes"]
    name, old = mistake.partition(" = ")[0], ast.get_source_segment(source, listed)
    # A tuple that is written out gets one more; one that has a name is unpacked into a new one.
    inner = old[1:-1].rstrip().removesuffix(",") if isinstance(listed, ast.Tuple) else f"*{old}"
    lines = source.splitlines(keepends=True)
    before, after = "".join(lines[: task.lineno - 1]), "".join(lines[task.lineno - 1 :])
    return f"{before}{mistake}\n{after.replace(f'mistakes={old}', f'mistakes=({inner}, {name})', 1)}"
