"""The text of a notebook as statements, each with the tasks that it may take part in an answer to."""

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass, field

from exercises.autograder.flags.names import text_of

__all__ = ["CODE_MAGICS", "LINES", "RUNNERS", "Unit", "spread", "units_of", "without_magics"]

NESTED = 3  # how deep a text that is run may lie in others
LINES = re.compile(r"\r\n|\r|\n")
CODE_MAGICS = {"time", "timeit", "prun", "memit", "mprun", "lprun", "capture"}  # with Python behind them
RUNNERS = {"exec", "eval", "compile"}


@dataclass(eq=False)
class Unit:
    """A statement at the top of a cell.

    Attributes:
        cell: its grade id.
        parts: the statement and all in it, from the outside in.
        lines: the cell's.
        binds: names that it defines or changes.
        needs: names that it uses without defining them.
        groups: the tasks that it may take part in an answer to; several groups if several answers use it.
    """

    cell: str | None
    parts: list[ast.AST]
    lines: list[str]
    binds: set[str]
    needs: set[str]
    groups: set[frozenset[str]] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Of what it defines, if it is a function or a class."""
        return getattr(self.parts[0], "name", "")


def units_of(cell: str | None, text: str, group: frozenset[str], depth: int = 0) -> list[Unit] | None:
    """The statements of a cell, and of the texts in it that it runs; None if it cannot be parsed.

    Args:
        cell: its grade id, or None for a cell that is no answer by itself.
        text: Python, with magics.
        group: the tasks that it is an answer to.
        depth: how deep the text lies in others.
    """
    tree = _parsed(text) if depth <= NESTED else None
    if tree is None:
        return None
    lines = LINES.split(text)
    parts = [list(ast.walk(node)) for node in tree.body]
    units = [Unit(cell, these, lines, *_names(these), {group} if cell else set()) for these in parts]
    for inner in filter(None, (_code_in(node) for these in parts for node in these)):
        units += units_of(cell, inner, group, depth + 1) or []
    return units


def _parsed(text: str) -> ast.Module | None:
    for python in (str, without_magics):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of strange escapes
                return ast.parse(python(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


PROMPT = re.compile(r"^[ \t]*(>>>|\.\.\.:?|In \[\d+\]:) ?", re.MULTILINE)
ASSIGNED = re.compile(r"([^=!%#(]*[\w\]] *= *)([%!])(.*)")
CALLED = re.compile(r"([/,;])([\w.]+)(.*)")


def without_magics(text: str) -> str:
    """Python for what IPython adds to it: what IPython makes of it, line by line.

    IPython's own transformer reads a cell anew for each magic: 20,000 characters of them take it a minute.
    """
    if PROMPT.match(text.lstrip()):
        text = PROMPT.sub("", text)
    text = textwrap.dedent(text)
    if text.lstrip().startswith("%%"):
        head, _, body = text.lstrip().partition("\n")
        name, _, rest = head[2:].partition(" ")
        return f"get_ipython().run_cell_magic({name!r}, {rest!r}, {body!r})"
    return "\n".join(map(_without_magic, LINES.split(text)))


def _without_magic(line: str) -> str:
    indent, bare = line[: len(line) - len(line.lstrip())], line.strip()
    if bare[:1] == "%":
        return indent + _line_magic(bare[1:])
    if bare[:1] == "!":
        return indent + _command("getoutput" if bare[:2] == "!!" else "system", bare.lstrip("!"))
    if "?" in (bare[:1], bare[-1:]):
        name = "pinfo2" if "??" in (bare[:2], bare[-2:]) else "pinfo"
        return f"{indent}get_ipython().run_line_magic({name!r}, {bare.strip('?').strip()!r})"
    if found := ASSIGNED.fullmatch(line):
        what = _line_magic(found[3]) if found[2] == "%" else _command("getoutput", found[3])
        return found[1] + what
    if found := CALLED.fullmatch(bare):
        words = [found[3].strip()] if found[1] == ";" else found[3].split()
        return f"{indent}{found[2]}({', '.join(words if found[1] == '/' else map(repr, words))})"
    return line


def _line_magic(text: str) -> str:
    name, _, rest = text.strip().partition(" ")
    return f"get_ipython().run_line_magic({name!r}, {rest.strip()!r})"


def _command(method: str, text: str) -> str:
    return f"get_ipython().{method}({text!r})"


def _code_in(node: ast.AST) -> str | None:
    """Python in a text that this call runs."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    texts = [text_of(arg) for arg in node.args]
    if isinstance(node.func, ast.Name) and node.func.id in RUNNERS:
        return texts[0]
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if method == "run_line_magic":
        return texts[-1] if texts[0] in CODE_MAGICS else None
    return texts[-1] if method in ("run_cell_magic", "run_cell", "ex", "ev") else None


def _names(parts: list[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that a statement defines or changes, and those that it uses without defining them."""
    stored, loaded, early = set(), set(), set()
    for part in parts:
        match part:
            case ast.Name(id=name, ctx=context):
                (loaded if isinstance(context, ast.Load) else stored).add(name)
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                stored.add(_root(part))
            case (
                ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                stored.add(name)
            case ast.alias(name=name, asname=other):
                stored.add(other or name.split(".")[0])
            case ast.arguments(defaults=defaults, kw_defaults=more):  # looked up outside
                early |= {value.id for value in (*defaults, *more) if isinstance(value, ast.Name)}
    defined = getattr(parts[0], "name", None)  # what a function has inside is nobody else's
    return ({defined} if defined else stored), (loaded - stored) | early


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def spread(units: list[Unit]) -> None:
    """A statement also takes part in the answers that use what it defines, or whose names it defines anew."""
    binding: dict[str, list[Unit]] = {}
    for unit in units:
        for name in unit.binds:
            binding.setdefault(name, []).append(unit)
    reached: dict[str, set[frozenset[str]]] = {}
    waiting = [(name, set(unit.groups)) for unit in units if unit.groups for name in unit.needs | unit.binds]
    while waiting:
        name, groups = waiting.pop()
        new = groups - reached.setdefault(name, set())
        reached[name] |= new
        for other in binding.get(name, ()) if new else ():
            fresh = new - other.groups
            other.groups |= fresh
            waiting += [(its, fresh) for its in other.needs | other.binds if fresh]
