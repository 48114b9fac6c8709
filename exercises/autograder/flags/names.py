"""What names in a program stand for, told from its text alone: aliases, ``getattr`` and the like are followed."""

import ast
from collections.abc import Iterable, Iterator, Mapping

from exercises.autograder.flags.known import CHECKS, LINE, WATCHED

__all__ = ["IMPORTERS", "Scope", "chain", "resolved", "scope_of", "text_of"]

Scope = Mapping[str, set[str]]  # the full names that a name may stand for

DEPTH = 20  # of names within names, such as getattr(getattr(…
PARTS = 100  # of a text
MEANINGS = 8  # of a name
PRELUDE = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "checks": CHECKS,
}  # of all assignments
IMPORTERS = {"importlib.import_module", "importlib.__import__", "builtins.__import__", "__import__"}
BINDING = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.NamedExpr)


def text_of(node: ast.AST | None) -> str | None:
    """The text that an expression is, with a ? for what only shows when it runs; None for what is no text."""
    parts, left = [], [node]
    while left and len(parts) < PARTS:
        part = left.pop()
        if isinstance(part, ast.BinOp):
            left += [part.right, part.left]
        elif isinstance(part, ast.JoinedStr):
            left += reversed(part.values)
        else:
            is_text = isinstance(part, ast.Constant) and isinstance(part.value, str)
            parts.append(part.value if is_text else "?")
    return None if set(parts) <= {"?"} else "".join(parts)


def resolved(node: ast.AST, scope: Scope) -> set[str]:
    """The full names of what an expression may stand for; none if it is not looked up by names."""
    path: list[str] = []
    for _ in range(DEPTH):
        step = _step(node, scope)
        if step is None:
            return {".".join([full, *reversed(path)]) for full in _found(node, scope)}
        node, name = step
        path.append(name)
    return set()


def _step(node: ast.AST, scope: Scope) -> tuple[ast.AST, str] | None:
    """For an attribute of something, in any of the ways to get it: what it is of, and its name."""
    match node:
        case ast.Attribute(value=value, attr=attr):
            return value, attr
        case (
            ast.Call(func=ast.Name(id="getattr"), args=[value, name, *_])
            | ast.Call(func=ast.Attribute(value=value, attr="__getattribute__"), args=[name])
            | ast.Subscript(value=ast.Attribute(value=value, attr="__dict__"), slice=name)
            | ast.Subscript(value=ast.Call(func=ast.Name(id="vars"), args=[value]), slice=name)
        ):
            text = text_of(name)
        case ast.Call(func=ast.Call(func=getter, args=[name]), args=[value]):
            text = text_of(name) if "operator.attrgetter" in resolved(getter, scope) else None
        case _:
            return None
    return (value, text) if text else None


def _found(node: ast.AST, scope: Scope) -> set[str]:
    """Of a name, and of what stands for one: ``sys.modules["torch.nn"]``, ``globals()["F"]`` and the like."""
    match node:
        case ast.Name(id=name):
            return scope.get(name, set())
        case ast.Call(func=function, args=[name, *_]) if _imports(function, scope):
            return {text_of(name) or ""} - {""}
        case ast.Subscript(
            value=ast.Call(func=ast.Name(id="globals" | "locals" | "vars"), args=[]), slice=name
        ):
            return scope.get(text_of(name) or "", set())
        case ast.Subscript(value=value, slice=name) if "sys.modules" in resolved(value, scope):
            return {text_of(name) or ""} - {""}
    return set()


def _imports(function: ast.AST, scope: Scope) -> bool:
    is_builtin = isinstance(function, ast.Name) and function.id == "__import__"
    return is_builtin or not resolved(function, scope).isdisjoint(IMPORTERS)


def chain(node: ast.AST) -> Iterator[ast.AST]:
    """An expression and what it is looked up in, on and on."""
    for _ in range(DEPTH):
        yield node
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[value, *_]):
                node = value
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Call(func=value):
                node = value
            case _:
                return


def scope_of(nodes: Iterable[ast.AST], given: Iterable[str]) -> dict[str, set[str]]:
    """What names may stand for anywhere in a notebook.

    Args:
        nodes: all statements, and all in them.
        given: full names of what the assignment imports for them.
    """
    scope = {name: {full} for name, full in PRELUDE.items()}
    for full in given:
        scope.setdefault(full.rpartition(".")[2], set()).add(full)
    binding = [node for node in nodes if isinstance(node, BINDING)]
    for _ in range(2):  # what an alias is an alias of may stand after it
        for node in binding:
            for name, full in list(_bound(node, scope)):
                if len(scope.setdefault(name, set())) < MEANINGS and len(full) <= LINE:
                    scope[name].add(full)
    return scope


def _bound(node: ast.AST, scope: Scope) -> Iterator[tuple[str, str]]:
    """The names that a statement gives to what has a full name."""
    match node:
        case ast.Import():
            for alias in node.names:
                root = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        case ast.ImportFrom(module=str()):
            for alias in node.names:
                names = _starred(node.module) if alias.name == "*" else [alias.name]
                yield from ((alias.asname or name, f"{node.module}.{name}") for name in names)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, value, scope)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield from _assigned(target, value, scope)


def _assigned(target: ast.AST, value: ast.AST, scope: Scope) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Name):
        yield from ((target.id, full) for full in resolved(value, scope))
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, its in zip(target.elts, value.elts, strict=False):
            if isinstance(one, ast.Name):
                yield from ((one.id, full) for full in resolved(its, scope))


def _starred(module: str) -> list[str]:
    """What ``from module import *`` gives, as far as it matters."""
    return [name.rpartition(".")[2] for name in WATCHED.values() if name.rpartition(".")[0] == module]
