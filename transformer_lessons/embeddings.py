"""From token ids to vectors (§3.4): what goes into the first layer."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.fast.dropout import Dropout


class TokenEmbedding(nn.Module):
    """A learned vector for each token, scaled: ``E[id] · √d_model`` (§3.4).

    Entries start from N(0, 1/d_model). Scaled, the vectors then have unit variance, of the size of the
    positional encoding; unscaled, as the output projection when the weights are tied, they give logits of
    unit variance. One matrix can serve both only because of the factor between them. A pitfall:
    `torch.nn.Embedding` starts from N(0, 1), and scaled by √d_model such vectors drown the positions.

    Shapes: ids ``(batch, length)`` → ``(batch, length, d_model)``.

    Raises:
        ValueError: for sizes below 1; when called, for what is no int64 or int32 of two axes, lies on another
            device, or ids outside 0 … vocab_size − 1 (checked where it costs no synchronisation: not on a GPU,
            not in a compiled graph).
    """

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        expect.sizes(vocab_size=vocab_size, d_model=d_model)
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """Look up and scale."""
        vocab_size, d_model = self.weight.shape
        expect.ids(ids=ids)
        expect.same_device(self.weight, ids=ids)
        expect.below(vocab_size, ids=ids)
        return nn.functional.embedding(ids, self.weight) * math.sqrt(d_model)


class TransformerEmbedding(nn.Module):
    """Token embedding plus position, then dropout (§3.4, §3.5, §5.4): the input of the first layer.

    ``x = dropout(position(E[ids] · √d_model))``

    A pitfall: in decoding with a cache every new token comes alone, and without its `offset` it is at position 0.

    Args:
        vocab_size: number of tokens.
        d_model: width.
        position: a module called with ``(x, offset)`` that adds the positions, or None for none; for packed rows
            also with ``positions=…``.
        dropout: probability of zeroing an entry while training.

    Raises:
        ValueError: for sizes below 1, a position that is no module, a dropout outside [0, 1), an offset below
            0, ids that `TokenEmbedding` refuses, or what `position` refuses.
    """

    def __init__(
        self, vocab_size: int, d_model: int, *, position: nn.Module | None = None, dropout: float = 0.0
    ):
        super().__init__()
        if position is not None:
            expect.function(position=position)
        expect.probability(dropout=dropout)
        self.token = TokenEmbedding(vocab_size, d_model)
        self.position = position
        self.dropout = Dropout(dropout)

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        offset: int | Int[Tensor, ""] = 0,
        *,
        positions: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Embed; `offset` is the position of the first token (decoding with a cache starts late).

        `positions` are those of each token, in packed rows, where they start anew with every sentence.
        """
        x = self.token(ids)
        expect.offset(offset)
        if self.position is not None:
            packed = {} if positions is None else {"positions": positions}
            x = self.position(x, offset, **packed)
        return self.dropout(x)
