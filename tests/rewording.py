"""The same Python in other words, as another would write it who thinks alike.

What is computed stays the same, so marks do; comments and layout are lost, as `ast.unparse` writes the text anew.
"""

import ast
import copy
import itertools
import random
from collections.abc import Iterator

__all__ = ["reworded"]

FLIPPED = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
COMPARED = {"ne": ast.NotEq, "eq": ast.Eq}
REDUCING = {"sum", "mean", "softmax", "amax", "argmax", "cumsum"}  # whose first argument is the axis
CHANCE = 0.35  # of each place to be changed


def reworded(source: str, chance: random.Random, often: float = CHANCE) -> str:
    """A text that computes the same, each idiom in it changed with a chance of `often`.

    Args:
        source: Python; what cannot be parsed comes back as it is.
        chance: where the changes are drawn from.
        often: the chance of each place to be changed.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    fields = ("id", "arg", "name", "asname", "attr", "rest")
    taken = {getattr(node, field, None) for node in ast.walk(tree) for field in fields}
    names = (name for number in itertools.count(1) if (name := f"result_{number}") not in taken)
    return ast.unparse(ast.fix_missing_locations(_Idioms(chance, often, names).visit(tree)))


class _Idioms(ast.NodeTransformer):
    """Changes idioms.

    Args:
        chance: where the changes are drawn from.
        often: the chance of each place to be changed.
        names: for new variables.
    """

    def __init__(self, chance: random.Random, often: float, names: Iterator[str]):
        self._chance, self._often, self._names = chance, often, names

    def _drawn(self) -> bool:
        return self._chance.random() < self._often

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """x.size(0) → x.shape[0], x.ne(y) → x != y, x.transpose(-2, -1) → x.mT, x.sum(-1) → x.sum(dim=-1)."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="size"), args=[axis]) if self._drawn():
                return ast.Subscript(ast.Attribute(of, "shape", ast.Load()), axis, ast.Load())
            case ast.Call(func=ast.Attribute(value=of, attr=name), args=[to]) if (
                name in COMPARED and self._drawn()
            ):
                return ast.Compare(of, [COMPARED[name]()], [to])
            case ast.Call(func=ast.Attribute(value=of, attr="transpose"), args=[a, b]) if self._drawn():
                last = {ast.unparse(a), ast.unparse(b)} == {"-2", "-1"}
                return ast.Attribute(of, "mT", ast.Load()) if last else node
            case ast.Call(func=ast.Attribute(attr=name), args=[axis]) if name in REDUCING and self._drawn():
                if ast.unparse(axis).lstrip("-").isdecimal():
                    return ast.Call(node.func, [], [ast.keyword("dim", axis), *node.keywords])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """x.shape[0] → x.size(0)."""
        self.generic_visit(node)
        of = node.value
        is_shape = isinstance(of, ast.Attribute) and of.attr == "shape" and isinstance(node.ctx, ast.Load)
        if not is_shape or isinstance(node.slice, ast.Slice | ast.Tuple) or not self._drawn():
            return node
        return ast.Call(ast.Attribute(of.value, "size", ast.Load()), [node.slice], [])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """a < b → b > a."""
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in FLIPPED or not self._drawn():
            return node
        return ast.Compare(node.comparators[0], [FLIPPED[type(node.ops[0])]()], [node.left])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """a * b → b * a; not of sums, as lists have them too."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and self._drawn():
            return ast.BinOp(node.right, node.op, node.left)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """a if c else b → b if not c else a."""
        self.generic_visit(node)
        return ast.IfExp(_negated(node.test), node.orelse, node.body) if self._drawn() else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        """`if a or b: raise …` → two ifs; `if x is None: x = y` → `x = y if x is None else x`."""
        self.generic_visit(node)
        match node:
            case ast.If(test=ast.BoolOp(op=ast.Or(), values=tests), body=[ast.Raise()], orelse=[]) if (
                self._drawn()
            ):
                return [ast.If(test, copy.deepcopy(node.body), []) for test in tests]
            case ast.If(
                test=ast.Compare(left=ast.Name(id=name), ops=[ast.Is()]),
                body=[ast.Assign(targets=[ast.Name(id=same)], value=value)],
                orelse=[],
            ) if name == same and self._drawn():
                chosen = ast.IfExp(node.test, value, ast.Name(name, ast.Load()))
                return ast.Assign([ast.Name(name, ast.Store())], chosen)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.AST]:
        """`return f(x)` → `result = f(x)` and `return result`."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.Call | ast.BinOp | ast.Compare) or not self._drawn():
            return node
        kept, name = self._kept(node.value)
        return [kept, ast.Return(name)]

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        """`x = f(a) / g(b)` → `part = f(a)` and `x = part / g(b)`."""
        self.generic_visit(node)
        value = node.value
        if (
            not isinstance(value, ast.BinOp)
            or not isinstance(value.left, ast.BinOp | ast.Call)
            or not self._drawn()
        ):
            return node
        kept, value.left = self._kept(value.left)
        return [kept, node]

    def _kept(self, value: ast.expr) -> tuple[ast.Assign, ast.Name]:
        """The value kept under a name of its own, and the name."""
        name = next(self._names)
        return ast.Assign([ast.Name(name, ast.Store())], value), ast.Name(name, ast.Load())


def _negated(test: ast.expr) -> ast.expr:
    match test:
        case ast.Compare(ops=[ast.Is()]):
            return ast.Compare(test.left, [ast.IsNot()], test.comparators)
        case ast.Compare(ops=[ast.IsNot()]):
            return ast.Compare(test.left, [ast.Is()], test.comparators)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
    return ast.UnaryOp(ast.Not(), test)
