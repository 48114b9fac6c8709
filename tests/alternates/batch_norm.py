"""Batch normalisation in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class Checked(nn.BatchNorm1d):
    """torch's own layer, with the features moved to axis 1 and the doors that it lacks."""

    def forward(self, x):
        if x.shape[-1] != self.num_features:
            raise ValueError("x")
        rows = x.reshape(-1, x.shape[-1])
        if self.training and len(rows) < 2:
            raise ValueError("x")
        return super().forward(rows).reshape(x.shape)


class Functional(nn.Module):
    """Parameters and buffers by hand, the function from torch."""

    def __init__(self, d_model, eps=1e-5, momentum=0.1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        for name, start in (("mean", torch.zeros), ("var", torch.ones)):
            self.register_buffer(f"running_{name}", start(d_model))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.long))
        self.eps, self.momentum = eps, momentum

    def check(self, x):
        if x.shape[-1] != len(self.weight) or (self.training and x[..., 0].numel() < 2):
            raise ValueError("x")

    def forward(self, x):
        self.check(x)
        self.num_batches_tracked += self.training
        rows = F.batch_norm(
            x.flatten(0, -2) if x.dim() > 1 else x[None],
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,
            self.eps,
        )
        return rows.view(x.shape)

    def by_hand(self, x):
        axes = tuple(range(x.dim() - 1))
        variance, mean = torch.var_mean(x, axes, correction=0)
        if not self.training:
            mean, variance = self.running_mean, self.running_var
        return (x - mean) * (self.weight / (variance + self.eps) ** 0.5) + self.bias


class InPlace(Functional):
    """Statistics over all axes but the last, running ones in place."""

    def forward(self, x):
        self.check(x)
        if self.training:
            axes = tuple(range(x.dim() - 1))
            with torch.no_grad():
                self.running_mean += self.momentum * (x.mean(axes) - self.running_mean)
                self.running_var.mul_(1 - self.momentum).add_(x.var(axes), alpha=self.momentum)
                self.num_batches_tracked.add_(1)
        return self.by_hand(x)


class Moments(InPlace):
    """The variance as the mean of squares less the square of the mean."""

    def by_hand(self, x):
        rows = x.reshape(-1, x.shape[-1])
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean = rows.mean(0)
            variance = rows.square().mean(0) - mean.square()
        return torch.addcmul(self.bias, self.weight, (x - mean) * (variance + self.eps).rsqrt())


ALTERNATES = [Checked, Functional, InPlace, Moments]
