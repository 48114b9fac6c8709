"""What a run learns: a task defines its data, model sizes, training settings and evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from transformer_lessons.config import expect
from transformer_lessons.data import multi30k, number_words, wmt14
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.corpus import Corpus, read_pairs
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.files import read_json
from transformer_lessons.data.libraries import library
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import configs
from transformer_lessons.trainer.checkpoints import Tokeniser
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_number_words, report_too_long, translate

SMALLEST_VOCABULARY = Vocabulary.eos_id + 1 + 256
FILES = {"source": 1, "target": 1, "validation": 2, "test": 2}  # how many files each
# In languages without spaces between words, sacreBLEU must tokenise in another way.
TOKENIZE = {"zh": "zh", "cmn": "zh", **dict.fromkeys("ja jpn ko kor th tha lo km my".split(), "char")}


@dataclass(frozen=True)
class NumberWords:
    """The task from English number words to German ones, judged by exact match; methods as in `TextTask`."""

    name: ClassVar = "number-words"
    sizes: ClassVar = {"d_model": 128, "num_heads": 4, "d_ff": 512, "dropout": 0.0, "max_length": 64}
    sizes |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
    training: ClassVar = TrainingConfig()
    longest: ClassVar = 64
    extra_tokens: ClassVar = None
    settings: ClassVar = {}

    def checked(self, *, resumed: bool) -> "NumberWords":
        """The task itself, as it reads no files."""
        return self

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """A vocabulary of parts of number words for each language."""
        return number_words.vocabularies()

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> EncodedPairs:
        """As many pairs as the settings say, determined by the seed."""
        numbers = number_words.training_numbers(config.training_pairs, config.seed)
        return EncodedPairs.of(number_words.pairs(numbers))

    def read(self, text: str) -> list[str]:
        """The English tokens of a number in words or digits."""
        return number_words.english_tokens(number_words.english(number_words.parse(text)))

    def write(self, sentence: list[str]) -> str:
        """The tokens joined, as German writes a number as one word."""
        return "".join(sentence)

    def files(self, split: str) -> None:
        """None, as the task has no files."""

    def evaluate(self, model: Transformer, source, target, beam_size: int, files=None) -> dict:
        """Evaluate on the 1,000 numbers that no run is trained on."""
        if files:
            raise ValueError(f"source: expected a model of texts, got one of {self.name}")
        return evaluate_number_words(model, source, target, number_words.held_out(), beam_size=beam_size)

    def report(self, result: dict) -> list[str]:
        """The lines of a report: exact match, kinds of errors, examples."""
        return [
            f"{result['exact_match']:.1%} exact match on {result['n']:,} numbers never trained on",
            *(f"{count:6} × {kind}" for kind, count in result["errors"].items()),
            *(f"       {e['number']}: {e['got']} instead of {e['expected']}" for e in result["examples"]),
        ]


@dataclass(frozen=True)
class TextTask:
    """A task of translating texts: the user's own files, or those of a data set known by name.

    Attributes:
        name, sizes, training: its name for ``--task``, the model's sizes, and the training settings.
        vocab_size: most tokens of the encoding that both languages share; small files give fewer.
    """

    name: str
    sizes: dict
    training: TrainingConfig
    vocab_size: int
    longest: int = 256  #: most tokens per side of a training pair; longer ones are seldom one sentence
    extra_tokens: int | None = 50  #: how many more than its source a translation may have; None: no limit
    #: finds the files of "train", "validation" and "test", if the task is known by name
    find_files: Callable[[str], tuple[Path, Path]] | None = None
    source: str | None = None  #: otherwise, the file to train on, plain or ``.gz``
    target: str | None = None  #: its translation
    validation: Sequence[str] | None = None  #: two more, for the evaluation at the end of training
    test: Sequence[str] | None = None  #: two more, for `evaluate`; without them, some pairs are held out
    trained_on: str | None = None  #: a fingerprint of the training files, once a run has begun

    def __post_init__(self):
        least = f"{SMALLEST_VOCABULARY} or more, for 3 special tokens and 256 bytes"
        is_enough = type(self.vocab_size) is int and self.vocab_size >= SMALLEST_VOCABULARY
        expect(is_enough, "vocab_size", least, self.vocab_size)
        for name, count in FILES.items():
            files = getattr(self, name)
            names = [files] if count == 1 else files
            fits = isinstance(names, list | tuple) and [type(one) for one in names] == [str] * count
            expect(files is None or fits, name, "a file" if count == 1 else "two files", files)
            if files:
                paths = [str(Path(one).resolve()) for one in names]
                object.__setattr__(self, name, paths[0] if count == 1 else paths)

    @property
    def settings(self) -> dict:
        """The settings that a run saves, with absolute paths, so that it can be resumed from anywhere."""
        kept = ("vocab_size",) if self.find_files else ("vocab_size", *FILES, "trained_on")
        return {name: getattr(self, name) for name in kept}

    def checked(self, *, resumed: bool) -> "TextTask":
        """The task with its files' fingerprint; ValueError or OSError if one is missing, bad or changed."""
        task = self if resumed else replace(self, trained_on=None)
        library("sacrebleu", extra="text")  # to be missed now, and not after the training
        for name in ("source", "target"):
            if not (task.find_files or getattr(task, name)):
                raise ValueError(f"{name}: expected a file with one sentence per line, got none")
        task.evaluation_pairs(task.files("test"))
        if validation := task.files("validation"):
            task.evaluation_pairs(validation)
        return task if task.find_files else replace(task, trained_on=task.corpus.fingerprint)

    @cached_property
    def corpus(self) -> Corpus:
        """The files to train on; ValueError if they have changed since the run began."""
        source, target = self.files("train")
        corpus = Corpus(source, target, self.files("test"))
        if self.trained_on and self.trained_on != corpus.fingerprint:
            raise ValueError(f"source: {source} and {target} have changed since the run began")
        return corpus

    def files(self, split: str) -> Sequence[Path] | None:
        """The two files of "train", "validation" or "test"; None if there are none."""
        if self.find_files:
            return self.find_files(split)
        paths = (self.source, self.target) if split == "train" else getattr(self, split)
        return paths and [Path(path) for path in paths]

    def evaluation_pairs(self, files: Sequence[str | Path] | None) -> list[tuple[str, str]]:
        """The pairs of two files, or else the held-out ones; ValueError if there are none."""
        pairs = list(read_pairs(*map(Path, files))) if files else self.corpus.held_out
        if not pairs:
            raise ValueError(f"{files[0] if files else self.source}: expected sentences, got none")
        return pairs

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """One byte-pair encoding for both languages, learned from the training set the first time."""
        joint = self.corpus.joint_encoding(self.vocab_size)
        return joint, joint

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> EncodedPairs:
        """The training set, by default all of it."""
        return self.corpus.encoded(source).select(slice(config.training_pairs))

    def read(self, text: str) -> str:
        """The text without spaces around it; ValueError if nothing is left."""
        if not text.strip():
            raise ValueError("text: expected a sentence, got nothing")
        expect(text.encode(errors="replace").decode() == text, "text", "UTF-8", text)
        return text.strip()

    def write(self, sentence: str) -> str:
        """The translation on one line."""
        return " ".join(sentence.split())

    def evaluate(
        self, model: Transformer, source, target, beam_size: int, files: Sequence[str | Path] | None = None
    ) -> dict:
        """Evaluate by BLEU (Papineni et al. 2002) on the test set or on two files, cased and lowercased.

        A pitfall: a BLEU without a signature cannot be compared; lowercased scores are higher than cased.
        """
        sacrebleu, files = library("sacrebleu", extra="text"), files or self.files("test")
        name = " and ".join(Path(path).name for path in files or [self.source])
        own = ("a.en", "a.de") if self.find_files else (self.source, self.target)
        languages = [Path(path.removesuffix(".gz")).suffix[1:] or "?" for path in own]  # et for a.et.gz
        pairs, most = self.evaluation_pairs(files), model.config.max_length
        short = [pair for pair in pairs if len(source.encode(pair[0])) <= most]
        report_too_long(len(pairs) - len(short), len(pairs), most)
        texts, references = zip(*short, strict=True)
        options = {"beam_size": beam_size, "extra_tokens": self.extra_tokens}
        got, scores = translate(model, source, target, texts, **options), {}
        for case in ("", "_lowercase"):
            code = languages[1].lower().replace("-", "_").partition("_")[0]  # zh for zh_CN
            metric = sacrebleu.BLEU(lowercase=bool(case), tokenize=TOKENIZE.get(code, "13a"))
            scores[f"bleu{case}"] = metric.corpus_score(got, [references]).score
            scores[f"signature{case}"] = str(metric.get_signature())
        examples = [{"source": s, "expected": t, "got": g} for (s, t), g in zip(short[:5], got, strict=False)]
        about = {"direction": "-".join(languages), "on": f"pairs {'' if files else 'held out '}of {name}"}
        return {**about, "n": len(short), **scores, "beam_size": beam_size, "examples": examples}

    def report(self, result: dict) -> list[str]:
        """The lines of a report: BLEU with its signatures, and examples."""
        return [
            f"BLEU {result['bleu']:.1f} on {result['n']:,} {result['on']}, {result['direction']}",
            f"       cased:      {result['bleu']:.2f}, {result['signature']}",
            f"       lowercased: {result['bleu_lowercase']:.2f}, {result['signature_lowercase']}",
            *(f"       {e['source']}\n    → {e['got']}\n    = {e['expected']}" for e in result["examples"]),
        ]


