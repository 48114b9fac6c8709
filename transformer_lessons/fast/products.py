"""Matrix products on a CPU by oneDNN, where MKL, PyTorch's default, does not use its best code.

MKL uses AVX-512 only on Intel's processors. On AMD's that have it, oneDNN is about twice as fast as MKL.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

CPU = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.9 does not have it
MKL_IS_SLOW = "AMD" in CPU.get("cpu_name", "") and CPU["avx512_f"] and torch.backends.mkldnn.is_available()
LARGE = 2**22  # multiplications; below this, calling oneDNN takes longer than it saves


def is_slow(x: Tensor, weight: Tensor) -> bool:
    """Whether ``x Wᵀ`` is large and slower with MKL than with oneDNN."""
    is_small = x.dim() < 2 or x.numel() * len(weight) < LARGE
    if not MKL_IS_SLOW or is_small or torch.compiler.is_compiling():  # a compiler makes its own choice
        return False
    are_real = all(type(one) in (Tensor, nn.Parameter) and one.is_cpu for one in (x, weight))
    return are_real and x.dtype == weight.dtype == torch.float32


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``, without a gradient. A transposed x is copied; a transposed W is not."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "none")


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """``gradientᵀ x`` by oneDNN, which copies the narrower of the two."""
    return by_onednn(gradient.T, x.T) if gradient.size(1) <= x.size(1) else by_onednn(x.T, gradient.T).T


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return by_onednn(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)
        return (
            by_onednn(gradient, weight.T) if needs_x else None,
            weight_gradient(rows, x.flatten(0, -2)).contiguous() if needs_weight else None,
            rows.sum(0) if needs_bias else None,
        )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, by oneDNN where MKL is slow."""
    if is_slow(x, weight) and not torch.is_autocast_enabled("cpu"):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """An `nn.Linear` that uses oneDNN where MKL is slow."""

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """``x Wᵀ + b``."""
        return linear(x, self.weight, self.bias)


def has_hooks(module: nn.Module) -> bool:
    """Whether forward or backward hooks are registered on the module."""
    return any(getattr(module, f"_{k}_hooks") for k in ("forward", "forward_pre", "backward", "backward_pre"))


def is_plain(linear: nn.Module) -> bool:
    """Whether the module computes ``x Wᵀ + b`` and nothing else: no adapter around it, no hooks."""
    return type(linear) in (nn.Linear, Linear) and not has_hooks(linear)
