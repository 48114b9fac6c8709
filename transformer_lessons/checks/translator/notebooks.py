"""Answers from solved notebooks, each checked. The notebooks' code runs here with all your permissions."""

import ast
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformer_lessons import checks

PARTS = """
transformer layer residual multi_head scaled_dot_product_attention padding_mask causal_mask
feed_forward layer_norm token_embedding sinusoidal teacher_forcing label_smoothing warmup greedy beam
""".split()
CHECK = re.compile(r'checks\.require\("(\w+)", (\w+)\)')
MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)
DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Cell:
    """A cell without its outputs; the fields are named as in the file."""

    cell_type: str
    metadata: dict[str, Any]
    source: str

    @property
    def name(self) -> str:
        """The nbgrader grade id."""
        return self.metadata.get("nbgrader", {}).get("grade_id", "")

    def definitions(self) -> ast.Module:
        """The code to run: all of an answer; only definitions of imports or own cells; nothing of a check."""
        about, code = self.metadata.get("nbgrader"), MAGIC.sub(r"\1pass", self.source)
        if about and not self.name.endswith("-imports"):
            is_answer = about.get("solution", False) and not self.name.endswith("-run")
            return ast.parse(code if is_answer else "")
        nodes = [node for node in ast.parse(code).body if isinstance(node, DEFINITIONS)]
        return ast.Module(nodes, type_ignores=[])


class Part(NamedTuple):
    """A notebook's answer to one task."""

    task: str
    own: Any  # None if it is missing
    notebook: str
    names: dict[str, Any]  # all that the notebook defines
    problem: str = ""  # the first line of the check's message; "" if it is right


def found_in(path: Path) -> Iterator[Part]:
    """Yield a notebook's answers to the tasks that a Transformer has parts for, each checked.

    Raises:
        ValueError: for a file that does not exist or is not a notebook.
    """
    code = [cell for cell in cells_of(path) if cell.cell_type == "code"]
    names: dict[str, Any] = {"__name__": path.stem}
    errors = ""
    for cell in code:
        try:
            with redirect_stdout(io.StringIO()):
                exec(compile(cell.definitions(), f"{path.name}, {cell.name}", "exec"), names)
        except (Exception, SystemExit) as error:
            errors += f" ({cell.name}: {type(error).__name__}: {error})"
    # The first check of a task is of the learner's own code; a later one, of somebody else's repaired.
    checked = reversed(CHECK.findall("\n".join(cell.source for cell in code)))
    for task, name in dict(checked).items():
        if task in PARTS:
            problem = _problem(task, names[name]) if name in names else f"{name} is not defined{errors}"
            yield Part(task, names.get(name), path.name, names, problem)


def _problem(task: str, own: Any) -> str:
    """The first line of what the check says; "" if the answer is right."""
    report = checks.check(task, own)
    return "" if report.passed else report.message.splitlines()[0]


def cells_of(path: Path) -> list[Cell]:
    """The cells of a notebook; ValueError for a file that does not exist or is not one."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [Cell(cell["cell_type"], cell["metadata"], "".join(cell["source"])) for cell in cells]
    except FileNotFoundError:
        raise ValueError(f"file: expected a notebook, got {path}, which does not exist") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"file: expected a notebook (.ipynb, format 4), got {path}") from None
