"""A byte-pair encoding to look into: frequent words get an id of their own, rare ones are split into pieces.

It starts from single symbols and repeatedly merges the most frequent pair of neighbours into a new symbol
(Sennrich et al. 2016). The initial symbols are the 256 bytes of UTF-8, as in GPT-2 (Radford et al. 2019,
§2.2), so no text is ever unknown. Chapter 2 builds the algorithm; here the `tokenizers` library runs it.
Install it with ``pip install "transformer-lessons[chapters]"``.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD


class BytePairEncoding(Subwords):
    """A lossless encoding of text as ids, by merges in the order in which they were learnt.

    Ids 0, 1, 2 are the special tokens of `Vocabulary`, which represent no text, 3 … 258 the bytes, the others
    merged tokens. Only the merges need saving: ``BytePairEncoding(saved.merges)`` is the same encoding.

    A pitfall: the order of the merges matters; the same set in another order splits words differently.
    """

    def __init__(self, merges: Iterable[Sequence[int]] = ()):
        self.merges, names, pairs = [(left, right) for left, right in merges], _first_names(), []
        for left, right in self.merges:
            pairs.append((names[left], names[right]))
            names.append(names[left] + names[right])
        super().__init__(_split_into_bytes({name: number for number, name in enumerate(names)}, pairs))
        byte = {name: number for number, name in enumerate(names[3:259])}
        self.tokens = [mark.encode() for mark in (PAD, BOS, EOS)]
        self.tokens += [bytes(byte[letter] for letter in name) for name in names[3:]]

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "BytePairEncoding":
        """Merge the most frequent pair of neighbours until there are `vocab_size` tokens or nothing to merge.

        Algorithm 1 of Sennrich et al. 2016. Among equally frequent pairs, the one with the smallest ids is
        merged first, so the same texts always give the same merges, whatever their order. A pitfall: a source
        and a target language that share an embedding need one encoding, trained on both.
        """
        learner = _split_into_bytes()
        # As special tokens, the bytes keep their order.
        options = {"vocab_size": vocab_size, "special_tokens": _first_names(), "show_progress": False}
        trainer = library("tokenizers", extra="chapters").trainers.BpeTrainer(**options)
        learner.train_from_iterator(texts, trainer)
        pairs = json.loads(learner.to_str())["model"]["merges"]
        return cls([(learner.token_to_id(left), learner.token_to_id(right)) for left, right in pairs])


def _first_names() -> list[str]:
    """What the library calls the special tokens and the bytes; merging makes no name with a space."""
    letters = sorted(library("tokenizers", extra="chapters").pre_tokenizers.ByteLevel.alphabet())
    # Bytes that are no printable letter are called by letters from 256 on.
    others = (letter for letter in letters if ord(letter) > 255)
    names = [chr(byte) if chr(byte) in letters else next(others) for byte in range(256)]
    return [" pad", " bos", " eos", *names]


def _split_into_bytes(*model: Any) -> Any:
    """A tokenizer of the library for bytes, which never merges across the borders of words.

    ``"to be!"`` is split into ``["to", " be", "!"]``: words and runs of punctuation, each with at most one
    leading space, and other white space. A pitfall: a word with and without it is two words with different ids.
    """
    tokenizers = library("tokenizers", extra="chapters")
    words = tokenizers.Regex(r" ?[\p{L}\p{N}_]+| ?[^\s\p{L}\p{N}_]+|\s+")
    parts, tokenizer = tokenizers.pre_tokenizers, tokenizers.Tokenizer(tokenizers.models.BPE(*model))
    in_bytes = parts.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = parts.Sequence([parts.Split(words, "isolated"), in_bytes])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer
