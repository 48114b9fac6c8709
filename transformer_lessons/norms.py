"""Normalisation over features (§3.1, "Add & Norm")."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """Each vector gets mean 0 and variance 1 over its own features, then a learned scale and shift.

    ``y = γ · (x − μ) / √(σ² + ε) + β``, μ and σ² over the last axis (Ba et al. 2016, used in §3.1)

    Nothing depends on the batch, so training and evaluation do the same. Two pitfalls: σ² is the *biased*
    variance (divide by d_model, not d_model − 1), and ε stands *inside* the root: dividing by (σ + ε) is
    another function, most of all where σ is small.

    Shapes: ``(..., d_model)`` in and out.

    Raises:
        ValueError: if the last axis is not `d_model` wide.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise the last axis."""
        if x.shape[-1:] != self.weight.shape:
            raise ValueError(f"x: expected a last axis of d_model = {len(self.weight)}, got {tuple(x.shape)}")
        # Squares of float16 overflow from 256 on: the statistics are taken in float32 at least.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide - wide.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        normalised = centred * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(x.dtype)


class RMSNorm(nn.Module):
    """Each vector is scaled to root mean square 1, without centring (Zhang and Sennrich 2019).

    ``y = γ · x / √(mean(x²) + ε)``

    LayerNorm without the mean and the shift: cheaper, and as good in practice. A pitfall: on inputs whose
    mean is not zero the two differ.

    Shapes: ``(..., d_model)`` in and out.

    Raises:
        ValueError: if the last axis is not `d_model` wide.
    """

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Scale the last axis."""
        if x.shape[-1:] != self.weight.shape:
            raise ValueError(f"x: expected a last axis of d_model = {len(self.weight)}, got {tuple(x.shape)}")
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype)
