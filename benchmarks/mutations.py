"""Small mistakes, one at a time, in a source file: what `benchmarks.mutants` lets the tests find."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

SWAPS = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,  # codespell:ignore
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.And: ast.Or,
    ast.BitAnd: ast.BitOr,
}
SWAPS |= {new: old for old, new in SWAPS.items()}

METHODS = {
    "tril": "triu",
    "sum": "mean",
    "min": "max",
    "amin": "amax",
    "argmin": "argmax",
    "sin": "cos",
    "ones": "zeros",
    "ones_like": "zeros_like",
    "any": "all",
    "floor": "ceil",
}
METHODS |= {new: old for old, new in METHODS.items()}
BUILT_IN = {"min", "max", "any", "all"}

# Annotations are jaxtyping's business, decorators without arguments hold nothing to change.
UNTOUCHED = {"annotation", "returns", "type_comment"}
FOR_PEOPLE = {"help", "metavar", "description"}  # words of a command line, like those of a message
DROPPED = (ast.Expr, ast.AugAssign, ast.Break, ast.Continue, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """One change of one module: where, what, and the whole changed source.

    `lines` are the first and last line that run when the changed place does; None means on import.
    """

    module: str
    line: int
    column: int
    kind: str
    before: str
    after: str
    text: str
    lines: tuple[int, int] | None
    source: str

    @property
    def mutation(self) -> str:
        """What was changed, without the place."""
        return f"{self.kind}: {self.before} → {self.after}"

    @property
    def id(self) -> str:
        """Place and change: unique within one version of a file."""
        return f"{self.module}:{self.line}:{self.column} {self.mutation}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a source; of those that come to the same file only the first.

    A pitfall: `ast.unparse` loses comments and moves lines, so only `line` and `lines` refer to the original.
    """
    tree, texts = ast.parse(source), source.splitlines()
    seen = {ast.unparse(tree)}
    for kind, node, new, put, lines in _places(tree, None):
        put(new)
        changed = ast.unparse(tree)
        put(node)
        if changed in seen:
            continue
        seen.add(changed)
        before, after = ast.unparse(node), ast.unparse(new)
        text = texts[node.lineno - 1].strip()
        yield Mutant(module, node.lineno, node.col_offset, kind, before, after, text, lines, changed)


def _places(parent: ast.AST, lines: tuple[int, int] | None) -> Iterator[tuple]:
    """Every (kind, old node, new node, function that puts either in place, lines) below a node."""
    for field, value in ast.iter_fields(parent):
        if field in UNTOUCHED:
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or _left_alone(node):
                continue
            inner = _reach(node, lines)

            def put(new, value=value, index=index, field=field):
                if isinstance(value, list):
                    value[index] = new
                else:
                    setattr(parent, field, new)

            for kind, new in _variants(parent, field, node):
                yield kind, node, new, put, inner
            yield from _places(node, inner)


def _left_alone(node: ast.AST) -> bool:
    """Docstrings, imports, module names like __all__, and blocks that only type checkers or scripts run."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith("__")
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test) or "__name__" in ast.unparse(test)
    return False


def _reach(node: ast.AST, outer: tuple[int, int] | None) -> tuple[int, int] | None:
    """The lines that run whenever this node does: its statement's own, of a compound one the head.

    Defaults and decorators run on import; it is the tests of the function that notice them.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.body[0].lineno, node.end_lineno
    if not isinstance(node, ast.stmt) or outer is None:
        return outer
    body = getattr(node, "body", None)
    return node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno


def _changed(node: ast.AST, **fields) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _variants(parent: ast.AST, field: str, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node may become, by kind."""
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
        conditional = isinstance(parent, ast.If | ast.IfExp | ast.While) and field == "test"
        same = isinstance(node, ast.Compare) and len(node.ops) == 1 and not _ordered(node.ops[0])
        if (conditional or field == "ifs") and not same and not isinstance(node, ast.UnaryOp):
            yield "condition", ast.UnaryOp(ast.Not(), node)
        if field in ("defaults", "kw_defaults") and isinstance(getattr(node, "value", None), str):
            yield "default", ast.Constant(node.value + "!")
    elif isinstance(node, ast.stmt):
        stored = isinstance(node, ast.Assign) and all(isinstance(x, ast.Subscript) for x in node.targets)
        if isinstance(node, DROPPED) or stored:
            yield "dropped", ast.Pass()
        if isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
            yield "operator", _changed(node, op=SWAPS[type(node.op)]())
        if isinstance(node, ast.Return) and not _is_none(node.value):
            yield "return", ast.Return(ast.Constant(None))


def _ordered(operator: ast.cmpop) -> bool:
    """Whether the swapped operator is something else than the negation."""
    return isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _is_none(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(ops=ops):
            for i, operator in enumerate(ops):
                yield "comparison", _changed(node, ops=[*ops[:i], SWAPS[type(operator)](), *ops[i + 1 :]])
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPS:
            yield "operator", _changed(node, op=SWAPS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield "sign", operand
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(2 * value if value else 1.0)
        case ast.Call(func=function, keywords=keywords):
            for keyword in keywords:
                if keyword.arg and keyword.arg not in FOR_PEOPLE:
                    yield "keyword", _changed(node, keywords=[k for k in keywords if k is not keyword])
            match function:
                case ast.Attribute(attr=name) if name in METHODS:
                    yield "method", _changed(node, func=_changed(function, attr=METHODS[name]))
                case ast.Name(id=name) if name in BUILT_IN:
                    yield "method", _changed(node, func=ast.Name(METHODS[name]))
