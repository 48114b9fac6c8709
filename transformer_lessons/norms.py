"""Normalisation (§3.1, "Add & Norm"): of each vector over its features, or of each feature over the vectors."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons import expect


class LayerNorm(nn.Module):
    """Each vector gets mean 0 and variance 1 over its own features, then a learned scale and shift.

    ``y = γ · (x − μ) / √(σ² + ε) + β``, μ and σ² over the last axis (Ba et al. 2016, used in §3.1)

    Nothing depends on the batch, so training and evaluation do the same. Two pitfalls: σ² is the *biased*
    variance (divide by d_model, not d_model − 1), and ε stands *inside* the root: dividing by (σ + ε) is
    another function, most of all where σ is small.

    Shapes: ``(..., d_model)`` in and out.

    Raises:
        ValueError: for a d_model below 1 or a negative ε; when called, for what is no float, lies on another
            device, or is not `d_model` wide.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        _check(d_model, eps)
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise the last axis."""
        expect.width(x, self.weight)
        if x.dtype != self.weight.dtype:
            return self.step_by_step(x)
        # One pass over x instead of seven: buys 5% of a training step on a CPU, and 10% of a step of decoding.
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def step_by_step(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The formula as it stands. A call of the module gives the same, by PyTorch's kernel where it can."""
        expect.width(x, self.weight)
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
        ValueError: as `LayerNorm`.
    """

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        _check(d_model, eps)
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Scale the last axis."""
        expect.width(x, self.weight)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype)


class BatchNorm(nn.Module):
    """Each feature gets mean 0 and variance 1 over all vectors of the batch (Ioffe and Szegedy 2015).

    ``y = γ · (x − μ) / √(σ² + ε) + β``, μ and σ² of each feature over all other axes

    In evaluation μ and σ² are running averages, ``r ← (1 − momentum) r + momentum · new``, in which the
    variance is the unbiased one, as in `torch.nn.BatchNorm1d`. The Transformer does not use it (§3.1 has
    `LayerNorm`). Two pitfalls: in training a sentence's output depends on its batch-mates, on their padding and,
    in a decoder, on tokens that come later; and training and evaluation compute different functions.

    Shapes: ``(..., d_model)`` in and out.

    Raises:
        ValueError: for a d_model below 1, a negative ε or a momentum outside [0, 1]; when called, as `LayerNorm`,
            or, in training, for fewer than two vectors.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        _check(d_model, eps)
        expect.number(momentum=momentum)
        if momentum > 1:
            raise ValueError(f"momentum: expected 0 to 1, got {momentum!r}")
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise: in training with the batch's own statistics, otherwise with the running ones."""
        expect.width(x, self.weight)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance = self._statistics(wide) if self.training else (self.running_mean, self.running_var)
        normalised = (wide - mean) * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(x.dtype)

    def _apply(self, fn, recurse=True):
        # What `.to()` & co. end in. Squares do not fit into float16: the statistics stay in float32 at least.
        before = {name: getattr(self, name) for name in ("running_mean", "running_var")}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = getattr(self, name)
            if new.dtype.itemsize < 4:
                setattr(self, name, old.to(new.device, torch.float32))
        return self

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        vectors = x.flatten(0, -2) if x.dim() > 1 else x[None]
        count = len(vectors)
        if count < 2:
            raise ValueError(f"x: expected two vectors or more to take a variance in training, got {count}")
        mean = vectors.mean(0)
        variance = (vectors - mean).square().mean(0)
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * count / (count - 1)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
            self.num_batches_tracked += 1
        return mean, variance


def _check(d_model: int, eps: float) -> None:
    expect.sizes(d_model=d_model)
    expect.number(eps=eps)
