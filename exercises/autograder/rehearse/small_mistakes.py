"""Small mistakes, one at a time: a sign, a constant, a comparison, a dropped line, tril for triu."""

import ast
import copy
from collections.abc import Callable, Iterator

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


def small_mistakes(source: str) -> Iterator[str]:
    """A source with one small mistake, for each there is; of those that come to the same only the first.

    A pitfall: `ast.unparse` loses comments and moves lines.
    """
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for node, new, put in _places(tree):
        put(new)
        changed = ast.unparse(tree)
        put(node)
        if changed not in seen:
            seen.add(changed)
            yield changed


def _places(parent: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, Callable]]:
    """Every old node, what it may become, and a function that puts either in place, below a node."""
    for field, value in ast.iter_fields(parent):
        if field in UNTOUCHED:
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or _left_alone(node):
                continue

            def put(new, value=value, index=index, field=field):
                if isinstance(value, list):
                    value[index] = new
                else:
                    setattr(parent, field, new)

            for new in _variants(parent, field, node):
                yield node, new, put
            yield from _places(node)


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


def _changed(node: ast.AST, **fields) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _variants(parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become."""
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
        conditional = isinstance(parent, ast.If | ast.IfExp | ast.While) and field == "test"
        same = isinstance(node, ast.Compare) and len(node.ops) == 1 and not _ordered(node.ops[0])
        if (conditional or field == "ifs") and not same and not isinstance(node, ast.UnaryOp):
            yield ast.UnaryOp(ast.Not(), node)
        if field in ("defaults", "kw_defaults") and isinstance(getattr(node, "value", None), str):
            yield ast.Constant(node.value + "!")
    elif isinstance(node, ast.stmt):
        stored = isinstance(node, ast.Assign) and all(isinstance(x, ast.Subscript) for x in node.targets)
        if isinstance(node, DROPPED) or stored:
            yield ast.Pass()
        if isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
            yield _changed(node, op=SWAPS[type(node.op)]())
        if isinstance(node, ast.Return) and not _is_none(node.value):
            yield ast.Return(ast.Constant(None))


def _ordered(operator: ast.cmpop) -> bool:
    """Whether the swapped operator is something else than the negation."""
    return isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _is_none(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for i, operator in enumerate(ops):
                yield _changed(node, ops=[*ops[:i], SWAPS[type(operator)](), *ops[i + 1 :]])
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPS:
            yield _changed(node, op=SWAPS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2 * value if value else 1.0)
        case ast.Call(func=function, keywords=keywords):
            for keyword in keywords:
                if keyword.arg and keyword.arg not in FOR_PEOPLE:
                    yield _changed(node, keywords=[k for k in keywords if k is not keyword])
            match function:
                case ast.Attribute(attr=name) if name in METHODS:
                    yield _changed(node, func=_changed(function, attr=METHODS[name]))
                case ast.Name(id=name) if name in BUILT_IN:
                    yield _changed(node, func=ast.Name(METHODS[name]))
