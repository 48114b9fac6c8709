"""Tasks whose sentences are texts: a byte-pair encoding for both languages, judged by BLEU.

`Text` learns from any two files; `Multi30k` and `Wmt14` are two that are known by name.
"""

import sys
from abc import ABC
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from transformer_lessons.data import multi30k, wmt14
from transformer_lessons.data.corpus import (
    Corpus,
    TextFiles,
    TextPair,
    aligned,
    encoded,
    joint_encoding,
    whole,
)
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoints import Tokeniser
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_bleu

# What two CPU cores train in minutes.
SMALL = {"d_model": 128, "num_heads": 4, "d_ff": 512, "num_encoder_layers": 2, "num_decoder_layers": 2}
SMALLEST_VOCABULARY = Vocabulary.eos_id + 1 + 256
# Where no spaces stand between words, sacreBLEU must find them otherwise.
TOKENIZE = {"zh": "zh", "ja": "char", "ko": "char", "th": "char", "lo": "char", "km": "char", "my": "char"}


@dataclass(frozen=True)
class TextTask(ABC):
    """What the tasks of texts have in common: any text can be read, and BLEU judges."""

    vocab_size: int

    corpus: ClassVar[Corpus]
    test_set: ClassVar[str]  # as the report calls its sentences
    languages: ClassVar[tuple[str, str]] = ("en", "de")
    validation: ClassVar[None] = None  # files to be judged on while settings are chosen
    longest: ClassVar[int]  # tokens a side of a pair to train on; what is longer is seldom one sentence
    extra_tokens: ClassVar[int | None] = None

    def __post_init__(self):
        if type(self.vocab_size) is not int or self.vocab_size < SMALLEST_VOCABULARY:
            least = f"{SMALLEST_VOCABULARY} or more, for 3 special tokens and 256 bytes"
            raise ValueError(f"vocab_size: expected {least}, got {self.vocab_size!r}")

    def settings(self) -> dict:
        """What a run keeps of it, to be the same task again."""
        return asdict(self)

    def check(self) -> None:
        """ValueError or OSError if a run could not be judged in the end."""
        self.test_pairs()

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """One byte-pair encoding, learned from both sides of the training set, the first time."""
        joint = joint_encoding(self.corpus, self.vocab_size)
        return joint, joint

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> EncodedPairs:
        """The first so many of the training set, by default all, without those that are too long."""
        return within(encoded(self.corpus, source)[: config.training_pairs], self.longest)

    def test_pairs(self) -> list[TextPair]:
        """Sentences that nothing was trained on."""
        return list(self.corpus.sentences("test"))

    def read(self, text: str) -> str:
        """Any text but none at all."""
        try:
            text.encode()
        except UnicodeEncodeError:  # half a character is what Python makes of other bytes
            raise ValueError("text: expected UTF-8, got other bytes") from None
        if not text.strip():
            raise ValueError("text: expected a sentence, got nothing")
        return text.strip()

    def write(self, sentence: str) -> str:
        """As it is, on one line."""
        return " ".join(sentence.split())

    def evaluate(
        self,
        model: Transformer,
        source: Tokeniser,
        target: Tokeniser,
        beam_size: int,
        files: Sequence[str] | None = None,
    ) -> dict:
        """On the test set, or on two files."""
        pairs, name = (read_pairs(files), named(files)) if files else (self.test_pairs(), self.test_set)
        options = {"beam_size": beam_size, "extra_tokens": self.extra_tokens}
        options["tokenize"] = TOKENIZE.get(self.languages[1], "13a")
        result = evaluate_bleu(model, source, target, pairs, **options)
        return {"direction": "-".join(self.languages), "on": name, **result}

    def report(self, result: dict) -> list[str]:
        """BLEU with what it depends on, and examples."""
        return [
            f"BLEU {result['bleu']:.1f} on {result['n']:,} {result['on']}, {result['direction']}",
            f"       cased:      {result['bleu']:.2f}, {result['signature']}",
            f"       lowercased: {result['bleu_lowercase']:.2f}, {result['signature_lowercase']}",
            *(f"       {e['source']}\n    → {e['got']}\n    = {e['expected']}" for e in result["examples"]),
        ]


@dataclass(frozen=True)
class Multi30k(TextTask):
    """English captions to German ones; by default small enough for two CPU cores."""

    vocab_size: int = 6_000  # one encoding for both languages, so that they can share an embedding

    name: ClassVar = "multi30k"
    corpus: ClassVar = multi30k
    test_set: ClassVar = "captions never trained on"
    longest: ClassVar = 128
    sizes: ClassVar = {
        **SMALL,
        "dropout": 0.1,
        "norm_first": True,
        "shared_vocabulary": True,
        "max_length": 128,
    }
    training: ClassVar = TrainingConfig(
        steps=2_000,
        tokens=4_000,
        training_pairs=29_000,
        peak_learning_rate=3e-3,
        warmup_steps=200,
        checkpoint_every=200,
        precision="auto",
    )


