"""How far apart two implementations are, in values and gradients, for the same weights and inputs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer_lessons.oracles.names import renamed

BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-5}


class Deviation(NamedTuple):
    """The largest ``max|a − b| / max(1, max|b|)`` of values and of gradients (if any); b is the oracle's.

    A pitfall: for small numbers, the 1 makes it an absolute error; gradients around 1e-6 may be all wrong.
    """

    value: float
    gradient: float | None = None


def distance(ours: Tensor, theirs: Tensor) -> float:
    """``max|a − b| / max(1, max|b|)``; infinite if shapes or dtypes differ or the result is not a number."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return torch.inf
    deviation = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)
    return torch.inf if deviation.isnan() else deviation.item()


def leaves(*tensors: Tensor) -> list[Tensor]:
    """Fresh leaves with the values of `tensors`, so that two implementations share no graph and no memory."""
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def perturb(module: nn.Module) -> nn.Module:
    """Move every parameter off its initial value. A pitfall: a bias of 0 or a scale of 1 hides mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module


def compare(
    ours: Callable,
    theirs: Callable,
    inputs: Sequence[Tensor] = (),
    modules: tuple[nn.Module, nn.Module] | None = None,
    translate: Callable[[dict], dict] | dict[str, str] = dict,
) -> Deviation:
    """The deviation of values and, for random cotangents, of the gradients of all inputs and parameters.

    A pitfall: a cotangent of ones would not see wrong gradients that cancel in the sum.

    Args:
        ours, theirs: functions of the inputs that return one tensor or several.
        modules: the modules they compute with, ours and theirs; ours is perturbed, theirs gets its weights.
        translate: a function from our state dict to theirs, or a dict of names. It only renames, concatenates
            and permutes, so it works for gradients too. What it omits is an error: loading is strict.
    """
    if isinstance(translate, dict):
        translate = partial(renamed, names=translate)
    if modules is not None:
        mine, other = modules
        other.to(next(mine.parameters()).dtype).load_state_dict(translate(perturb(mine).state_dict()))
    given, also_given = leaves(*inputs), leaves(*inputs)
    both = ours(*given), theirs(*also_given)
    actual, expected = ([found] if isinstance(found, Tensor) else [*found] for found in both)
    value = max(map(distance, actual, expected))
    is_learning = [[x.requires_grad for x in found] for found in (actual, expected)]
    if value == torch.inf or is_learning[0] != is_learning[1]:
        return Deviation(value, torch.inf)
    if not any(is_learning[1]):
        return Deviation(value)
    cotangents = [torch.randn_like(x) for x in expected if x.requires_grad]
    for found in (actual, expected):
        torch.autograd.backward([x for x in found if x.requires_grad], cotangents)
    gradients = [distance(gradient(a), gradient(b)) for a, b in zip(given, also_given, strict=True)]
    if modules is not None:
        # A tied parameter is listed under all its names.
        own = mine.named_parameters(remove_duplicate=False)
        our_gradients = translate({name: gradient(parameter) for name, parameter in own})
        their_gradients = {name: gradient(p) for name, p in other.named_parameters() if p.requires_grad}
        gradients += [distance(our_gradients[name], expected) for name, expected in their_gradients.items()]
    return Deviation(value, max(gradients))


def gradient(x: Tensor) -> Tensor:
    """The gradient of a tensor; zeros if the backward pass did not reach it."""
    return torch.zeros_like(x) if x.grad is None else x.grad
