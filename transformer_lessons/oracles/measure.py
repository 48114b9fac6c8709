"""How far two implementations are apart: the same weights, the same inputs, the same values and gradients?"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-5}


class Deviation(NamedTuple):
    """``max|a − b| / max(1, max|b|)``, b the oracle's: worst of the values, and worst of the gradients (if any).

    A pitfall: the 1 makes it absolute for small numbers; a gradient of 1e-6 throughout may be wrong altogether.
    """

    value: float
    gradient: float | None = None


def distance(ours: Tensor, theirs: Tensor) -> float:
    """``max|a − b| / max(1, max|b|)``; infinite for other shapes or dtypes, or where either is not a number.

    A pitfall: max of NaN is NaN, and NaN compares as "not above the bound"; hence the infinity.
    """
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return torch.inf
    if not theirs.numel():
        return 0.0
    deviation = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)
    return torch.inf if deviation.isnan() else deviation.item()


def leaves(*tensors: Tensor) -> list[Tensor]:
    """Fresh leaves with the values of `tensors`, so that two implementations share no graph.

    A pitfall: ``detach()`` alone shares the memory; what one implementation writes in place, the other reads.
    """
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def perturb(module: nn.Module) -> nn.Module:
    """Move every parameter off its initial value. A pitfall: a bias of 0 or a scale of 1 hides mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module


def same_function(ours: Callable, theirs: Callable, *inputs: Tensor) -> Deviation:
    """Compare values and, for one random cotangent, the gradients of every input.

    A pitfall: a cotangent of ones would not see gradients that only cancel in the sum.
    """
    mine, other = leaves(*inputs), leaves(*inputs)
    actual, expected = ours(*mine), theirs(*other)
    cotangent = torch.randn_like(expected)
    if actual.shape != expected.shape:
        return Deviation(torch.inf, torch.inf)
    of_ours = torch.autograd.grad(actual, mine, cotangent.to(actual.dtype), materialize_grads=True)
    of_theirs = torch.autograd.grad(expected, other, cotangent, materialize_grads=True)
    gradients = [distance(a, b) for a, b in zip(of_ours, of_theirs, strict=True)]
    return Deviation(distance(actual, expected), max(gradients))


def same_module(
    ours: nn.Module,
    theirs: nn.Module,
    translate: Callable[[dict], dict],
    call_ours: Callable,
    call_theirs: Callable,
    *inputs: Tensor,
) -> Deviation:
    """As `same_function`, for modules: the gradients of all parameters too.

    Args:
        ours, theirs: the modules; ours is perturbed, and theirs gets its weights.
        translate: takes our state dict to theirs. It only renames, concatenates and permutes, so it takes
            gradients along too. A pitfall: a parameter that it forgets keeps their initial value; loading is
            strict for that reason.
        call_ours, call_theirs: called with the module and the inputs.
        inputs: floats; ids and masks are bound in the calls.
    """
    perturb(ours)
    theirs.load_state_dict(translate(ours.state_dict()))
    mine, other = leaves(*inputs), leaves(*inputs)
    actual, expected = call_ours(ours, *mine), call_theirs(theirs, *other)
    if actual.shape != expected.shape:
        return Deviation(torch.inf, torch.inf)
    cotangent = torch.randn_like(expected)
    actual.backward(cotangent.to(actual.dtype))
    expected.backward(cotangent)
    gradients = [distance(a.grad, b.grad) for a, b in zip(mine, other, strict=True)]
    # A tied parameter goes by all its names.
    by_name = dict(ours.named_parameters(remove_duplicate=False))
    of_ours = translate({name: parameter.grad for name, parameter in by_name.items()})
    for name, parameter in theirs.named_parameters():
        if parameter.requires_grad:
            gradients.append(distance(of_ours[name], parameter.grad))
    return Deviation(distance(actual, expected), max(gradients))
