"""The same Python with other names for local variables: as another would write it, or hide a copy.

What is computed stays the same; comments and layout are lost, as `ast.unparse` writes the text anew.
"""

import ast
import builtins
import itertools
import keyword
import random
from collections.abc import Iterator

__all__ = ["renamed", "words_of"]

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
PYTHON = {*keyword.kwlist, *dir(builtins)}


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
    taken = words_of(tree) | PYTHON
    new: dict[str, str] = {}
    for name in sorted(_local(tree)):
        if chance.random() < often:
            new[name] = next(one for one in _likely(name, chance) if one not in taken)
            taken.add(new[name])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    return ast.unparse(tree)


def words_of(tree: ast.AST) -> set[str]:
    """All names in a text, whatever they stand for."""
    fields = ("id", "arg", "name", "asname", "attr", "rest")
    words = (getattr(node, field, None) for node in ast.walk(tree) for field in fields)
    return {word for word in words if isinstance(word, str)}


def _local(tree: ast.AST) -> set[str]:
    """Names that are variables of functions wherever they stand, and nothing else as well."""
    stored, other = set(), set()
    for scope in _scopes(tree):
        names = [node for node in scope if isinstance(node, ast.Name)]
        given = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        is_function = isinstance(scope[0], FUNCTIONS)
        stored |= given if is_function else set()
        other |= {node.id for node in names} - (given if is_function else set())
    for node in ast.walk(tree):
        # Arguments, functions, modules, exceptions and what a pattern catches.
        other |= {getattr(node, field, None) for field in ("arg", "name", "asname", "rest")}
        other |= set(node.names) if isinstance(node, ast.Global | ast.Nonlocal) else set()
    return stored - other - {"_"}


def _scopes(tree: ast.AST) -> list[list[ast.AST]]:
    """What is in each function that is in no other, behind the function, and, first, all else."""
    rest, found, left = [], [], [tree]
    while left:
        node = left.pop()
        if isinstance(node, FUNCTIONS):
            body = node.body if isinstance(node.body, list) else [node.body]
            found.append([node, *(inner for part in body for inner in ast.walk(part))])
            # Defaults and decorators are looked up outside.
            left += [part for part in ast.iter_child_nodes(node) if part not in body]
        else:
            rest.append(node)
            left += ast.iter_child_nodes(node)
    return [rest, *found]


def _likely(name: str, chance: random.Random) -> Iterator[str]:
    """What else a variable may be called."""
    shorter = [name[0], name[:3], name.partition("_")[0], name.replace("_", ""), f"{name[0]}_"]
    names = [*shorter, f"{name}s", f"{name}_", f"my_{name}", f"new_{name}"]
    yield from chance.sample(names, len(names))
    yield from (f"{name}{number}" for number in itertools.count(2))
