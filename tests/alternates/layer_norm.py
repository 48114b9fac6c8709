"""Layer normalisation in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class Builtin(nn.LayerNorm):
    """torch's own layer, with the door that it lacks."""

    def __init__(self, d_model, eps=1e-5):
        if d_model < 1:
            raise ValueError("d_model")
        super().__init__(d_model, eps)

    def forward(self, x):
        if x.size(-1) != self.normalized_shape[0]:
            raise ValueError("x")
        return super().forward(x)


class OwnParameters(nn.Module):
    """Parameters by hand, the function from torch."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        if d_model < 1:
            raise ValueError("d_model")
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x):
        if x.shape[-1] != self.weight.numel():
            raise ValueError("x")
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class BySquares(OwnParameters):
    """Sums of squares, rsqrt and addcmul."""

    def forward(self, x):
        if x.shape[-1] != self.weight.numel():
            raise ValueError("x")
        wide = x if x.dtype is torch.float64 else x.float()
        mean = wide.mean(-1, keepdim=True)
        variance = (wide - mean).pow(2).sum(-1, keepdim=True) / x.size(-1)
        normalised = ((wide - mean) * torch.rsqrt(variance + self.eps)).to(x.dtype)
        return torch.addcmul(self.bias, normalised, self.weight)


ALTERNATES = [Builtin, OwnParameters, BySquares]
