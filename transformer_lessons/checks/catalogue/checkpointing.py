"""Activation checkpointing. PyTorch's own imports its compiler first, which takes three seconds."""

from collections.abc import Callable

import torch
from torch import Tensor


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function = function
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return function(*tensors)

    @staticmethod
    def backward(ctx, *cotangents):
        tracked = [
            tensor.detach().requires_grad_(needed)
            for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        ]
        with torch.enable_grad():
            results = ctx.function(*tracked)
            results = [results] if isinstance(results, Tensor) else results
            pairs = zip(results, cotangents, strict=True)
            # One number to differentiate: passing the cotangents to torch instead makes it import sympy.
            total = sum((y * back).sum() for y, back in pairs if y.requires_grad)
        wanted = [tensor for tensor in tracked if tensor.requires_grad]
        found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        return None, *(next(found) if tensor.requires_grad else None for tensor in tracked)


def checkpoint(function: Callable, *tensors: Tensor, use_reentrant: bool = False) -> Tensor:
    """A short `torch.utils.checkpoint.checkpoint`: keeps only the tensors and calls the function twice."""
    return _Recompute.apply(function, *tensors)
