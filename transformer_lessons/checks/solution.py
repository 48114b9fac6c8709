"""Right answers for learners who gave up: ``lessons solution ps03 4`` prints one, and why it is right."""

import json
from importlib.resources import files

from transformer_lessons import checks


def solution(assignment: str, number: str) -> str:
    """The right answers to a task of an assignment, where checks know them, and the requirements on them.

    Args:
        assignment: the beginning of its name, such as "ps03".
        number: the number of the task.

    Raises:
        ValueError: if there is no such assignment, or no such task that a check knows.
    """
    known = json.loads((files("transformer_lessons.tools") / "assignments.json").read_text(encoding="utf-8"))
    name = next((name for name in known if name.startswith(assignment)), None)
    if name is None:
        raise ValueError(f"assignment: expected one of {', '.join(known)}, got {assignment!r}")
    solved = known[name]["checks"]
    if number not in solved:
        wanted = f"one of {', '.join(solved)} of {name}, the tasks whose answers the checks know"
        raise ValueError(f"task: expected {wanted}, got {number!r}")
    lines = []
    for task in map(checks.task, solved[number]):
        reasons = ";\n- ".join(requirement.text for requirement in task.requirements)
        lines += [task.source.rstrip(), f"It is right because\n- {reasons}."]
    return "\n\n".join(lines)
