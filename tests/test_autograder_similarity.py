"""Pairs of submissions: the same under other names is found, and what everybody writes is not."""

import ast
import io
import random
import re
import runpy
import tokenize
from functools import cache
from pathlib import Path

import nbformat

from exercises.autograder.flags import answered
from exercises.autograder.rehearse.rewording import renamed, reworded

HERE = Path(__file__).parent
NAME = "ps03_attention"
ATTENTION = "ps03-3-answer"
SCALE = "ps03-7-scale-answer"


# --- A class as it could be -----------------------------------------------------------------------------------


@cache
def cells_of(assignment: str, kind: str) -> dict[str, nbformat.NotebookNode]:
    path = HERE.parent / "exercises" / kind / assignment / f"{assignment}.ipynb"
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def handed(assignment: str) -> dict[str, str]:
    return {name: cell.source for name, cell in cells_of(assignment, "release").items()}


@cache
def masters(assignment: str) -> dict[str, str]:
    """The master's answers."""
    return {
        name: re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", cell.source, flags=re.MULTILINE)
        for name, cell in cells_of(assignment, "source").items()
        if cell.metadata.get("nbgrader", {}).get("solution")
    }


def code_of(assignment: str) -> dict[str, str]:
    cells = cells_of(assignment, "source")
    return {name: text for name, text in masters(assignment).items() if cells[name].cell_type == "code"}


def alternates(task: str) -> list[str]:
    """The texts of right answers in other words, each with what it uses of its file."""
    text = (HERE / "alternates" / f"{task}.py").read_text(encoding="utf-8")
    nodes = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes[node.name] = node
        elif isinstance(node, ast.Assign):
            nodes[node.targets[0].id] = node
    return [ast.unparse(ast.Module(used(one, nodes), [])) for one in nodes["ALTERNATES"].value.elts]


def used(one: ast.expr, nodes: dict) -> list[ast.stmt]:
    found, left = {}, [one]
    while left:
        names = [node.id for node in ast.walk(left.pop()) if isinstance(node, ast.Name)]
        new = [name for name in names if name in nodes and name not in found]
        found |= {name: nodes[name] for name in new}
        left += [nodes[name] for name in new]
    return sorted(found.values(), key=lambda node: node.lineno)


@cache
def ways(assignment: str) -> dict[str, list[str]]:
    """Of each answer in code the texts that somebody may write: the master's first, then others, right and wrong."""
    wrong = runpy.run_path(str(HERE / "typical_answers.py"))["WRONG"]
    tasks = answered((name, cell.source) for name, cell in cells_of(assignment, "release").items())
    found = {}
    for name, text in code_of(assignment).items():
        others = alternates(next(iter(tasks[name]))) if len(tasks.get(name, ())) == 1 else []
        mistakes = [wrong for check, _, wrong, _ in wrong if check.replace("-check", "-answer") == name]
        found[name] = [text, *others, *mistakes]
    return found


def a_class(assignment: str, number: int, seed: int, usual: float = 0.5) -> dict[str, dict[str, str]]:
    """Honest students. The better write the usual answers, so these come together; `usual` is their share in all.

    Whoever repairs a broken program changes the wrong lines only; all else is in words of the student's own.
    """
    texts = {}
    for n in range(number):
        chance = random.Random(f"{assignment} {seed} {n}")
        skill, often = chance.random() ** (1 / usual - 1), chance.uniform(0, 0.7)
        texts[f"student-{n:04}"] = {}
        for name, text in ways(assignment).items():
            kind = text[0] if chance.random() < skill else chance.choice(text)
            own = kind if "repaired" in kind else renamed(reworded(kind, chance, often), chance, 0.5)
            if chance.random() < 0.6 + 0.4 * skill:
                texts[f"student-{n:04}"][name] = own
    return texts


def copies(texts: dict[str, dict[str, str]], number: int, *, rename: bool) -> set[tuple[str, str]]:
    """Let some students copy all answers of the one before, with other names or with another layout and comments."""
    students, chance = sorted(texts), random.Random(0)
    found = set()
    for first, second in zip(students[: 2 * number : 2], students[1 : 2 * number : 2], strict=True):
        disguise = renamed if rename else spread
        texts[second] = {name: disguise(text, chance) for name, text in texts[first].items()}
        found.add((first, second))
    return found


def spread(code: str, chance: random.Random) -> str:
    """The same with line breaks within brackets, and comments at the ends of lines."""
    lines = code.splitlines(keepends=True)
    depth = 0
    inserted = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if token.type == tokenize.OP and depth and token.string in "([,+" and chance.random() < 0.3:
            inserted.append((token.end, "\n" + " " * chance.randrange(20)))
        elif token.type == tokenize.NEWLINE and chance.random() < 0.3:
            inserted.append((token.start, f"  # {chance.choice(('why', 'that is it', 'fix (later)'))}"))
    for (row, column), text in reversed(inserted):
        lines[row - 1] = lines[row - 1][:column] + text + lines[row - 1][column:]
    return "".join(lines)
