"""A byte-pair encoding to look into: frequent words get an id of their own, rare ones are split into pieces.

It starts from single symbols and repeatedly merges the most frequent pair of neighbours into a new symbol
(Sennrich et al. 2016). The initial symbols are the 256 bytes of UTF-8, as in GPT-2 (Radford et al. 2019,
§2.2), so no text is ever unknown. Chapter 2 builds the algorithm; here the `tokenizers` library runs it.
Install it with ``pip install "transformer-lessons[chapters]"``.
"""

import json
import re
from collections.abc import Iterable, Sequence

from transformer_lessons.data.libraries import library
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary, ids_to_show

# The library merges characters, so each byte is mapped to one; none of these occurs in "<pad>".
LETTERS = [chr(0x4E00 + byte) for byte in range(256)]


def split_words(text: str) -> list[str]:
    """Words and runs of punctuation, each with at most one leading space, and other white space.

    ``"to be!"`` gives ``["to", " be", "!"]``. Joined, the pieces are the text again; no token crosses their
    borders. A pitfall: the same word with and without a leading space is two words with different ids.
    """
    return re.findall(r" ?\w+| ?[^\w\s]+|\s+", text)


def letters(text: str) -> str:
    """The text with each byte of its UTF-8 mapped to one character."""
    return text.encode().decode("latin-1").translate(LETTERS)


class BytePairEncoding:
    """A lossless encoding of text as ids, by merges in the order in which they were learnt.

    Ids 0, 1, 2 are the special tokens of `Vocabulary`, which represent no text, 3 … 258 the bytes, the others
    merged tokens. Only the merges need saving: ``BytePairEncoding(saved.merges)`` is the same encoding.

    A pitfall: the order of the merges matters; the same set in another order splits words differently.
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
        """Merge the most frequent pair of neighbours until there are `vocab_size` tokens or nothing to merge.

        Algorithm 1 of Sennrich et al. 2016. Among equally frequent pairs, the one with the smallest ids is
        merged first, so the same texts always give the same merges, whatever their order. A pitfall: a source
        and a target language that share an embedding need one encoding, trained on both.
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
        """The ids of a text, without special ones; in each word, the pair learnt earliest is merged first.

        A pitfall: this may not be the split with the fewest tokens, as a merge can rule out a longer one.
        """
        words = [*map(letters, split_words(text))]
        return self._library.encode(words, is_pretokenized=True).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` up to the first end mark; ``decode(encode(text)) == text`` for every text.

        A pitfall: a model may produce bytes that are not valid UTF-8; they become �, and the bytes are lost.
        """
        tokens = (self.tokens[number] for number in ids_to_show(ids))
        return b"".join(tokens).decode("utf-8", errors="replace")