def _packaged(name: str, **more) -> TextTask:
    """The task of a packaged config.json."""
    found = read_json(configs.PACKAGED[name])
    training = TrainingConfig(**found["training"])
    return TextTask(found["task"], found["model"], training, found["data"]["vocab_size"], **more)


MULTI30K = _packaged("multi30k", extra_tokens=None, find_files=multi30k.files)
# The paper's own task and setup: the base model, 4.5 million pairs, judged on newstest2014 (§5, §6.1).
WMT14 = _packaged("wmt14-base", find_files=wmt14.files)
# Any two files; the defaults are those of Multi30k's captions.
TEXT = replace(
    MULTI30K,
    name="text",
    sizes={**MULTI30K.sizes, "max_length": 1_024},
    training=replace(MULTI30K.training, training_pairs=1_000_000_000),  # that is, all
    extra_tokens=50,
    find_files=None,
)

# Frozen dataclasses, whose `settings` are saved as `data` in a run's config.json.
Task = NumberWords | TextTask
TASKS: dict[str, Task] = {task.name: task for task in (NumberWords(), MULTI30K, WMT14, TEXT)}


def with_data(task: Task, data: dict) -> Task:
    """The task with other settings, such as the user's own files; ValueError for those it does not have."""
    for name in sorted(set(data) - set(task.settings)):
        having = [other.name for other in TASKS.values() if name in other.settings]
        expected = f"expected --task {' or '.join(having)}, got {task.name}"
        raise ValueError(f"{name}: " + (expected if having else f"{task.name} has no such setting"))
    return replace(task, **data)


