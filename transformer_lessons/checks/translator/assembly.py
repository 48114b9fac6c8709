"""Builds a Transformer of own parts from solved assignments: ``lessons my-transformer ps0*.ipynb``.

The notebooks' code runs here with all your permissions: use it for your own notebooks only.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from transformer_lessons import checks, training
from transformer_lessons.checks.translator import own_parts, reading
from transformer_lessons.checks.translator.notebooks import PARTS, Part, found_in
from transformer_lessons.checks.translator.own_parts import Own
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches
from transformer_lessons.data.encoded import Pair
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import save_model
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_number_words
from transformer_lessons.trainer.tasks import NumberWords

SETTINGS = TrainingConfig(steps=150, batch_size=64, warmup_steps=50, schedule="inverse_sqrt")
WHOLE = "transformer"
PRINTED = (1, 10, 50, 100, 150)  # steps


@contextmanager
def assembled(own: Mapping[str, Part], config: TransformerConfig) -> Iterator[Transformer]:
    """Yield a new model of these parts, else the package's; it starts as the package's model would."""
    torch.manual_seed(SETTINGS.seed)
    model = Transformer(config)
    inner = wrap_model(own[WHOLE].own(config), model) if WHOLE in own else model
    with ExitStack() as stack:
        for part in own.values():
            inject(own, part.names)
        for task in reading.FORWARD:
            if task in own:
                stack.enter_context(own_parts.installed(inner, checks.task(task), own[task].own))
        yield model


def wrap_model(wrapped: nn.Module, model: Transformer) -> Own:
    """A learner's model; `model.forward` calls it from now on."""
    own = Own(wrapped, model, checks.task(WHOLE).roles)
    own.config = model.config
    model.forward = lambda src, tgt_in: own.train(model.training)(src, tgt_in)
    return own


def inject(own: Mapping[str, Part], names: dict[str, Any]) -> None:
    """Where a notebook uses a package function that the learner has written in another, use the learner's."""
    for task, (place, name, stand_in) in own_parts.FUNCTIONS.items():
        public = checks.task(task).public_name
        if task in own and names.get(public) is getattr(place, name):
            names[public] = stand_in(own[task].own)


def train(model: Transformer, pairs: Sequence[Pair], title: str) -> list[float]:
    """Train a model and return the loss of each step."""
    endless = Batches(pairs, SETTINGS.batch_size, seed=SETTINGS.seed)
    batches = [endless[step] for step in range(SETTINGS.steps)]
    progress = partial(tqdm, desc=title, file=sys.stderr)
    return training.train(model, batches, SETTINGS.learning_rate, SETTINGS.steps, progress=progress)


def from_notebooks(paths: Sequence[str | Path], *, fill: bool, output: str | Path) -> None:
    """Build, train, compare and save the model; see `checks.my_transformer`."""
    if not paths:
        raise ValueError("paths: expected notebooks, got none")
    found = {part.task: part for path in paths for part in found_in(Path(path))}
    for task in PARTS:
        print(f"{checks.task(task).public_name:30} {describe_origin(found.get(task), fill)}")
    wrong = ", ".join(checks.task(task).public_name for task, part in found.items() if part.problem)
    if wrong and not fill:
        raise ValueError(f"parts: expected right ones; repair {wrong} or use ours (--fill, fill=True)")
    if (Path(output) / "metrics.jsonl").exists():
        raise ValueError(f"output: {output} holds a run of `lessons train`; name another folder")
    Path(output).mkdir(parents=True, exist_ok=True)  # where that fails, it should before training
    own = {task: part for task, part in found.items() if not part.problem}
    source, target = number_words.vocabularies()
    config = TransformerConfig(len(source), len(target), **NumberWords.sizes)
    pairs = number_words.pairs(number_words.training_numbers(SETTINGS.training_pairs, SETTINGS.seed))
    with assembled(own, config) as model:
        losses = train(model, pairs, "yours")
        decoded = {n: reading.decoded_words(n, own[n].own, model) for n in ("greedy", "beam") if n in own}
    saved = Transformer(config)
    saved.load_state_dict(model.state_dict())
    with assembled({}, config) as reference:
        compare(losses, train(reference, pairs, "the package's"))
    result = evaluate_number_words(saved, source, target, number_words.held_out())
    print(f"\n{result['exact_match']:.1%} of {result['n']:,} numbers that it was not trained on are right.")
    for name, words in (decoded or {"greedy": reading.decoded_words("", None, saved)}).items():
        print(f"\n{name}:")
        for number, one in zip(reading.NUMBERS, words, strict=True):
            print(f"{number:>9,}  {reading.join_words(one)}")
    save_model(Path(output), saved, source, target, task=NumberWords.name, training=asdict(SETTINGS))
    print(f"\nSaved. Go on with: lessons translate --model {output} 421")


def describe_origin(part: Part | None, fill: bool) -> str:
    """Whose part is used, in words."""
    if part is None:
        return "the package's"
    if not part.problem:
        return f"yours ({part.notebook})"
    return f"{'the package’s; yours' if fill else 'yours'} is not right ({part.notebook}): {part.problem}"


def compare(own: Sequence[float], package: Sequence[float]) -> None:
    """Print the losses of two runs with the same start and batches; right parts agree up to rounding."""
    print(f"\n{'step':>6} {'your loss':>12} {'the package’s':>16}")
    for step in (step for step in PRINTED if step <= len(own)):
        print(f"{step:6} {own[step - 1]:12.4f} {package[step - 1]:16.4f}")
