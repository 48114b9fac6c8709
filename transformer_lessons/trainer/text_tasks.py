"""Tasks whose sentences are texts: English to German, with one byte-pair encoding for both, judged by BLEU."""

import sys
from abc import ABC, abstractmethod
from typing import ClassVar

from transformer_lessons.data import multi30k, wmt14
from transformer_lessons.data.batches import Pair
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoints import Tokeniser
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.evaluation import evaluate_bleu

# What two CPU cores train in minutes.
SMALL = {"d_model": 128, "num_heads": 4, "d_ff": 512, "num_encoder_layers": 2, "num_decoder_layers": 2}


class TextTask(ABC):
    """What the tasks of texts have in common: any text can be read, and BLEU judges."""

    test_set: str  # as the report calls its sentences
    extra_tokens: int | None = None

    @abstractmethod
    def test_pairs(self) -> list[tuple[str, str]]:
        """English and German sentences that nothing was trained on."""

    def read(self, text: str) -> str:
        """Any text but none at all."""
        if not text.strip():
            raise ValueError("text: expected a sentence, got nothing")
        return text.strip()

    def write(self, sentence: str) -> str:
        """As it is, on one line."""
        return " ".join(sentence.split())

    def evaluate(self, model: Transformer, source: Tokeniser, target: Tokeniser, beam_size: int) -> dict:
        """On the test set."""
        options = {"beam_size": beam_size, "extra_tokens": self.extra_tokens}
        result = evaluate_bleu(model, source, target, self.test_pairs(), **options)
        return {"direction": "en-de", **result}

    def report(self, result: dict) -> list[str]:
        """BLEU with what it depends on, and examples."""
        return [
            f"BLEU {result['bleu']:.1f} on {result['n']:,} {self.test_set}, {result['direction']}",
            f"       cased:      {result['bleu']:.2f}, {result['signature']}",
            f"       lowercased: {result['bleu_lowercase']:.2f}, {result['signature_lowercase']}",
            *(f"       {e['source']}\n    → {e['got']}\n    = {e['expected']}" for e in result["examples"]),
        ]


class Multi30k(TextTask):
    """English captions to German ones; by default small enough for two CPU cores."""

    name = "multi30k"
    test_set = "captions never trained on"
    vocab_size = 6_000  # one encoding for both languages, so that they can share an embedding
    sizes: ClassVar = {
        **SMALL,
        "dropout": 0.1,
        "norm_first": True,
        "shared_vocabulary": True,
        "max_length": 128,
    }
    training = TrainingConfig(
        steps=2_000,
        tokens=4_000,
        training_pairs=29_000,
        peak_learning_rate=3e-3,
        warmup_steps=200,
        checkpoint_every=200,
        precision="auto",
    )

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """One byte-pair encoding, learned from both sides of the training set."""
        texts = [text for pair in multi30k.sentences("train") for text in pair]
        joint = Subwords.train(texts, self.vocab_size)
        return joint, joint

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> list[Pair]:
        """The first so many of the training set, by default all."""
        captions = multi30k.sentences("train")[: config.training_pairs]
        return [(source.encode(english), target.encode(german)) for english, german in captions]

    def test_pairs(self) -> list[tuple[str, str]]:
        """The 1,000 captions of the test set of 2016."""
        return multi30k.sentences("test")


class Wmt14(TextTask):
    """The paper's own task, at its setup: the base model, 4.5 million pairs, judged on newstest2014 (§5, §6.1).

    Where the paper says nothing, the defaults do without: no weight decay, no clipping. It wants a GPU.
    """

    name = "wmt14"
    test_set = "sentences of newstest2014"
    extra_tokens = 50  # a translation may have so many more than its source (§6.1)
    vocab_size = 37_000  # shared by both languages (§5.1)
    longest = 256  # tokens a side of a pair that is trained on; what is longer is seldom one sentence
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
    training = TrainingConfig(
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

    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """One byte-pair encoding, learned from both sides of the training set, the first time."""
        joint = wmt14.joint_encoding(self.vocab_size)
        return joint, joint

    def pairs(self, source: Tokeniser, target: Tokeniser, config: TrainingConfig) -> EncodedPairs:
        """The first so many of the training set, by default all, without those that are too long."""
        return within(wmt14.encoded(source)[: config.training_pairs], self.longest)

    def test_pairs(self) -> list[tuple[str, str]]:
        """The 3,003 of newstest2014."""
        return list(wmt14.sentences("test"))


def within(pairs: EncodedPairs, max_length: int) -> EncodedPairs:
    """The pairs that are short enough; process 0 says how many are not."""
    kept = pairs.within(max_length)
    if len(kept) < len(pairs) and not distributed.rank():
        left_out = f"{len(pairs) - len(kept):,} of {len(pairs):,} pairs"
        print(f"left out: {left_out}, which have more than {max_length} tokens", file=sys.stderr)
    return kept
