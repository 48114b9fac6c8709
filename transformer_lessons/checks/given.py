"""Objects that a check hands to a candidate, built from plain values where the candidate lives."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lessons.checks import patients

__all__ = ["BUILDERS"]


def model(config: dict, state: dict[str, Tensor]) -> nn.Module:
    """A `Transformer` of these settings with these weights, in their dtype and in evaluation mode."""
    from transformer_lessons.model import Transformer, TransformerConfig  # heavy, and few tasks need it

    made = Transformer(TransformerConfig(**config)).to(next(iter(state.values())).dtype)
    made.load_state_dict(state)
    return made.eval()


def training_model(config: dict, state: dict[str, Tensor]) -> nn.Module:
    """The same in training mode; a buffer ``is_training`` says whether it still is."""
    made = model(config, state)

    class Watched(type(made)):
        def train(self, mode: bool = True):
            self.is_training = torch.tensor(mode)
            return super().train(mode)

    made.register_buffer("is_training", torch.tensor(False))
    made.__class__ = Watched
    return made.train()


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """An `nn.Linear` with this weight and bias."""
    made = nn.Linear(weight.size(1), weight.size(0), dtype=weight.dtype)
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def perceptron(weights: list[Tensor], biases: list[Tensor]) -> nn.Module:
    """Linear maps with ReLU between them."""
    layers = [layer for pair in zip(weights, biases, strict=True) for layer in (linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def used(module: nn.Module) -> nn.Module:
    """A module that still holds the gradients of an earlier step, all ones."""
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    return module


class _Counting(nn.Module):
    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, *args):
        self.calls += 1
        return self.module(*args)


def counting(module: nn.Module) -> nn.Module:
    """The same module, with a buffer ``calls`` that says how often it was called."""
    return _Counting(module)


def sgd(module: nn.Module, rate: float) -> torch.optim.Optimizer:
    """Plain gradient descent on a module's parameters."""
    return torch.optim.SGD(module.parameters(), lr=rate)


BUILDERS: dict[str, Callable] = {
    "model": model,
    "training_model": training_model,
    "linear": linear,
    "perceptron": perceptron,
    "used": used,
    "counting": counting,
    "sgd": sgd,
    "mixer": patients.mixer,
    "attention": patients.attention,
}
