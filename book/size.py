"""How much there is to read in the package, room by room: ``python -m book.size`` (``make size``)."""

import ast
import io
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "transformer_lessons"
NOT_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def lines_of_code(source: str) -> int:
    """Lines that are not blank, not a comment and not part of a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = set()
    for token in tokens:
        if token.type not in (*NOT_CODE, tokenize.ENDMARKER):
            lines |= {*range(token.start[0], token.end[0] + 1)}
    return len(lines - lines_of_docstrings(source))


def lines_of_docstrings(source: str) -> set[int]:
    """Their numbers, from the module's own to those of methods."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            found |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return found


def sizes() -> dict[str, tuple[int, int, int]]:
    """Files, lines and lines of code of each room; the canon is what lies in none."""
    table = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).parts
        room = inside[0] if len(inside) > 1 else "canon"
        source = path.read_text(encoding="utf-8")
        one = 1, len(source.splitlines()), lines_of_code(source)
        table[room] = tuple(map(sum, zip(table.get(room, (0, 0, 0)), one, strict=True)))
    return table


def main() -> None:
    """Print the table, the canon first."""
    table = sizes()
    without = [size for room, size in table.items() if room != "checks"]
    rows = {"canon": table.pop("canon"), **table}
    rows["all but checks"] = tuple(map(sum, zip(*without, strict=True)))
    print(f"{'room':15} files  lines  lines of code")
    for room, (files, lines, code) in rows.items():
        print(f"{room:15} {files:5} {lines:6,} {code:14,}")


if __name__ == "__main__":
    main()
