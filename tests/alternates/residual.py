"""Add & Norm in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class Builtin(nn.Module):
    """torch's own norm, and an early return."""

    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm, self.p, self.norm_first = nn.LayerNorm(d_model), dropout, norm_first

    def forward(self, x, sublayer):
        given = sublayer(self.norm(x) if self.norm_first else x)
        if given.size() != x.size():
            raise ValueError("sublayer")
        total = F.dropout(given, self.p, self.training) + x
        return total if self.norm_first else self.norm(total)


class TwoNorms(nn.Module):
    """One of two norms is no norm at all; torch.add and dropout by a mask of one's own."""

    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.p, self.norm_first = dropout, norm_first

    def kept(self, y):
        if not self.training or self.p == 0:
            return torch.ones_like(y)
        return torch.rand_like(y).ge(self.p) / (1 - self.p)

    def forward(self, x, sublayer):
        entry, leaving = (self.norm, nn.Identity()) if self.norm_first else (nn.Identity(), self.norm)
        y = sublayer(entry(x))
        if y.shape != x.shape:
            raise ValueError(f"expected {tuple(x.shape)}, got {tuple(y.shape)}")
        return leaving(torch.addcmul(x, y, self.kept(y)))


class ByHand(nn.Module):
    """The norm's formula instead of a module, parameters in a holder."""

    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(d_model))
        self.norm.bias = nn.Parameter(torch.zeros(d_model))
        self.drop = nn.Dropout(dropout)
        self.norm_first = norm_first

    def normalise(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.norm.weight
            + self.norm.bias
        )

    def forward(self, x, sublayer):
        y = sublayer(self.normalise(x)) if self.norm_first else sublayer(x)
        if tuple(y.shape) != tuple(x.shape):
            raise ValueError("shape")
        result = x + self.drop(y)
        return result if self.norm_first else self.normalise(result)


ALTERNATES = [Builtin, TwoNorms, ByHand]
