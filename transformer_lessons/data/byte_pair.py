"""Byte-pair encoding to look into: frequent words get an id of their own, rare ones are spelt in pieces.

It starts from single symbols and makes the most frequent pair of neighbours a new symbol, again and again
(Sennrich et al. 2016). The symbols to start from are the 256 bytes of UTF-8, as in GPT-2 (Radford et al.
2019, §2.2), so no text is ever unknown. Chapter 2 builds it; here the `tokenizers` library computes it. It needs
``pip install "transformer-lessons[chapters]"``.
"""

import json
import re
from collections.abc import Iterable, Sequence

from transformer_lessons.data.libraries import library
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary, ids_to_show

# The library merges characters, so each byte gets one; ones that "<pad>" is not made of.
LETTERS = [chr(0x4E00 + byte) for byte in range(256)]


def split_words(text: str) -> list[str]:
    """Words and runs of punctuation, each with a single space before it, and other white space.

    ``"to be!"`` is ``["to", " be", "!"]``. Joined together they are the text again; no token reaches across their
    borders. A pitfall: the same word with and without its space are two words, and get different ids.
    """
    return re.findall(r" ?\w+| ?[^\w\s]+|\s+", text)


def letters(text: str) -> str:
    """One for each byte of its UTF-8."""
    return text.encode().decode("latin-1").translate(LETTERS)


class BytePairEncoding:
    """Text to ids and back without loss, by merges that were learnt in a fixed order.

    Ids: 0, 1, 2 are the special three of `Vocabulary` and stand for no text, 3 … 258 the bytes, then one for each
    new token. The merges are all there is to save: ``BytePairEncoding(saved.merges)`` is the same encoding.

    A pitfall: merges belong to their order; the same set in another order splits words differently.
    """

    pad_id, bos_id, eos_id = Vocabulary.pad_id, Vocabulary.bos_id, Vocabulary.eos_id

    def __init__(self, merges: Iterable[Sequence[int]] = ()):
        tokenizers = library("tokenizers", extra="chapters")
        self.merges = [(left, right) for left, right in merges]
        names, pairs = [PAD, BOS, EOS, *LETTERS], []
        for left, right in self.merges:
            pairs.append((names[left], names[right]))
            names.append(names[left] + names[right])
        ids = {name: number for number, name in enumerate(names)}
        self._library = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
        self.tokens = [bytes(ord(letter) % 0x4E00 for letter in name) for name in names]

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "BytePairEncoding":
        """Merge the most frequent pair of neighbours until there are `vocab_size` tokens, or nothing to merge.

        Algorithm 1 of Sennrich et al. 2016. Of equally frequent pairs the one with the smallest ids is
        merged, so the same texts always give the same merges, whatever their order. A pitfall: a source and a
        target language that share an embedding need one encoding, trained on both.
        """
        tokenizers = library("tokenizers", extra="chapters")
        learner = tokenizers.Tokenizer(tokenizers.models.BPE())
        special = {"special_tokens": [PAD, BOS, EOS], "initial_alphabet": LETTERS, "show_progress": False}
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, **special)
        learner.train_from_iterator((letters(word) for text in texts for word in split_words(text)), trainer)
        pairs = json.loads(learner.to_str())["model"]["merges"]
        return cls([(learner.token_to_id(left), learner.token_to_id(right)) for left, right in pairs])

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special ones: in each word the pair learnt first is merged, again and again.

        A pitfall: that need not be the split with the fewest tokens: an early merge can rule out a longer one.
        """
        words = [*map(letters, split_words(text))]
        return self._library.encode(words, is_pretokenized=True).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` up to the first end mark; ``decode(encode(text)) == text`` for every text.

        A pitfall: a model may produce bytes that are no UTF-8; they become �, and what � was is lost.
        """
        tokens = (self.tokens[number] for number in ids_to_show(ids))
        return b"".join(tokens).decode("utf-8", errors="replace")
