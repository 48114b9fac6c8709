"""Conversion between tokens and ids, and padding of sentences to one length."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

import torch
from jaxtyping import Int
from torch import Tensor

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


class Vocabulary:
    """A fixed list of tokens; the id of a token is its index. The first three are `PAD`, `BOS`, `EOS`.

    A pitfall: ids mean nothing without their vocabulary, so save both.
    """

    pad_id, bos_id, eos_id = 0, 1, 2

    def __init__(self, tokens: Iterable[str]):
        self.tokens = [PAD, BOS, EOS, *tokens]
        self.ids = {token: number for number, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of `tokens`; ValueError for one that is not in the vocabulary."""
        try:
            return [self.ids[token] for token in tokens]
        except KeyError as error:
            raise ValueError(f"tokens: expected tokens of the vocabulary, got {error}") from None

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens of the ids that `ids_to_show` keeps."""
        return [self.tokens[number] for number in ids_to_show(ids)]


def ids_to_show(ids: Iterable[int]) -> list[int]:
    """The ids to show to people: those before the first end mark, without padding and start marks."""
    shown = takewhile(lambda number: number != Vocabulary.eos_id, ids)
    return [number for number in shown if number not in (Vocabulary.pad_id, Vocabulary.bos_id)]


def pad(sequences: Sequence[Sequence[int]], pad_id: int) -> Int[Tensor, "batch length"]:
    """One row per sequence, padded on the right with `pad_id` to the length of the longest.

    A pitfall: if `pad_id` is also the id of a token, `padding_mask` hides that token everywhere.
    """
    length = max(map(len, sequences), default=0)
    rows = [[*sequence, *[pad_id] * (length - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), length)
