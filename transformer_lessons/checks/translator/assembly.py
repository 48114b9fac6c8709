"""A Transformer of own parts, out of solved assignments: ``lessons my-transformer ps0*.ipynb``.

The notebooks' code runs here, with all that you may do: it is for notebooks of your own.
"""

import ast
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from tqdm import tqdm

from transformer_lessons import checks, training
from transformer_lessons.checks.translator import own_parts, reading
from transformer_lessons.checks.translator.own_parts import Own
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import save_model
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_number_words
from transformer_lessons.trainer.tasks import NumberWords

__all__ = ["Part", "found_in", "from_notebooks"]

SETTINGS = TrainingConfig(steps=150, warmup_steps=50, schedule="inverse_sqrt")
WHOLE = "transformer"
PARTS = """
transformer layer residual multi_head scaled_dot_product_attention padding_mask causal_mask
feed_forward layer_norm token_embedding sinusoidal teacher_forcing label_smoothing warmup greedy beam
""".split()
CHECK = re.compile(r'checks\.require\("(\w+)", (\w+)\)')
DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
PRINTED = (1, 10, 50, 100, 150)  # steps


class Part(NamedTuple):
    """What a notebook has for one task."""

    task: str
    own: Any  # None, if it is not there
    notebook: str
    names: dict[str, Any]  # all that the notebook defines
    problem: str = ""  # of the check's message the first line; nothing, if it is right


def found_in(path: Path) -> Iterator[Part]:
    """A notebook's answers to tasks that a Transformer has parts for, checked.

    Raises:
        ValueError: for a file that is not there or no notebook.
    """
    code = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": path.stem}
    errors = {}
    for cell in code:
        try:
            with redirect_stdout(io.StringIO()):
                exec(compile(definitions(cell), f"{path.name}, {name_of(cell)}", "exec"), names)
        except (Exception, SystemExit) as error:
            errors[name_of(cell)] = f"{type(error).__name__}: {error}"
    # The first to be checked is the learner's own; a later one repairs somebody else's.
    checked = reversed(CHECK.findall("\n".join(cell["source"] for cell in code)))
    for task, name in dict(checked).items():
        if task in PARTS:
            problem = problem_of(task, names[name]) if name in names else said(errors, name)
            yield Part(task, names.get(name), path.name, names, problem)


def cells_of(path: Path) -> list[dict[str, Any]]:
    """A notebook's cells without their outputs.

    Raises:
        ValueError: for a file that is not there or no notebook.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [
            {"cell_type": c["cell_type"], "metadata": c["metadata"], "source": "".join(c["source"])}
            for c in cells
        ]
    except FileNotFoundError:
        raise ValueError(f"file: expected a notebook, got {path}, which is not there") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"file: expected a notebook (.ipynb, format 4), got {path}") from None


def name_of(cell: dict) -> str:
    """The grade id."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def definitions(cell: dict) -> ast.Module:
    """What a cell defines: an answer all of it, a cell of the learner's own its functions, a check nothing."""
    about = cell["metadata"].get("nbgrader")
    if about and not name_of(cell).endswith("-imports"):
        is_answer = about.get("solution", False) and not name_of(cell).endswith("-run")
        return ast.parse(cell["source"] if is_answer else "")
    nodes = [node for node in ast.parse(cell["source"]).body if isinstance(node, DEFINITIONS)]
    return ast.Module(nodes, type_ignores=[])


def problem_of(task: str, own: Any) -> str:
    """The first line of what its check says, or nothing."""
    report = checks.check(task, own)
    return "" if report.passed else report.message.splitlines()[0]


def said(errors: Mapping[str, str], name: str) -> str:
    """Why a name is not there."""
    return f"{name} is not defined" + "".join(f" ({cell}: {text})" for cell, text in errors.items())