def load_task(config: Path) -> Task:
    """The task of a run's config.json, with its data; number words if none is named.

    ValueError for an unknown task or a file that is not JSON; OSError if there is no such file.
    """
    content = read_json(config)
    name, data = content.get("task", NumberWords.name), content.get("data", {})
    expect(name in list(TASKS), f"{config}: task", f"one of {', '.join(TASKS)}", name)
    expect(isinstance(data, dict), f"{config}: data", "an object", data)
    return with_data(TASKS[name], data)


def batches(pairs: EncodedPairs, max_length: int, config: TrainingConfig) -> Batches:
    """The training set in batches, as the settings say; pairs that are too long are counted and left out."""
    expect(len(pairs) > 0, "source", "more pairs than are held out", 0)
    fits = (pairs.sizes + np.array([0, 1]) <= max_length).all(1)  # a target gets one special token more
    report_too_long(int((~fits).sum()), len(pairs), max_length)
    pairs = pairs.select(fits)
    kind, size = (Batches, config.batch_size) if config.tokens is None else (TokenBatches, config.tokens)
    return kind(pairs, size, seed=config.seed)


def translations(task: Task, parts: tuple, sentences: Sequence, beam_size: int = 1) -> list[str]:
    """The model's translation of each sentence, as text; `parts` are the model and its two tokenisers."""
    options = {"beam_size": beam_size, "extra_tokens": task.extra_tokens}
    return [task.write(sentence) for sentence in translate(*parts, sentences, **options)]
