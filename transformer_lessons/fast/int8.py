"""Weights in int8: a decoding step reads a quarter as many bytes and computes products of integers."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons.fast.products import is_plain


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers q and scales s with x ≈ q · s; the largest entry of each vector becomes ±127."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny) / 127
    return (x / scale).round_().to(torch.int8), scale


def int8_product(x: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor) -> Tensor:
    """``x (diag(scale) weight)ᵀ + bias``, x rounded to int8; the integers' products and sums are exact."""
    x_int8, x_scale = to_int8(x.flatten(0, -2))
    y = torch._int_mm(x_int8, weight.T).to(x.dtype).mul_(scale).mul_(x_scale).view(*x.shape[:-1], -1)
    return y if bias is None else y.add_(bias)


class Int8Linear(nn.Linear):
    """``x Wᵀ + b`` with each row of W, and each input vector x, rounded to 255 levels of its own.

    ``W ≈ diag(s) Q`` with integers ``|Q| ≤ 127`` and ``s = max |row| / 127``, as in LLM.int8() (Dettmers et
    al. 2022), without its exception for outliers. Accurate to about a hundredth; for inference only.
    """

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """Same as `nn.Linear`, up to rounding."""
        return int8_product(x, self.weight, self.bias, self.scale)


@torch.no_grad()
def quantize(model: nn.Module) -> nn.Module:
    """Return the model itself, with its linear maps (not its embeddings) in int8, for inference on a CPU.

    A pitfall: there is no way back; save the model first.
    """
    for linear in filter(is_plain, list(model.modules())):
        weight, scale = to_int8(linear.weight)
        linear.__class__ = Int8Linear
        linear.weight = nn.Parameter(weight, requires_grad=False)  # no longer tied to the embedding
        linear.register_buffer("scale", scale.squeeze(-1))
    return model
