"""What the text of a submission shows, none of which is run: the package's own code taken, a library's call.

Names are followed through imports, no further. What is got at in another way is seen when it runs, see `calls`.
"""

import ast
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping

from exercises.autograder.flags.known import (
    CHECKS,
    GIVEN,
    MODULES,
    MOST,
    OPEN,
    PACKAGE,
    READY,
    public,
    sentence,
    shown,
    solved,
)
from exercises.autograder.result import Flag

__all__ = ["answered", "in_source"]

PARSED = 100_000  # characters of a submission
PRELUDE = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "checks": CHECKS}
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)


def in_source(
    cells: Iterable[tuple[str | None, str]],
    tasks: Iterable[str],
    answers: Mapping[str, Collection[str]] = {},
) -> list[Flag]:
    """What a person should look at in the text of a submission; each thing once in a cell, at its first line.

    A library's call counts in answer cells only: who compares with F.layer_norm does what the course asks for.

    Args:
        cells: grade id (None for a cell of the learner's own) and text, without the assignment's locked cells.
        tasks: of the assignment's checks.
        answers: the tasks of answer cells by grade id, see `answered`. A cell that is not named there may answer
            any of `tasks`.
    """
    tasks, left = set(tasks), PARSED
    trees = []
    for cell, text in cells:
        left -= len(text)
        if left >= 0 and (tree := _parsed(text)):
            trees.append((cell, text.splitlines(), tree))
    names = PRELUDE | dict(name for *_, tree in trees for name in _imported(tree))
    allowed = OPEN | {full for task in tasks for full in GIVEN.get(task, ())}
    flags: dict[tuple, Flag] = {}
    for cell, lines, tree in trees:
        solves = answers.get(cell, tasks) if cell else ()
        for number, full in _taken(tree, names):
            if seen := _seen(full, allowed, solves):
                line = shown(lines[number - 1]) if number <= len(lines) else ""
                flags.setdefault((cell, *seen), Flag(*seen, cell, line))
    return list(flags.values())[:MOST]


def answered(cells: Iterable[tuple[str | None, str]]) -> dict[str, frozenset[str]]:
    """The tasks that an answer cell is for: those that are checked in the cells whose ids begin alike.

    Args:
        cells: grade id and text of all code cells of a master, or of what students get of it.
    """
    texts = {cell: text for cell, text in cells if cell}
    found = {}
    for answer in (cell for cell in texts if cell.endswith("-answer")):
        stem = answer.removesuffix("answer")
        own = "\n".join(text for cell, text in texts.items() if cell.startswith(stem))
        found[answer] = frozenset(re.findall(r"checks\.(?:check|require)\(\s*\"(\w+)\"", own))
    return {cell: tasks for cell, tasks in found.items() if tasks}


def _parsed(text: str) -> ast.Module | None:
    """As Python, with or without IPython's magics; None for what does not run anyway."""
    for python in (text, MAGIC.sub(r"\1pass", text)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of strange escapes
                return ast.parse(python)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that imports give, with the full names of what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _taken(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The line and the full name of whatever is imported, or used by a name that an import gave."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(module=str()):
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
            case ast.Name() | ast.Attribute() if full := _full(node, names):
                yield node.lineno, full
            case _:
                left += reversed(list(ast.iter_child_nodes(node)))


def _full(node: ast.AST, names: Mapping[str, str]) -> str:
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    root = names.get(node.id, "") if isinstance(node, ast.Name) else ""
    return ".".join([root, *reversed(path)]) if root else ""


def _seen(full: str, allowed: set[str], tasks: Collection[str]) -> tuple[str, str] | None:
    """Kind and text of the flag that a name deserves, if any."""
    root = full.split(".")[0]
    if root == PACKAGE:
        is_open = full in MODULES or any(f"{full}.".startswith(f"{name}.") for name in allowed)
        return (
            None if is_open else ("package", f"Takes {shown(full)}, which the assignment does not hand over.")
        )
    if root == "torch" and (those := solved(public(full), tasks)):
        return "library", sentence(public(full), those)
    if root in READY and tasks:
        return "library", f"Uses {root}, which may have it ready-made."
    return None
