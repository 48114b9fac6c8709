"""Objects that a check hands to a candidate, built from plain values where the candidate lives."""

import ast
import copy
import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from transformer_lessons.checks import patients
from transformer_lessons.config import TransformerConfig

__all__ = ["BUILDERS", "table"]

SPECIAL, UNLIKELY = ("pad", "bos", "eos"), -30.0


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


class Table(nn.Module):
    """A language model that one can read: what follows a token, or two tokens, with which probability.

    Called as a `Transformer` is, ``model(src, tgt)``, or in its parts. A source whose first token is n gets the
    n-th of the tables, counted from 0. In training mode, or if the source's padding is seen, all is turned
    upside down.
    """

    def __init__(self, *tables: dict, **settings: int):
        super().__init__()
        sizes = {"d_model": 1, "num_heads": 1, "max_length": 8, **settings}
        rows = [(n, _words(before), row) for n, table in enumerate(tables) for before, row in table.items()]
        words = [word for _, before, row in rows for word in (*before, *map(int, row))]
        size = max(
            7, len(tables), *(word + 1 for word in words), *(sizes.get(f"{n}_id", 0) + 1 for n in SPECIAL)
        )
        self.config = TransformerConfig(size, size, **sizes)
        logits = torch.full((len(tables), size, size, size), UNLIKELY)
        for n, before, row in sorted(rows, key=lambda entry: len(entry[1])):  # two tokens say more than one
            for after in range(size):
                probability = {int(word): p for word, p in row.items()}.get(after)
                place = (n, before[0], before[1]) if before[1:] else (n, slice(None), before[0])
                logits[(*place, after)] = UNLIKELY if probability is None else math.log(probability)
        logits = logits + 2.0 * torch.arange(size)[:, None]  # which changes no probability
        self.register_buffer("logits", logits)
        self.register_buffer("is_training", torch.tensor(False))

    def train(self, mode: bool = True) -> "Table":
        """Put it into training mode, which `state_dict` tells."""
        if hasattr(self, "is_training"):
            self.is_training.fill_(mode)
        return super().train(mode)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits of shape (batch, target, vocab)."""
        mask = (src != self.config.pad_id)[:, None, None]
        return self.output(self.decode(tgt, self.encode(src, mask), mask))

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """What a `Transformer` calls memory: here, the source itself, and whether its padding was hidden."""
        return torch.stack([src, self._hidden(src, src_mask)], -1)

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """The logits, from the last to the first: `output` turns them round."""
        src, is_hidden = memory.unbind(-1)
        before = torch.cat([torch.full_like(tgt[:, :1], self.config.pad_id), tgt[:, :-1]], 1)
        logits = self.logits[src[:, :1] % len(self.logits), before, tgt].flip(-1)
        is_right = (is_hidden * self._hidden(src, src_mask)).bool().all(-1) & (not self.training)
        return torch.where(is_right[:, None, None], logits, -logits)

    def output(self, hidden: Tensor) -> Tensor:
        """The logits."""
        return hidden.flip(-1)

    def _hidden(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """For each position, whether the mask says of it what it should."""
        is_real = src != self.config.pad_id
        shown = torch.ones_like(is_real) if src_mask is None else src_mask.expand(len(src), 1, 1, -1)[:, 0, 0]
        return (shown == is_real).long()


def _words(before: int | str | tuple) -> tuple[int, ...]:
    """The tokens that a row of a table is about: 3, "3", (3, 4) or "(3, 4)"."""
    found = ast.literal_eval(before) if isinstance(before, str) else before
    return found if isinstance(found, tuple) else (found,)


def table(*tables: dict, training: bool = False, **settings: int) -> Table:
    """A `Table` in evaluation mode, or in training mode."""
    return Table(*tables, **settings).train(training)


def table_of(tables: list[dict], training: bool, settings: dict) -> Table:
    """The same from plain values."""
    return table(*tables, training=training, **settings)


def config(settings: dict) -> TransformerConfig:
    """A model's configuration, with two vocabularies of 7 tokens unless it says otherwise."""
    return TransformerConfig(**{"source_vocab_size": 7, "target_vocab_size": 7, **settings})


def plain(value: object) -> object:
    """The value itself: for a message that should not print it."""
    return value


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
    "config": config,
    "table": table_of,
    "linear": linear,
    "embedding": embedding,
    "plain": plain,
    "perceptron": perceptron,
    "used": used,
    "counting": counting,
    "sgd": sgd,
    "mixer": patients.mixer,
    "attention": patients.attention,
}
