"""Hints for a person: what solves a task by a library's call, or gets at the package's own answers.

The text of a submission shows what is imported of the package; `calls` notes what is called, imported and read
while it runs; `known` is what both look for. No mark depends on them, and whoever wants to can hide.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exercises.autograder.flags.known import (
    LINE,
    MODULES,
    MOST,
    OPEN,
    PACKAGE,
    READY,
    sentence,
    shown,
    solved,
)
from exercises.autograder.result import Flag

__all__ = ["answered", "seen"]

PARSED = 100_000  # characters of a cell
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
TASK = re.compile(r"checks\.(?:check|require)\(\s*\"(\w+)\"")


def seen(cells: Iterable[tuple[str | None, str]], given: Mapping[str, str], notes: Any) -> list[Flag]:
    """What a person should look at in a submission; each thing once in a cell, at its first line.

    Args:
        cells: grade id (None for a cell of the learner's own) and text of the learner's code cells.
        given: the assignment's own code cells by grade id; what "…imports" imports may be used.
        notes: what was noted while it ran: a list of {"what": "call", "import" or "read", "name": …, "line": …},
            from the learner's process. Whatever has another form, means nothing, or is too much, is left out.
    """
    trees = [(cell, text.splitlines(), tree) for cell, text in cells if (tree := _parsed(text))]
    imports = (_parsed(text) for cell, text in given.items() if cell.endswith("imports"))
    handed_over = [name for tree in imports if tree for name in _imported(tree)]
    names = dict(handed_over + [name for *_, tree in trees for name in _imported(tree)])
    allowed = OPEN | {full for _, full in handed_over} - MODULES
    flags: dict[tuple, Flag] = {}
    for cell, lines, tree in trees:
        for number, full in _taken(tree, names):
            if said := _about(full, allowed, is_answer=bool(cell)):
                flags.setdefault((cell, *said), Flag(*said, cell, shown("".join(lines[number - 1 : number]))))
    tasks = answered(given)
    kept = [note for note in notes[:MOST] if _is_note(note)] if type(notes) is list else []
    for note in kept:
        cell = next((cell for cell, lines, _ in trees if _has(lines, note["line"])), None)
        asked = tasks.get(cell) or set(TASK.findall("\n".join(given.values())))
        if said := _noted(note["what"], note["name"], asked, allowed):
            flags.setdefault((cell, *said), Flag(*said, cell, shown(note["line"])))
    return list(flags.values())[:MOST]


def answered(given: Mapping[str, str]) -> dict[str, set[str]]:
    """The tasks that an answer cell is for: those that are checked in the cells whose ids begin alike.

    Args:
        given: the assignment's own code cells, by grade id.
    """
    found: dict[str, set[str]] = {}
    for cell, text in given.items():
        if tasks := TASK.findall(text):
            found.setdefault(f"{cell.rpartition('-')[0]}-answer", set()).update(tasks)
    return found


# ---- In the text


def _parsed(text: str) -> ast.Module | None:
    """As Python, with or without IPython's magics; None for what does not run anyway."""
    for python in (text, MAGIC.sub(r"\1pass", text)) if len(text) <= PARSED else ():
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


def _about(full: str, allowed: set[str], *, is_answer: bool) -> tuple[str, str] | None:
    """Kind and text of the flag that a name deserves, if any; who compares may use any library."""
    root = full.split(".")[0]
    if root in READY and is_answer:
        return "library", f"Uses {root}, which may have it ready-made."
    is_open = full in MODULES or any(f"{full}.".startswith(f"{name}.") for name in allowed)
    if root != PACKAGE or is_open:
        return None
    return "package", f"Takes {shown(full)}, which the assignment does not hand over."


# ---- While it runs


def _is_note(note: Any) -> bool:
    if type(note) is not dict or note.keys() != {"what", "name", "line"}:
        return False
    return all(type(value) is str and len(value) <= LINE for value in note.values())


def _has(lines: list[str], line: str) -> bool:
    return bool(line) and any(text.strip()[:LINE] == line for text in lines)


def _noted(what: str, name: str, tasks: set[str], allowed: set[str]) -> tuple[str, str] | None:
    """Kind and text of the flag that a note deserves, if any."""
    if what == "call" and (those := solved(name, tasks)):
        return "library", f"When it ran: {sentence(name, those)}"
    is_open = any(f"{full}.".startswith(f"{name}.") for full in allowed)
    if what == "import" and re.fullmatch(rf"{PACKAGE}(\.[A-Za-z_]\w*)+", name, re.ASCII) and not is_open:
        return "package", f"When it ran, a cell imported {name}."
    if what == "read" and re.fullmatch(r"[\w/.-]+\.pyc?", name, re.ASCII):
        return "source", f"When it ran, a cell read {PACKAGE}/{name}."
    return None
