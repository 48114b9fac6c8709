"""Byte-pair encoding for training runs by the `tokenizers` library, with `BytePairEncoding`'s interface.

It is saved as one file. Install the library with ``pip install "transformer-lessons[text]"``.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformer_lessons.data.files import write_text
from transformer_lessons.data.libraries import library
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary, ids_to_show


class Subwords:
    """A lossless byte-level byte-pair encoding of the `tokenizers` library.

    Ids 0, 1, 2 are the three special tokens of `Vocabulary`. Text never produces them: "<eos>" in a text is
    five characters, not an end mark. The bytes' ids are in another order than in `BytePairEncoding`.

    Create one with `train` or `load`. A pitfall: ids mean nothing without their tokenizer.json, so save both.
    """

    pad_id, bos_id, eos_id = Vocabulary.pad_id, Vocabulary.bos_id, Vocabulary.eos_id

    def __init__(self, tokenizer: Any):
        tokenizer.encode_special_tokens = True  # "<eos>" in a text is ordinary text
        self.tokenizer = tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, *, progress: bool = False) -> "Subwords":
        """Merge frequent pairs as `BytePairEncoding.train` does, within words as GPT-2 splits them.

        A pitfall: languages that share an embedding need one encoding, trained on both: ``[*english, *german]``.
        """
        tokenizers = library("tokenizers", extra="text")
        byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[PAD, BOS, EOS],
            initial_alphabet=byte_level.alphabet(),  # every byte, including those absent from these texts
            show_progress=progress,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> "Subwords":
        """Read a tokenizer.json; ValueError if the library cannot."""
        tokenizers, content = library("tokenizers", extra="text"), path.read_bytes()
        try:
            return cls(tokenizers.Tokenizer.from_buffer(content))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path}: expected a tokenizer.json, got something else: {error}") from None

    def save(self, path: Path) -> None:
        """Write a tokenizer.json, whole or not at all."""
        write_text(path, self.tokenizer.to_str(pretty=True) + "\n")

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special ones."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of several texts, computed on all cores; many times as fast as one text at a time."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` up to the first end mark; bytes that are not valid UTF-8 become �."""
        return self.tokenizer.decode(ids_to_show(ids))
