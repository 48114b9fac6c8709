"""Rewrite Python code as another student with the same ideas might write it: for simulated classes."""

import ast
import itertools
import random

FLIPPED = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
REDUCING = {"sum", "mean", "softmax", "amax", "argmax", "cumsum"}  # whose first argument is the axis


def reworded(source: str, chance: random.Random, often: float) -> str:
    """Code that computes the same, with each idiom changed with probability `often`; layout is lost."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    return ast.unparse(ast.fix_missing_locations(_Idioms(chance, often).visit(tree)))


class _Idioms(ast.NodeTransformer):
    def __init__(self, chance: random.Random, often: float):
        self._chance, self._often, self._numbers = chance, often, itertools.count(1)

    def visit(self, node: ast.AST):
        self.generic_visit(node)
        return self._changed(node) if self._chance.random() < self._often else node

    def _changed(self, node: ast.AST):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="size"), args=[axis]):
                return ast.Subscript(ast.Attribute(of, "shape", ast.Load()), axis, ast.Load())
            case ast.Call(func=ast.Attribute(value=of, attr="transpose"), args=[a, b]):
                last = {ast.unparse(a), ast.unparse(b)} == {"-2", "-1"}
                return ast.Attribute(of, "mT", ast.Load()) if last else node
            case ast.Call(func=ast.Attribute(attr=name), args=[axis]) if name in REDUCING:
                if ast.unparse(axis).lstrip("-").isdecimal():
                    return ast.Call(node.func, [], [ast.keyword("dim", axis), *node.keywords])
            case ast.Subscript(value=ast.Attribute(value=of, attr="shape"), slice=axis, ctx=ast.Load()):
                if not isinstance(axis, ast.Slice | ast.Tuple):
                    return ast.Call(ast.Attribute(of, "size", ast.Load()), [axis], [])
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in FLIPPED:
                return ast.Compare(right, [FLIPPED[type(op)]()], [left])
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return ast.BinOp(right, ast.Mult(), left)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ast.IfExp(ast.UnaryOp(ast.Not(), test), orelse, body)
            case ast.Return(value=ast.Call() | ast.BinOp() | ast.Compare() as value):
                kept, name = self._kept(value)
                return [kept, ast.Return(name)]
            case ast.Assign(value=ast.BinOp(left=ast.BinOp() | ast.Call() as left) as value):
                kept, value.left = self._kept(left)
                return [kept, node]
        return node

    def _kept(self, value: ast.expr) -> tuple[ast.Assign, ast.Name]:
        """An assignment of the value to a new name, and that name."""
        name = f"result_{next(self._numbers)}"
        return ast.Assign([ast.Name(name, ast.Store())], value), ast.Name(name, ast.Load())
