"""Tasks whose sentences are texts: a byte-pair encoding for both languages, judged by BLEU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from transformer_lessons.config import expect
from transformer_lessons.data import multi30k, wmt14
from transformer_lessons.data.corpus import Corpus, aligned
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.files import read_json
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import configs
from transformer_lessons.trainer.checkpoints import Tokeniser
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_bleu, say_what_is_left_out

# What two CPU cores train in minutes.
SMALL = {"d_model": 128, "num_heads": 4, "d_ff": 512, "num_encoder_layers": 2, "num_decoder_layers": 2}
SMALLEST_VOCABULARY = Vocabulary.eos_id + 1 + 256
FILES = {"source": 1, "target": 1, "validation": 2, "test": 2}  # how many each
# Where no spaces stand between words, sacreBLEU must find them otherwise.
TOKENIZE = {"zh": "zh", "ja": "char", "ko": "char", "th": "char", "lo": "char", "km": "char", "my": "char"}


@dataclass(frozen=True)
class TextTask:
    """What a run learns of texts: files of the user's own, or those that a name stands for.

    Attributes:
        name, sizes, training: what ``--task`` calls it, and its model and settings.
        vocab_size: most tokens of the encoding that both languages share; of small files there are fewer.
    """

    name: str
    sizes: dict
    training: TrainingConfig
    vocab_size: int
    longest: int = 256  #: most tokens a side of a pair to train on; what is longer is seldom one sentence
    extra_tokens: int | None = 50  #: how many more than its source a translation may have; None for any
    #: where the files of "train" and "test" are, if the task is known by name
    find_files: Callable[[str], tuple[Path, Path]] | None = None
    source: str | None = None  #: otherwise, the file to train on, plain or ``.gz``
    target: str | None = None  #: its translation
    validation: Sequence[str] | None = None  #: two more, to be judged on at the end of training
    test: Sequence[str] | None = None  #: two more, for `evaluate`; without them, some pairs are held out
    trained_on: str | None = None  #: what was in the files, once a run has begun

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
        """What a run keeps of it, with whole paths, so that it can go on from anywhere."""
        kept = ("vocab_size",) if self.find_files else ("vocab_size", *FILES, "trained_on")
        return {name: getattr(self, name) for name in kept}

    def checked(self, *, resumed: bool) -> "TextTask":
        """With what is in its files; ValueError or OSError if one is missing, of no use, or has changed."""
        task = self if resumed else replace(self, trained_on=None)
        for name in ("source", "target"):
            if not (task.find_files or getattr(task, name)):
                raise ValueError(f"{name}: expected a file with a sentence a line, got none")
        for files in (task.files("test"), task.validation):
            task.pairs_to_judge_by(files)
        return task if task.find_files else replace(task, trained_on=task.corpus.fingerprint)

    @cached_property
    def corpus(self) -> Corpus:
        """The files to train on; ValueError if they are not what a run has begun with."""
        source, target = self.files("train")
        corpus = Corpus(source, target, self.files("test"))
        if self.trained_on and self.trained_on != corpus.fingerprint:
            raise ValueError(f"source: {source} and {target} have changed since the run began")
        return corpus

    def files(self, split: str) -> Sequence[Path] | None:
        """The two files of "train" or "test"; None for pairs that are held out."""
        if self.find_files:
            return self.find_files(split)
        paths = (self.source, self.target) if split == "train" else self.test
        return paths and [Path(path) for path in paths]

    def pairs_to_judge_by(self, files: Sequence[str | Path] | None) -> list[tuple[str, str]]:
        """The pairs of two files, or those that are held out."""
        pairs = list(aligned(*map(Path, files))) if files else self.corpus.held_out
        if not pairs:
            raise ValueError(f"{files[0] if files else self.source}: expected sentences, got none")
        return pairs

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """One byte-pair encoding, learned from both sides of the training set, the first time."""
        joint = self.corpus.joint_encoding(self.vocab_size)
        return joint, joint

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> EncodedPairs:
        """The training set, by default all of it."""
        return self.corpus.encoded(source).chosen(slice(config.training_pairs))

    def read(self, text: str) -> str:
        """Any text but none at all."""
        if not text.strip():
            raise ValueError("text: expected a sentence, got nothing")
        text.encode()  # also a ValueError, for bytes that are no UTF-8
        return text.strip()

    def write(self, sentence: str) -> str:
        """As it is, on one line."""
        return " ".join(sentence.split())

    def evaluate(
        self, model: Transformer, source, target, beam_size: int, files: Sequence[str] | None = None
    ) -> dict:
        """On the test set, or on two files."""
        files = files or self.files("test")
        name = " and ".join(Path(path).name for path in files or [self.source])
        languages = ["en", "de"] if self.find_files else [_language(self.source), _language(self.target)]
        options = {"beam_size": beam_size, "tokenize": TOKENIZE.get(languages[1], "13a")}
        pairs, most = self.pairs_to_judge_by(files), model.config.max_length
        short = [pair for pair in pairs if len(source.encode(pair[0])) <= most]
        say_what_is_left_out(len(pairs) - len(short), len(pairs), most)
        result = evaluate_bleu(model, source, target, short, extra_tokens=self.extra_tokens, **options)
        on = f"pairs of {name}" if files else f"pairs held out of {name}"
        return {"direction": "-".join(languages), "on": on, **result}

    def report(self, result: dict) -> list[str]:
        """BLEU with what it depends on, and examples."""
        return [
            f"BLEU {result['bleu']:.1f} on {result['n']:,} {result['on']}, {result['direction']}",
            f"       cased:      {result['bleu']:.2f}, {result['signature']}",
            f"       lowercased: {result['bleu_lowercase']:.2f}, {result['signature_lowercase']}",
            *(f"       {e['source']}\n    → {e['got']}\n    = {e['expected']}" for e in result["examples"]),
        ]


def _language(path: str) -> str:
    """As a file's name ends, without .gz: those of a.fi and a.et.gz are fi and et."""
    return Path(path.removesuffix(".gz")).suffix[1:] or "?"


MULTI30K = TextTask(
    name="multi30k",
    sizes={**SMALL, "dropout": 0.1, "norm_first": True, "shared_vocabulary": True, "max_length": 128},
    training=TrainingConfig(
        steps=2_000,
        tokens=4_000,
        training_pairs=29_000,
        peak_learning_rate=3e-3,
        warmup_steps=200,
        checkpoint_every=200,
        precision="auto",
    ),
    vocab_size=6_000,
    extra_tokens=None,
    find_files=multi30k.files,
)
# Any two files, by default as captions are trained on.
TEXT = replace(
    MULTI30K,
    name="text",
    sizes={**MULTI30K.sizes, "max_length": 1_024},
    training=replace(MULTI30K.training, training_pairs=1_000_000_000),  # that is, all
    extra_tokens=50,
    find_files=None,
)
# The paper's own task, at its setup: the base model, 4.5 million pairs, judged on newstest2014 (§5, §6.1).
PAPER = read_json(configs.PACKAGED["wmt14-base"])
WMT14 = TextTask(
    name="wmt14",
    sizes=PAPER["model"],
    training=TrainingConfig(**PAPER["training"]),
    vocab_size=37_000,  # shared by both languages (§5.1)
    find_files=wmt14.files,  # a translation may have 50 tokens more than its source (§6.1)
)
