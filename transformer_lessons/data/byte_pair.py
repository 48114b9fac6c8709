"""Byte-pair encoding from scratch: frequent words get an id of their own, rare ones are spelt in pieces.

It starts from single symbols and makes the most frequent pair of neighbours a new symbol, again and again
(Sennrich et al. 2016). The symbols to start from are the 256 bytes of UTF-8, as in GPT-2 (Radford et al.
2019, §2.2), so no text is ever unknown. `subwords` does the same with a fast library.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary, ids_to_show

IdPair = tuple[int, int]

FIRST_BYTE = Vocabulary.eos_id + 1


def split_words(text: str) -> list[str]:
    """Words and runs of punctuation, each with a single space before it, and other white space.

    ``"to be!"`` is ``["to", " be", "!"]``. Joined together they are the text again; no token reaches across their
    borders. A pitfall: the same word with and without its space are two words, and get different ids.
    """
    return re.findall(r" ?\w+| ?[^\w\s]+|\s+", text)


def merge(ids: Iterable[int], pair: IdPair, new: int) -> list[int]:
    """Replace `pair` by `new` wherever it occurs, from left to right: (a, a) in a a a gives (aa) a.

    A pitfall: occurrences may overlap, so counting them does not say how many will be replaced.
    """
    merged = []
    for number in ids:
        if merged and (merged[-1], number) == pair:
            merged[-1] = new
        else:
            merged.append(number)
    return merged


def _byte_ids(word: str) -> list[int]:
    return [FIRST_BYTE + byte for byte in word.encode("utf-8")]


class BytePairEncoding:
    """Text to ids and back without loss, by merges that were learnt in a fixed order.

    Ids: 0, 1, 2 are the special three of `Vocabulary` and stand for no text, 3 … 258 the bytes, then one for each
    new token. The merges are all there is to save: ``BytePairEncoding(saved.merges)`` is the same encoding.

    A pitfall: merges belong to their order; the same set in another order splits words differently.
    """

    pad_id, bos_id, eos_id = Vocabulary.pad_id, Vocabulary.bos_id, Vocabulary.eos_id

    def __init__(self, merges: Iterable[Sequence[int]] = ()):
        self.tokens = [PAD.encode(), BOS.encode(), EOS.encode(), *(bytes([byte]) for byte in range(256))]
        self._merged: dict[IdPair, int] = {}
        self._encoded: dict[str, list[int]] = {}  # the words of a language come again and again
        for left, right in merges:
            self._learn((left, right))

    def _learn(self, pair: IdPair) -> int:
        self._merged[pair] = len(self)
        self.tokens.append(self.tokens[pair[0]] + self.tokens[pair[1]])
        return self._merged[pair]

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "BytePairEncoding":
        """Merge the most frequent pair of neighbours until there are `vocab_size` tokens, or nothing to merge.

        Algorithm 1 of Sennrich et al. 2016. Of equally frequent pairs the one with the smallest ids is
        merged, so the same texts always give the same merges, whatever their order. A pitfall: a source and a
        target language that share an embedding need one encoding, trained on both.
        """
        encoding = cls()
        frequencies = Counter(word for text in texts for word in split_words(text))
        words = {word: _byte_ids(word) for word in frequencies}
        counts: Counter[IdPair] = Counter()
        places = defaultdict(set)  # the words that have, or once had, the pair

        def count(word: str, times: int) -> None:
            for pair in pairwise(words[word]):
                counts[pair] += times
                places[pair].add(word)

        for word, times in frequencies.items():
            count(word, times)
        while len(encoding) < vocab_size and (highest := max(counts.values(), default=0)):
            pair = min(pair for pair, times in counts.items() if times == highest)
            new = encoding._learn(pair)
            for word in places.pop(pair):  # only these are counted anew: that makes it fast enough
                count(word, -frequencies[word])
                words[word] = merge(words[word], pair, new)
                count(word, frequencies[word])
        return encoding

    @property
    def merges(self) -> list[IdPair]:
        """The pairs in the order in which they were learnt: plain data, to be saved as JSON, say."""
        return list(self._merged)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special ones: in each word the pair learnt first is merged, again and again.

        A pitfall: that need not be the split with the fewest tokens: an early merge can rule out a longer one.
        """
        return [number for word in split_words(text) for number in self._encode_word(word)]

    def _encode_word(self, word: str) -> list[int]:
        if word not in self._encoded:
            ids = _byte_ids(word)
            while known := [pair for pair in pairwise(ids) if pair in self._merged]:
                first = min(known, key=self._merged.__getitem__)  # ids count up, so also the one learnt first
                ids = merge(ids, first, self._merged[first])
            self._encoded[word] = ids
        return self._encoded[word]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` up to the first end mark; ``decode(encode(text)) == text`` for every text.

        A pitfall: a model may produce bytes that are no UTF-8; they become �, and what � was is lost.
        """
        tokens = (self.tokens[number] for number in ids_to_show(ids))
        return b"".join(tokens).decode("utf-8", errors="replace")
