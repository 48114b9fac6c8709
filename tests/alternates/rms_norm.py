"""RMSNorm in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class ByLength(nn.Module):
    """By the length of the vector, which is √d times its root mean square."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        if d_model < 1:
            raise ValueError("d_model")
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def check(self, x):
        if x.shape[-1] != self.weight.numel():
            raise ValueError("x")

    def forward(self, x):
        self.check(x)
        wide = x if x.dtype is torch.float64 else x.float()
        square = torch.einsum("...d,...d->...", wide, wide)[..., None]
        return (self.weight * wide / torch.sqrt(square / x.size(-1) + self.eps)).type_as(x)


class Builtin(ByLength):
    """torch's own function, given numbers that fit."""

    def forward(self, x):
        self.check(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.rms_norm(wide, self.weight.shape, self.weight.to(wide.dtype), self.eps).to(x.dtype)


class WeightLast(ByLength):
    """Rounds back first and scales then, as published models do."""

    def forward(self, x):
        self.check(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        size = wide.pow(2).mean(-1, keepdim=True).add(self.eps)
        return self.weight * (wide * size.rsqrt()).to(x.dtype)


class Prescaled(ByLength):
    """Divides by the largest entry first, so that no square overflows; ε shrinks with it."""

    def forward(self, x):
        self.check(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        largest = wide.detach().abs().amax(-1, keepdim=True).clamp(min=1e-3)
        small = wide / largest
        root = (small.square().mean(-1, keepdim=True) + self.eps / largest**2).sqrt()
        return (small / root * self.weight).to(x.dtype)


ALTERNATES = [ByLength, Builtin, WeightLast, Prescaled]
