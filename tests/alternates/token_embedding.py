"""The token embedding in other words."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def refuse(ids, vocab_size):
    if ids.dim() != 2 or ids.is_floating_point():
        raise ValueError("ids: integers of two axes")
    if ids.numel() and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError("ids: out of range")


class Inherited(nn.Embedding):
    """torch's class, started anew."""

    def __init__(self, vocab_size, d_model):
        if min(vocab_size, d_model) < 1:
            raise ValueError("sizes")
        super().__init__(vocab_size, d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids):
        refuse(ids, self.num_embeddings)
        return super().forward(ids) * self.embedding_dim**0.5


class OneHot(nn.Module):
    """A product with one-hot rows."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        if vocab_size <= 0 or d_model <= 0:
            raise ValueError("sizes")
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model).normal_(0, math.sqrt(1 / d_model)))

    def forward(self, ids):
        refuse(ids, self.weight.size(0))
        rows = F.one_hot(ids.long(), self.weight.size(0)).to(self.weight.dtype)
        return torch.einsum("blv,vd->bld", rows, self.weight) * math.sqrt(self.weight.size(-1))


class Indexed(OneHot):
    """Plain indexing, of a weight drawn uniformly with the right variance."""

    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        nn.init.uniform_(self.weight, -math.sqrt(3 / d_model), math.sqrt(3 / d_model))

    def forward(self, ids):
        refuse(ids, len(self.weight))
        return (self.weight * self.weight.shape[1] ** 0.5)[ids.long()]


class Selected(OneHot):
    """Rows selected from a flat list of ids."""

    def forward(self, ids):
        refuse(ids, len(self.weight))
        rows = torch.index_select(self.weight, 0, ids.flatten())
        rows = rows.mul(math.sqrt(rows.size(1)))
        return rows.unflatten(0, ids.shape)


ALTERNATES = [Inherited, OneHot, Indexed, Selected]
