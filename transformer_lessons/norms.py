"""Normalisation (§3.1, "Add & Norm"): of each vector over its features, or of each feature over the vectors."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """Each vector gets mean 0 and variance 1 over its own features, then a learned scale and shift.

    ``y = γ · (x − μ) / √(σ² + ε) + β``, μ and σ² over the last axis (Ba et al. 2016, used in §3.1)

    Nothing depends on the batch, so training and evaluation do the same. Two pitfalls: σ² is the *biased*
    variance (divide by d_model, not d_model − 1), and ε is *inside* the root.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise the last axis, in at least float32: in float16, squares overflow from 256 on."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide - wide.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        normalised = centred * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(x.dtype)


class BatchNorm(nn.Module):
    """Each feature gets mean 0 and variance 1 over all vectors of the batch (Ioffe and Szegedy 2015).

    ``y = γ · (x − μ) / √(σ² + ε) + β``, μ and σ² of each feature over all other axes

    In evaluation μ and σ² are running averages, ``r ← (1 − momentum) r + momentum · new``, with the unbiased
    variance, as in `torch.nn.BatchNorm1d`. The Transformer does not use batch norm. A pitfall: in training a
    sentence's output depends on the rest of the batch, on padding and, in a decoder, on later tokens.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise: in training with the batch's own statistics, otherwise with the running ones."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean, variance = self.statistics(wide)
        normalised = (wide - mean) * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(x.dtype)

    def statistics(
        self, x: Float[Tensor, "*batch d_model"]
    ) -> tuple[Float[Tensor, " d_model"], Float[Tensor, " d_model"]]:
        """The batch's mean and variance; the running averages are updated."""
        vectors = x.flatten(0, -2)  # (vectors, d_model)
        mean = vectors.mean(dim=0)
        variance = (vectors - mean).square().mean(dim=0)
        n = len(vectors)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            unbiased = variance * n / (n - 1)
            self.running_var.lerp_(unbiased, self.momentum)
            self.num_batches_tracked += 1
        return mean, variance
