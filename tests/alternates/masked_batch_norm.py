"""Batch normalisation over real positions in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class OnRows(nn.BatchNorm1d):
    """torch's own layer on the real vectors alone, put back where they were."""

    def forward(self, x, mask):
        if x.shape[-1] != self.num_features or mask.dtype != torch.bool or mask.shape != x.shape[:-1]:
            raise ValueError("x, mask")
        if self.training and mask.sum() < 2:
            raise ValueError("mask")
        output = torch.zeros_like(x)
        output[mask] = super().forward(x[mask])
        return output


class BySums(nn.Module):
    """Sums divided by the number of real positions, padding replaced first."""

    def __init__(self, d_model, eps=1e-5, momentum=0.1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.eps, self.momentum = eps, momentum

    def check(self, x, mask):
        if x.size(-1) != self.weight.numel():
            raise ValueError("x")
        if mask.dtype is not torch.bool or mask.shape != x.shape[:-1]:
            raise ValueError("mask")
        if self.training and int(mask.sum()) < 2:
            raise ValueError("mask")

    def forward(self, x, mask):
        self.check(x, mask)
        real = mask.unsqueeze(-1)
        x = torch.where(real, x, torch.zeros_like(x))
        mean, variance = self.running_mean, self.running_var
        if self.training:
            count = mask.sum()
            mean = x.sum((0, 1)) / count
            variance = (((x - mean) * real) ** 2).sum((0, 1)) / count
            self.move(mean.detach(), variance.detach() * count / (count - 1))
        y = (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias
        return y * real

    def move(self, mean, variance):
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        self.num_batches_tracked.add_(1)


class Functional(BySums):
    """Real vectors gathered by index, the function from torch, and scattered back."""

    def forward(self, x, mask):
        self.check(x, mask)
        where = mask.flatten().nonzero().squeeze(1)
        rows = x.flatten(0, 1)
        self.num_batches_tracked += int(self.training)
        done = F.batch_norm(
            rows[where],
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,
            self.eps,
        )
        return torch.zeros_like(rows).index_copy(0, where, done).view_as(x)


class ByEinsum(BySums):
    """Weights for the mean that are zero at padding."""

    def forward(self, x, mask):
        self.check(x, mask)
        x = x.masked_fill(~mask[..., None], 0)
        if self.training:
            share = mask.to(x.dtype) / mask.sum()
            mean = torch.einsum("bt,btd->d", share, x)
            variance = torch.einsum("bt,btd->d", share, (x - mean) ** 2)
            n = mask.sum().item()
            self.move(mean.detach(), variance.detach() * (n / (n - 1)))
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * (variance + self.eps).rsqrt()
        return torch.addcmul(self.bias - mean * scale, x, scale).masked_fill(~mask[..., None], 0)


ALTERNATES = [OnRows, BySums, Functional, ByEinsum]
