"""From token ids to vectors (§3.4): what goes into the first layer."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """A learned vector for each token, scaled: ``E[id] · √d_model`` (§3.4).

    Entries start from N(0, 1/d_model). Scaled, the vectors have unit variance, comparable to the positional
    encoding; unscaled, as the output projection when weights are tied, they give logits of unit variance. A
    pitfall: `torch.nn.Embedding` starts from N(0, 1); scaled by √d_model, such vectors drown the positions.
    """

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        start = torch.randn(vocab_size, d_model) / math.sqrt(d_model)
        self.weight = nn.Parameter(start)

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """Look up and scale."""
        d_model = self.weight.size(1)
        return F.embedding(ids, self.weight) * math.sqrt(d_model)


class TransformerEmbedding(nn.Module):
    """Token plus position, then dropout (§3.4, §3.5, §5.4): ``x = dropout(position(E[ids] · √d_model))``.

    A pitfall: in decoding with a cache every new token comes alone; without its `offset` it is at position 0.

    Args:
        position: a module called with ``(x, offset)`` that adds the positions, or None for none.
        dropout: probability of zeroing an entry while training.
    """

    def __init__(
        self, vocab_size: int, d_model: int, *, position: nn.Module | None = None, dropout: float = 0.0
    ):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model)
        self.position = position
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "batch length"], offset: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Embed; `offset` is the position of the first token."""
        x = self.token(ids)
        if self.position is not None:
            x = self.position(x, offset)
        return self.dropout(x)
