"""Tokens to ids and back, and sentences to padded batches."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lessons import expect

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


class Vocabulary:
    """A fixed list of tokens; the id of a token is its place. The first three are `PAD`, `BOS`, `EOS`.

    A pitfall: ids mean something only together with their vocabulary, so a saved model keeps its tokens.

    Args:
        tokens: the tokens without the special three.

    Raises:
        ValueError: for tokens that are not several str, or one given twice.
    """

    pad_id, bos_id, eos_id = 0, 1, 2

    def __init__(self, tokens: Iterable[str]):
        expect.several(tokens=tokens)
        self.tokens = [PAD, BOS, EOS, *tokens]
        for token in self.tokens:
            expect.kind(str, tokens=token)
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            twice = next(token for token in self.tokens if self.tokens.count(token) > 1)
            raise ValueError(f"tokens: expected each once, got {twice!r} twice")

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of `tokens`; raises ValueError for one that is not in the vocabulary, or for a single str."""
        expect.several(tokens=tokens)
        ids = []
        for token in tokens:
            if not isinstance(token, str) or token not in self.ids:
                raise ValueError(f"tokens: expected tokens of the vocabulary, got {token!r}")
            ids.append(self.ids[token])
        return ids

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens that `ids_to_show` leaves; raises ValueError for what is no id of the vocabulary."""
        return [self.tokens[number] for number in ids_to_show(ids, len(self))]


def ids_to_show(ids: Iterable[int], vocab_size: int) -> list[int]:
    """The ids up to the first end mark, without padding and start marks, which is what people see.

    A pitfall: a negative id would count from the end of the list of tokens.

    Raises:
        ValueError: for what are not several ids, or one out of range.
    """
    expect.several(ids=ids)
    shown = []
    for number in ids:
        expect.index(number, vocab_size)
        if number == Vocabulary.eos_id:
            break
        if number not in (Vocabulary.pad_id, Vocabulary.bos_id):
            shown.append(number)
    return shown


def pad(sequences: Sequence[Sequence[int]], pad_id: int) -> Int[Tensor, "batch length"]:
    """One row for each sequence, filled up on the right with `pad_id` to the length of the longest.

    A pitfall: if `pad_id` is also the id of a token, `padding_mask` hides that token wherever it stands.

    Raises:
        ValueError: for what are not several lists of integers, or a pad_id that is no integer.
    """
    expect.several(sequences=sequences)
    expect.integers(pad_id=pad_id)
    for sequence in sequences:
        expect.several(sequences=sequence)
    length = max(map(len, sequences), default=0)
    rows = [[*sequence, *[pad_id] * (length - len(sequence))] for sequence in sequences]
    if not length:
        return torch.empty(len(rows), 0, dtype=torch.long)
    try:
        ids = torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError("sequences: expected ids, got what is no number") from None
    # Not asked for integers, torch.tensor tells what came; asked, it would cut off fractions without a word.
    if ids.dim() != 2 or ids.dtype is not torch.long:
        raise ValueError(f"sequences: expected lists of integers, got {ids.dtype} {tuple(ids.shape)}")
    return ids