@dataclass(frozen=True)
class Wmt14(TextTask):
    """The paper's own task, at its setup: the base model, 4.5 million pairs, judged on newstest2014 (§5, §6.1).

    Where the paper says nothing, the defaults do without: no weight decay, no clipping. It wants a GPU.
    """

    vocab_size: int = 37_000  # shared by both languages (§5.1)

    name: ClassVar = "wmt14"
    corpus: ClassVar = wmt14
    test_set: ClassVar = "sentences of newstest2014"
    longest: ClassVar = 256
    extra_tokens: ClassVar = 50  # a translation may have so many more than its source (§6.1)
    sizes: ClassVar = {
        "d_model": 512,
        "num_heads": 8,
        "d_ff": 2_048,
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "dropout": 0.1,
        "shared_vocabulary": True,
        "max_length": 1_024,
    }
    training: ClassVar = TrainingConfig(
        steps=100_000,
        tokens=50_000,  # about 25,000 of either language (§5.1)
        training_pairs=wmt14.PAIRS["train"],
        schedule="inverse_sqrt",
        peak_learning_rate=(512 * 4_000) ** -0.5,  # equation 3, at the end of the warm-up
        warmup_steps=4_000,
        weight_decay=0.0,
        clip_norm=None,
        checkpoint_every=1_500,  # ten minutes at the paper's 0.4 s a step
        snapshots=5,
        precision="auto",
        accumulate=4,  # the same result as 1, in a fraction of the memory
    )


@dataclass(frozen=True)
class Text(TextTask):
    """Any two files, a sentence a line; by default as captions are trained on.

    Attributes:
        source, target: the files to train on, plain or ``.gz``.
        validation: two more, to be judged on at the end of training.
        test: two more, for `evaluate`; without them, some of the training set are held out.
        vocab_size: most tokens of the encoding; of small files there are fewer.
        trained_on: what was in the files, once a run has begun.
    """

    vocab_size: int = 6_000
    source: str | None = None
    target: str | None = None
    validation: Sequence[str] | None = None
    test: Sequence[str] | None = None
    trained_on: str | None = None

    name: ClassVar = "text"
    longest: ClassVar = 256
    extra_tokens: ClassVar = 50
    sizes: ClassVar = {**Multi30k.sizes, "max_length": 1_024}
    training: ClassVar = replace(Multi30k.training, training_pairs=1_000_000_000)  # that is, all

    def settings(self) -> dict:
        """With whole paths, so that a run can go on from anywhere."""
        kept = {name: resolved(value) for name, value in asdict(self).items()}
        return {**kept, "trained_on": self.corpus.origin()}

    def check(self) -> None:
        """ValueError or OSError if a file is missing, or of no use."""
        for name in ("source", "target"):
            if not isinstance(path := getattr(self, name), str):
                raise ValueError(f"{name}: expected a file with a sentence a line, got {path or 'none'}")
        for name in ("validation", "test"):
            if files := getattr(self, name):
                if not isinstance(files, list | tuple) or len(files) != 2:
                    raise ValueError(f"{name}: expected two files, got {files}")
                read_pairs(files)
        if next(whole(self.corpus.sentences("train")), None) is None:
            raise ValueError(
                f"{self.source}: expected sentences to train on, with their translations, got none"
            )
        if not self.test and not distributed.rank():
            number = f"{len(self.corpus.held_out):,} pairs of {self.source}"
            print(f"no --test files: held out, to be tested on, are {number}", file=sys.stderr)

    @cached_property
    def corpus(self) -> TextFiles:
        """The files; ValueError if they are not those that a run has begun with."""
        test = tuple(map(Path, self.test)) if self.test else None
        files = TextFiles(Path(self.source), Path(self.target), test)
        if self.trained_on and self.trained_on != files.origin():
            files = f"{self.source} and {self.target}"
            raise ValueError(f"source: {files} have changed since the run began")
        return files

    def test_pairs(self) -> list[TextPair]:
        """Those of the test files, or those held out."""
        return read_pairs(self.test) if self.test else self.corpus.held_out

    @property
    def test_set(self) -> str:
        """Which sentences were tested on."""
        return named(self.test) if self.test else f"pairs held out of {Path(self.source).name}"

    @property
    def languages(self) -> tuple[str, str]:
        """As the names of the files end, without .gz: those of a.fi and a.et.gz are fi and et."""
        return tuple(Path(path.removesuffix(".gz")).suffix[1:] or "?" for path in (self.source, self.target))


def resolved(value):
    """Names of files as whole paths; other values as they are."""
    if isinstance(value, list | tuple):
        return [resolved(one) for one in value]
    return str(Path(value).resolve()) if isinstance(value, str) else value


def read_pairs(files: Sequence[str]) -> list[TextPair]:
    """The sentences of two files to be judged on, without those that are empty on a side."""
    pairs = list(whole(aligned(*map(Path, files))))
    if not pairs:
        raise ValueError(f"{files[0]}: expected sentences, got none")
    return pairs


def named(files: Sequence[str]) -> str:
    """What a report calls the pairs of two files."""
    return f"pairs of {Path(files[0]).name} and {Path(files[1]).name}"


def within(pairs: EncodedPairs, max_length: int) -> EncodedPairs:
    """The pairs that are short enough; process 0 says how many are not."""
    kept = pairs.within(max_length)
    if len(kept) < len(pairs) and not distributed.rank():
        left_out = f"{len(pairs) - len(kept):,} of {len(pairs):,} pairs"
        print(f"left out: {left_out}, which have more than {max_length} tokens", file=sys.stderr)
    if not kept:
        raise ValueError(f"pairs: expected some of at most {max_length} tokens a side, got none")
    return kept
