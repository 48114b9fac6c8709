"""Hints for a person: what solves a task by a library's call, or gets at the package's own answers.

No mark depends on them. `in_source` reads the text of a submission where the tests run, and runs none of it;
what was noticed where the learner's code runs comes in by `from_calls`.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from exercises.autograder.flags.calls import shown
from exercises.autograder.flags.known import (
    GIVEN,
    HIDING,
    MODULES,
    MOST,
    OPEN,
    PACKAGE,
    READY,
    WATCHED,
    public,
    sentence,
    solved,
)
from exercises.autograder.flags.names import IMPORTERS, chain, resolved, scope_of, text_of
from exercises.autograder.flags.text import CODE_MAGICS, LINES, RUNNERS, Unit, spread, units_of
from exercises.autograder.result import Flag

__all__ = ["answered", "in_source"]

PARSED = 100_000  # characters of a submission that are parsed; beyond, each line is searched
SEARCHED = 2_000_000  # characters of a submission that are searched
SEARCHED_LINE = 5_000  # characters of a line that are searched

OF_ONE = {  # these read the source of what they are handed
    *(
        f"inspect.{name}"
        for name in ("getsource", "getsourcelines", "getsourcefile", "getfile", "findsource")
    ),
    *("inspect.getmodule", "dis.dis", "dis.Bytecode", "dis.get_instructions", "dill.source.getsource"),
}
READERS = OF_ONE | {
    *("inspect.stack", "inspect.currentframe", "sys._getframe", "sys._current_frames", "sys.addaudithook"),
    *("linecache", "pkgutil.get_data", "pkgutil.get_loader", "importlib.resources", "importlib.reload"),
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "runpy.run_module", "runpy.run_path"),
    *("zipimport", "tokenize.open", "site.getsitepackages", "sysconfig.get_path", "sysconfig.get_paths"),
    "sys.modules",
}
INSIDE = {
    *("__globals__", "__code__", "__closure__", "__subclasses__", "__loader__"),
    *("f_globals", "f_locals", "f_back", "tb_frame", "gi_frame"),
}
OF_TASKS = {"define"}  # of what checks.task returns: gives what a text defines
MAGICS_OF_ONE = {"pinfo2", "psource", "pfile"}
MAGICS = MAGICS_OF_ONE | {"load", "loadpy", "pycat", "edit"}
COMMANDS = {"system", "system_raw", "system_piped", "getoutput"}  # IPython's methods for !
HARMLESS = {"dir", "help", "print", "repr", "str", "type"}  # functions that may be handed a module

SITE = r"site-packages|dist-packages"
# In a text, a module or file of the package, `checks` itself left out; and the package alone.
IN_TEXT = re.compile(rf"{PACKAGE}(?!\.checks\b(?![./\\]))[./\\][\w*?]|^{PACKAGE}$|{SITE}")
IN_COMMAND = re.compile(rf"\b{PACKAGE}\b|{SITE}")
INSTALLS = re.compile(r"\s*(python\S* -m )?(pip|uv|conda|lessons)\b")


def in_source(
    cells: Iterable[tuple[str | None, str]],
    tasks: Iterable[str],
    answers: Mapping[str, Collection[str]] | None = None,
) -> list[Flag]:
    """What a person should look at in the text of a submission. Nothing of it is run or imported.

    A library's call counts where it may take part in an answer: in an answer cell, in what such a cell uses, and
    in what defines its names anew. Who only compares with F.layer_norm does what the course asks for.

    Args:
        cells: grade id (None for a cell of the learner's own) and text, without the assignment's locked cells.
        tasks: of the assignment's checks.
        answers: the tasks of answer cells by grade id, see `answered`. A cell that is not named there may answer
            any of `tasks`, and what one of these is about counts for none.
    """
    tasks = frozenset(tasks)
    units: list[Unit] = []
    flags: list[Flag] = []
    characters = 0
    for cell, text in cells:
        characters += len(text)
        group = frozenset((answers or {}).get(cell or "", tasks))
        text = text.encode("utf-8", "replace").decode()
        found = units_of(cell, text, group) if characters <= PARSED else None
        units += found or []
        if found is None:
            # What does not parse does not run: a call is only of interest if somebody has to see to it anyway.
            counts = group if cell or characters > PARSED else frozenset()
            flags += _searched(cell, text, counts) if characters <= SEARCHED else [_unread(cell)]
    spread(units)
    reader = _Reader(units, tasks)
    return _once([*(flag for unit in units for flag in reader.flags(unit)), *flags])


def answered(cells: Iterable[tuple[str | None, str]]) -> dict[str, frozenset[str]]:
    """The tasks that an answer cell is for: those that are checked in the cells whose ids begin alike.

    Args:
        cells: grade id and text of all code cells of a master, or of what students get of it.
    """
    named = {cell: text for cell, text in cells if cell}
    found = {}
    for answer in (cell for cell in named if cell.endswith("-answer")):
        stem = answer.removesuffix("answer")
        own = "\n".join(text for cell, text in named.items() if cell.startswith(stem))
        found[answer] = frozenset(re.findall(r"checks\.(?:check|require)\(\s*\"(\w+)\"", own))
    return {cell: tasks for cell, tasks in found.items() if tasks}


def _once(flags: Iterable[Flag]) -> list[Flag]:
    """Each thing once in a cell, at the first line of it."""
    kept: dict[tuple, Flag] = {}
    for flag in flags:
        kept.setdefault((flag.kind, flag.text, flag.cell), flag)
        if len(kept) == MOST:
            break
    return list(kept.values())


Seen = Iterator[tuple[str, str]]  # kinds and texts of flags


class _Reader:
    """Looks through statements.

    Args:
        units: all of the notebook.
        tasks: all of the assignment.
    """

    def __init__(self, units: list[Unit], tasks: Iterable[str]):
        self._given = {name for task in tasks for name in GIVEN.get(task, ())}
        self._scope = scope_of((node for unit in units for node in unit.parts), self._given)
        self._defined = {unit.name for unit in units}
        self._bound = {name for unit in units for name in unit.binds}
        self._names = {name for unit in units for node in unit.parts for name in _named_by(node)}

    def flags(self, unit: Unit) -> Iterator[Flag]:
        """What is to be said of a statement."""
        passed: set[int] = set()  # parts of what was looked at as a whole
        for node in unit.parts:
            if id(node) not in passed:
                for kind, text in self._seen(node, unit, passed):
                    yield Flag(kind, text, unit.cell, _line(unit, node))

    def _seen(self, node: ast.AST, unit: Unit, passed: set[int]) -> Seen:
        match node:
            case ast.Expr(value=ast.Constant()):
                passed.add(id(node.value))  # a docstring
            case ast.Import() | ast.ImportFrom():
                yield from self._imported(node, unit)
            case ast.Assign(value=value) if all(isinstance(target, ast.Name) for target in node.targets):
                self._pass(value, MODULES, passed)  # an alias, which `scope_of` knows
            case ast.Compare(comparators=[where]):  # whether it is in sys.modules
                self._pass(where, {"sys.modules"}, passed)
            case ast.Constant() | ast.BinOp() | ast.JoinedStr():
                yield from _told(text_of(node) or "", IN_TEXT)
            case ast.Call():
                yield from self._called(node, passed)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            yield from self._named(node, unit, passed)

    def _pass(self, node: ast.AST, names: set[str], passed: set[int]) -> None:
        """What stands for one of these is in order here."""
        if self._resolved(node) & names:
            passed.update(map(id, chain(node)))

    def _imported(self, node: ast.Import | ast.ImportFrom, unit: Unit) -> Seen:
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            full = module + alias.name
            if full.split(".")[0] == PACKAGE and full not in MODULES and not self._is_open(full):
                yield _of_package(full)
            elif full == PACKAGE and alias.asname:
                yield "package", f"Gives {PACKAGE} another name."
            elif full.split(".")[0] == "torch":
                yield from _of_torch(full, unit)

    def _named(self, node: ast.AST, unit: Unit, passed: set[int]) -> Seen:
        """Of an expression that stands for something by name."""
        if isinstance(node, ast.Attribute) and node.attr in INSIDE:
            yield "source", f"Looks inside code: {node.attr}."
        elif isinstance(node, ast.Attribute) and node.attr in OF_TASKS - self._names:
            yield "package", f"Uses what a check's task has: {node.attr}."
        is_given_a_value = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        found = set() if is_given_a_value else self._resolved(node)
        if found:
            passed.update(map(id, chain(node)))
        for name in sorted(found):
            yield from self._mentioned(name, unit, getattr(node, "ctx", None))

    def _mentioned(self, name: str, unit: Unit, context: Any) -> Seen:
        root = name.split(".")[0]
        if root == PACKAGE:
            if name in MODULES:
                yield "package", f"Hands {name} on as a whole."
            elif not self._is_open(name):
                yield _of_package(name)
            elif isinstance(context, ast.Store | ast.Del):
                yield "package", f"Changes {shown(name)}."
        elif root == "torch":
            yield from _of_torch(name, unit)
        elif root in READY and unit.groups:
            yield "library", f"Uses {root}, which may have it ready-made."
        elif any(name == reader or name.startswith(f"{reader}.") for reader in READERS):
            yield "source", f"May read other code: {shown(name)}."

    def _called(self, node: ast.Call, passed: set[int]) -> Seen:
        """Of what a call does, beside naming things."""
        called = self._resolved(node.func) | ({node.func.id} if isinstance(node.func, ast.Name) else set())
        first = node.args[0] if node.args else None
        if called & HARMLESS:
            for arg in node.args:
                self._pass(arg, MODULES, passed)
        if called & OF_ONE and self._is_own(first):
            passed.update(map(id, chain(node.func)))
        is_unknown = first is not None and "?" in (text_of(first) or "?")
        if called & IMPORTERS and is_unknown:
            yield "package", "Imports a module whose name only shows when it runs."
        elif called & RUNNERS and is_unknown:
            yield "source", "Runs a text that only shows when it runs."
        if isinstance(node.func, ast.Attribute):
            yield from self._magic(node, node.func.attr, [text_of(arg) or "" for arg in node.args], passed)

    def _magic(self, node: ast.Call, method: str, texts: list[str], passed: set[int]) -> Seen:
        """Of the methods of IPython's that magics and commands are turned into."""
        if method in COMMANDS and texts:
            passed.update(map(id, node.args))
            yield from _told("" if INSTALLS.match(texts[0]) else texts[0], IN_COMMAND)
        elif method == "run_line_magic" and len(texts) > 1:
            is_own = texts[0] in MAGICS_OF_ONE and self._is_own(_expression(texts[1]))
            if texts[0] in MAGICS and not is_own:
                yield "source", f"Shows source text: %{texts[0]}."
        elif method == "run_cell_magic" and len(texts) > 2:
            passed.update(map(id, node.args))
            yield from _told("" if texts[0] in CODE_MAGICS else texts[2], IN_COMMAND)

    def _resolved(self, node: ast.AST) -> set[str]:
        return resolved(node, self._scope)

    def _is_open(self, name: str) -> bool:
        """Whether the assignment hands this over."""
        return any(name == one or name.startswith(f"{one}.") for one in OPEN | self._given)

    def _is_own(self, node: ast.AST | None) -> bool:
        """Whether this is torch's, or defined in the learner's cells or in locked ones."""
        found = self._resolved(node)
        if found:
            return all(name.split(".")[0] != PACKAGE for name in found)
        return isinstance(node, ast.Name) and (node.id in self._defined or node.id not in self._bound)


def _named_by(node: ast.AST) -> list[str]:
    """What the learner has given a name to, wherever it is known."""
    match node:
        case (
            ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store())
        ):
            return [name]
        case ast.FunctionDef(name=name):
            return [name]
    return []


