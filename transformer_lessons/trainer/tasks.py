"""What a run learns: a task brings its data, a model of the right size, how to train it, and how it is judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from transformer_lessons.config import expect
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.files import read_json
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import Tokeniser
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_number_words, say_what_is_left_out, translate
from transformer_lessons.trainer.text_tasks import MULTI30K, SMALL, TEXT, WMT14, TextTask


@dataclass(frozen=True)
class NumberWords:
    """English number words to German ones, judged by exact match; with the methods of `TextTask`."""

    name: ClassVar = "number-words"
    sizes: ClassVar = {**SMALL, "dropout": 0.0, "max_length": 64}
    training: ClassVar = TrainingConfig()
    longest: ClassVar = 64
    extra_tokens: ClassVar = None
    validation: ClassVar = None
    settings: ClassVar = {}

    def checked(self, *, resumed: bool) -> "NumberWords":
        """Itself: it reads no files."""
        return self

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """A vocabulary of parts of number words for each language."""
        return number_words.vocabularies()

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> EncodedPairs:
        """As many as the settings say, a function of the seed."""
        numbers = number_words.training_numbers(config.training_pairs, config.seed)
        return EncodedPairs.of(number_words.pairs(numbers))

    def read(self, text: str) -> list[str]:
        """Words or digits."""
        return number_words.english_tokens(number_words.english(number_words.parse(text)))

    def write(self, sentence: list[str]) -> str:
        """German writes a number as one word."""
        return "".join(sentence)

    def evaluate(self, model: Transformer, source, target, beam_size: int, files=None) -> dict:
        """On the 1,000 numbers that no run is trained on."""
        if files:
            raise ValueError(f"source: expected a model of texts, got one of {self.name}")
        return evaluate_number_words(model, source, target, number_words.held_out(), beam_size=beam_size)

    def report(self, result: dict) -> list[str]:
        """Exact match, and what went wrong."""
        return [
            f"{result['exact_match']:.1%} exact match on {result['n']:,} numbers never trained on",
            *(f"{count:6} × {kind}" for kind, count in result["errors"].items()),
            *(f"       {e['number']}: {e['got']} instead of {e['expected']}" for e in result["examples"]),
        ]


# Frozen dataclasses, whose `settings` a run's config.json keeps as `data`.
Task = NumberWords | TextTask
TASKS: dict[str, Task] = {task.name: task for task in (NumberWords(), MULTI30K, WMT14, TEXT)}


def with_data(task: Task, data: dict) -> Task:
    """The task with files of one's own, say; ValueError for what it does not have."""
    for name in sorted(set(data) - set(task.settings)):
        having = [other.name for other in TASKS.values() if name in other.settings]
        expected = f"expected --task {' or '.join(having)}, got {task.name}"
        raise ValueError(f"{name}: " + (expected if having else f"{task.name} has no such setting"))
    return replace(task, **data)


def task_of(config: Path) -> Task:
    """The task of a run's config.json, with its data; number words if it does not say.

    ValueError for a task that this version does not know, or what is no JSON; OSError if there is no such file.
    """
    content = read_json(config)
    name, data = content.get("task", NumberWords.name), content.get("data", {})
    expect(name in list(TASKS), f"{config}: task", f"one of {', '.join(TASKS)}", name)
    expect(isinstance(data, dict), f"{config}: data", "an object", data)
    return with_data(TASKS[name], data)


def batches(pairs: EncodedPairs, max_length: int, config: TrainingConfig) -> Batches:
    """The training set in batches, as the settings say; pairs that are too long are left out, and counted."""
    fits = (pairs.sizes + np.array([0, 1]) <= max_length).all(1)  # a target gets a mark
    say_what_is_left_out(int((~fits).sum()), len(pairs), max_length)
    pairs = pairs.chosen(fits)
    if config.tokens is None:
        return Batches(pairs, config.batch_size, seed=config.seed)
    return TokenBatches(pairs, config.tokens, seed=config.seed)


def translations(task: Task, parts: tuple, sentences: Sequence, beam_size: int = 1) -> list[str]:
    """What the model makes of each sentence, as a person wants to see it."""
    options = {"beam_size": beam_size, "extra_tokens": task.extra_tokens}
    return [task.write(sentence) for sentence in translate(*parts, sentences, **options)]
