"""The same Python with other names for local variables: as another would write it, or hide a copy.

What is computed stays the same; comments and layout are lost, as `ast.unparse` writes the text anew.
"""

import ast
import builtins
import itertools
import keyword
import random
from collections.abc import Iterator

__all__ = ["renamed"]

NAMING = ("id", "arg", "name", "asname", "attr", "rest")  # fields that hold names, whatever they stand for


def renamed(source: str, chance: random.Random, often: float = 1.0) -> str:
    """A text with other names for the variables that functions have of their own.

    Args:
        source: Python; what cannot be parsed comes back as it is.
        chance: where the names are drawn from.
        often: the chance of each variable to get another name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    words = {getattr(node, field, None) for node in ast.walk(tree) for field in NAMING}
    taken = {*words, *keyword.kwlist, *dir(builtins)}
    new: dict[str, str] = {}
    for name in sorted(_local(tree)):
        if chance.random() < often:
            new[name] = next(other for other in _likely(name, chance) if other not in taken)
            taken.add(new[name])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    return ast.unparse(tree)


def _likely(name: str, chance: random.Random) -> Iterator[str]:
    """What else a variable may be called."""
    shorter = [name[0], name[:3], name.partition("_")[0], name.replace("_", ""), f"{name[0]}_"]
    names = [*shorter, f"{name}s", f"{name}_", f"my_{name}", f"new_{name}"]
    yield from chance.sample(names, len(names))
    yield from (f"{name}{number}" for number in itertools.count(2))


def _local(tree: ast.Module) -> set[str]:
    """Names that are variables of functions wherever they stand, and nothing else as well."""
    local, other = set(), {"_"}
    for part in tree.body:
        names = [node for node in ast.walk(part) if isinstance(node, ast.Name)]
        is_function = isinstance(part, ast.FunctionDef)
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store) and is_function}
        local |= stored
        other |= {node.id for node in names} - stored
        outside = [part.args, *part.decorator_list] if is_function else []
        other |= {node.id for inner in outside for node in ast.walk(inner) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        # Arguments, functions, modules, exceptions and what a pattern catches.
        other |= {getattr(node, field, None) for field in NAMING if field not in ("id", "attr")}
        other |= set(node.names) if isinstance(node, ast.Global | ast.Nonlocal) else set()
    return local - other