def _of_package(name: str) -> tuple[str, str]:
    return "package", f"Takes {shown(name)}, which the assignment does not hand over."


def _of_torch(name: str, unit: Unit) -> Seen:
    if not HIDING.isdisjoint(name.split(".")):
        yield "library", f"Keeps calls of torch's functions from being seen: {shown(name)}."
    whole = public(name)
    tasks = sorted({task for group in unit.groups for task in solved(whole, group)})
    if tasks:
        yield "library", sentence(whole, tasks)


def _told(text: str, pattern: re.Pattern) -> Seen:
    if found := pattern.search(text):
        yield "source", f"Names the package's code in a text: {found[0]}."


def _expression(text: str) -> ast.AST | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _line(unit: Unit, node: ast.AST) -> str:
    number = getattr(node, "lineno", unit.parts[0].lineno)
    return shown(unit.lines[number - 1]) if number <= len(unit.lines) else ""


# In a text that cannot be parsed: patterns, and what they are a sign of.
SEARCHES = (
    (rf"(from|import)\s+{PACKAGE}\.(?!checks\b)\w+|from\s+{PACKAGE}\s+import\s+(?!checks\b)\w+", "package"),
    (rf"\bchecks\s*\.\s*(?!(check|require|tasks|Report)\b)\w+|import\s+{PACKAGE}\s+as\b", "package"),
    (rf"\b(getsource\w*|linecache|get_data|get_objects|_getframe|{'|'.join(sorted(INSIDE))})\b", "source"),
    (rf"^\s*%({'|'.join(sorted(MAGICS))})\b|\?\?|\b{PACKAGE}[/\\]|{SITE}", "source"),
    (rf"^\s*(import|from)\s+({'|'.join(sorted(READY))})\b", "library"),
)
PATTERNS = [(re.compile(pattern), kind) for pattern, kind in SEARCHES]
OF_SOMETHING = re.compile(r"\.\s*(\w{3,60})\b")
IMPORTED = re.compile(r"^\s*from\s+torch\b.*?\bimport\b(.*)")


def _searched(cell: str | None, text: str, group: frozenset[str]) -> list[Flag]:
    """The same of a text that cannot be parsed, roughly: line by line, without what stands behind a #."""
    flags: list[Flag] = []
    for line in LINES.split(text):
        code = line[:SEARCHED_LINE].partition("#")[0]
        found = [(kind, pattern.search(code)) for pattern, kind in PATTERNS]
        seen = [(kind, f"In what cannot be parsed: {shown(match[0])}.") for kind, match in found if match]
        imported = IMPORTED.search(code)
        words = OF_SOMETHING.findall(code) + (re.findall(r"\w+", imported[1]) if imported else [])
        for whole in dict.fromkeys(WATCHED[word] for word in words if word in WATCHED):
            if tasks := solved(whole, group):
                seen.append(("library", sentence(whole, tasks)))
        flags += [Flag(kind, said, cell, shown(line)) for kind, said in seen]
        if len(flags) >= MOST:
            break
    return flags


def _unread(cell: str | None) -> Flag:
    return Flag("source", f"Not read, as what stands before it has {SEARCHED:,} characters already.", cell)