@contextmanager
def assembled(own: Mapping[str, Part], config: TransformerConfig) -> Iterator[Transformer]:
    """A new model of these parts, the package's where there is none. It starts as the package's would."""
    torch.manual_seed(SETTINGS.seed)
    model = Transformer(config)
    inner = whole(own[WHOLE].own(config), model) if WHOLE in own else model
    with ExitStack() as stack:
        for part in own.values():
            inject(own, part.names)
        for task in reading.FORWARD:
            if task in own:
                stack.enter_context(own_parts.installed(inner, checks.task(task), own[task].own))
        yield model


def whole(theirs: nn.Module, model: Transformer) -> Own:
    """A learner's model, which computes in the place of the package's."""
    own = Own(theirs, model, checks.task(WHOLE).roles)
    own.config = model.config

    def forward(src, tgt_in):
        return own.train(model.training)(src, tgt_in)

    model.forward = forward
    return own


def inject(own: Mapping[str, Part], names: dict[str, Any]) -> None:
    """Where a notebook uses a function of the package's that an earlier one has built: that."""
    for task, (place, name, stand_in) in own_parts.FUNCTIONS.items():
        public = checks.task(task).public
        if task in own and names.get(public) is getattr(place, name):
            names[public] = stand_in(own[task].own)


def train(model: Transformer, title: str) -> list[float]:
    """On number words; each step's loss."""
    pairs = number_words.pairs(number_words.training_numbers(SETTINGS.training_pairs, SETTINGS.seed))
    endless = Batches(pairs, SETTINGS.batch_size, seed=SETTINGS.seed)
    batches = [endless[step] for step in range(SETTINGS.steps)]

    def progress(steps: Iterable[int]) -> Iterable[int]:
        return tqdm(steps, title, file=sys.stderr)

    return training.train(model, batches, SETTINGS.learning_rate, SETTINGS.steps, progress=progress)


def from_notebooks(
    paths: Sequence[str | Path], *, fill: bool = False, output: str | Path = "runs/mine"
) -> None:
    """`checks.my_transformer`."""
    if not paths:
        raise ValueError("paths: expected notebooks, got none")
    found = {part.task: part for path in paths for part in found_in(Path(path))}
    for task in PARTS:
        print(f"{checks.task(task).public:30} {whose(found.get(task), fill)}")
    wrong = [checks.task(task).public for task, part in found.items() if part.problem]
    if wrong and not fill:
        raise ValueError(
            f"parts: expected right ones; mend {', '.join(wrong)}, or take the package's (--fill, fill=True)"
        )
    own = {task: part for task, part in found.items() if not part.problem}
    source, target = number_words.vocabularies()
    config = TransformerConfig(len(source), len(target), **NumberWords.sizes)
    with assembled(own, config) as model:
        losses = train(model, "yours")
        spoken = {name: own[name].own for name in ("greedy", "beam") if name in own}
        heard = {name: reading.heard(name, one, model) for name, one in spoken.items()}
    saved = Transformer(config)
    saved.load_state_dict(model.state_dict())
    with assembled({}, config) as reference:
        compare(losses, train(reference, "the package's"))
    result = evaluate_number_words(saved, source, target, number_words.held_out())
    print(f"\n{result['exact_match']:.1%} of {result['n']:,} numbers that it was not trained on.")
    for name, words in (heard or {"greedy": reading.heard("", None, saved)}).items():
        print(f"\n{name}:")
        for number, one in zip(reading.NUMBERS, words, strict=True):
            print(f"{number:>9,}  {reading.shown(one)}")
    save_model(Path(output), saved, source, target, task=NumberWords.name, training=asdict(SETTINGS))
    print(f"\nSaved. Go on with: lessons translate --model {output} 421")


def whose(part: Part | None, fill: bool) -> str:
    """In words."""
    if part is None:
        return "the package's"
    if not part.problem:
        return f"yours ({part.notebook})"
    return f"{'the package’s, as yours' if fill else 'yours'} is not right ({part.notebook}): {part.problem}"


def compare(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Two runs from the same start, on the same batches: with right parts they are one, but for rounding."""
    print(f"\n{'step':>6} {'your loss':>12} {'the package’s':>16}")
    for step in PRINTED:
        if step <= len(ours):
            print(f"{step:6} {ours[step - 1]:12.4f} {theirs[step - 1]:16.4f}")
