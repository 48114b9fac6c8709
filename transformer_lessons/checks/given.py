"""Objects that a check hands to a candidate, built from plain values where the candidate lives."""

import copy
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from transformer_lessons.checks import patients

__all__ = ["BUILDERS"]


def model(config: dict, state: dict[str, Tensor]) -> nn.Module:
    """A `Transformer` of these settings with these weights, in their dtype and in evaluation mode."""
    empty = _empty(tuple(config.items()), next(iter(state.values())).dtype)
    own = dict(empty.named_parameters(remove_duplicate=False))
    return _twin(empty, {id(own[name]): nn.Parameter(tensor.clone()) for name, tensor in state.items()})


@lru_cache(maxsize=8)
def _empty(settings: tuple[tuple[str, object], ...], dtype: torch.dtype) -> nn.Module:
    """One with any weights, kept: most checks ask for it several times, and to draw weights takes longest."""
    # Long, and few tasks need it.
    from transformer_lessons.checks.old.guarded import Transformer, TransformerConfig

    return Transformer(TransformerConfig(**dict(settings))).to(dtype).eval()


def _twin(module: nn.Module | None, memo: dict) -> nn.Module | None:
    """A deep copy in a fifth of the time, as most of what modules hold are numbers and empty dicts.

    Args:
        module: what is copied.
        memo: by its id, what stands for something that was copied already; for all parameters, before the first.
    """
    if module is None or id(module) in memo:
        return memo.get(id(module))
    memo[id(module)] = twin = object.__new__(type(module))
    for name, value in vars(module).items():
        if name == "_modules":
            copied = {part: _twin(inner, memo) for part, inner in value.items()}
        elif name == "_parameters":
            copied = {part: None if own is None else memo[id(own)] for part, own in value.items()}
        elif isinstance(value, dict | set | list) and not value:
            copied = type(value)()
        else:
            copied = value if isinstance(value, int | float) else copy.deepcopy(value, memo)
        twin.__dict__[name] = copied
    return twin


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


def evaluated_model(config: dict, state: dict[str, Tensor]) -> nn.Module:
    """The same in evaluation mode."""
    return training_model(config, state).eval()


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """An `nn.Linear` with this weight and bias."""
    made = nn.Linear(weight.size(1), weight.size(0), dtype=weight.dtype)
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def embedding(weight: Tensor) -> nn.Module:
    """An `nn.Embedding` with these rows, which learns."""
    return nn.Embedding.from_pretrained(weight.clone(), freeze=False)


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
    "evaluated_model": evaluated_model,
    "linear": linear,
    "embedding": embedding,
    "perceptron": perceptron,
    "used": used,
    "counting": counting,
    "sgd": sgd,
    "mixer": patients.mixer,
    "attention": patients.attention,
}
