"""``lessons new-task``: a module of the catalogue with requirements, probes and mistakes, and right answers."""

from pathlib import Path

from scaffold.files import ROOT, anchor_of, filled, formatted, identifier, with_line, write
from transformer_lessons import checks

CATALOGUE = ROOT / "transformer_lessons" / "checks" / "catalogue"
LEFT = (
    "the example in the new module: replace it from top to bottom, and the right answers in tests/alternates/",
    "pytest tests/test_checks.py tests/test_checks_catalogue.py -k {name}",
    "an answer and its check, checks.require({name!r}, …), in a master under exercises/source/; make release",
    "SOLVES in exercises/autograder/flags/known.py: what of other libraries is the answer itself",
    "python -m benchmarks.check_table, then python -m book.syllabus: the page with all checks",
)


def new_task(name: str, anchor: str) -> tuple[list[Path], list[str]]:
    """Begin a task: the files that were written, and what is left to do.

    Args:
        name: what the learner's function, and the task, is called.
        anchor: where the book explains it; its chapter is the task's place among the others.

    Raises:
        ValueError: for a name that is none or taken, or an anchor that no chapter has.
    """
    if identifier(name) in checks.tasks():
        raise ValueError(f"name: expected a new one, there is a task {name!r} already")
    anchor, registry = anchor_of(anchor), CATALOGUE / "__init__.py"
    module, alternates = CATALOGUE / f"{name}.py", ROOT / "tests" / "alternates" / f"{name}.py"
    new = {
        module: formatted(filled("task.py.txt", name=name, anchor=anchor), module),
        alternates: formatted(filled("alternates.py.txt", name=name), alternates),
    }
    written = write(new, {registry: registered(registry.read_text(encoding="utf-8"), name, anchor)})
    return written, [line.format(name=name) for line in LEFT]


def registered(registry: str, name: str, anchor: str) -> str:
    """The catalogue's table with the new task after the last one of its chapter or an earlier one."""
    places = {task: checks.task(task).requirements[0].anchor for task in checks.tasks()}
    earlier = [task for task, place in places.items() if place[:5] <= anchor[:5]]
    beside = rf'^    "{earlier[-1]}": ' if earlier else r"^TASKS = \{"
    return with_line(registry, beside, f'    "{name}": "{name}.TASK",')
