"""Tokens to ids and back, and sentences to padded batches."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


class Vocabulary:
    """A fixed list of tokens; the id of a token is its place. The first three are `PAD`, `BOS`, `EOS`.

    A pitfall: ids mean something only together with their vocabulary, so a saved model keeps its tokens.

    Args:
        tokens: the tokens without the special three.

    Raises:
        ValueError: for a token given twice.
    """

    pad_id, bos_id, eos_id = 0, 1, 2

    def __init__(self, tokens: Iterable[str]):
        self.tokens = [PAD, BOS, EOS, *tokens]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            twice = next(token for token in self.tokens if self.tokens.count(token) > 1)
            raise ValueError(f"tokens: expected each once, got {twice!r} twice")

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of `tokens`; raises ValueError for one that is not in the vocabulary."""
        try:
            return [self.ids[token] for token in tokens]
        except KeyError as unknown:
            raise ValueError(f"tokens: expected tokens of the vocabulary, got {unknown.args[0]!r}") from None

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens of `ids` up to the first end mark, without padding and start marks."""
        tokens = []
        for number in ids:
            if number == self.eos_id:
                break
            if number not in (self.pad_id, self.bos_id):
                tokens.append(self.tokens[number])
        return tokens


def pad(sequences: Sequence[Sequence[int]], pad_id: int) -> Int[Tensor, "batch length"]:
    """One row for each sequence, filled up on the right with `pad_id` to the length of the longest.

    A pitfall: if `pad_id` is also the id of a token, `padding_mask` hides that token wherever it stands.
    """
    length = max(map(len, sequences), default=0)
    rows = [[*sequence, *[pad_id] * (length - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), length)
