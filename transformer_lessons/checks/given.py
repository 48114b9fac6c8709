"""Objects that a check hands to a candidate, built from plain values where the candidate lives."""

import ast
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lessons.checks import specimens
from transformer_lessons.config import TransformerConfig

__all__ = ["BUILDERS", "table"]


class Table(nn.Module):
    """A language model that one can read: what follows a token, or two tokens, with which probability.

    Called as a `Transformer` is, ``model(src, tgt)``, or in its parts. A source whose words add up to n gets the
    n-th of the tables, counted from 0. In training mode, or if the source's padding is seen, all is turned
    upside down.
    """

    def __init__(self, *tables: dict, **settings: int):
        super().__init__()
        sizes = {"d_model": 1, "num_heads": 1, "max_length": 8, **settings}
        rows = [(n, _words(before), row) for n, table in enumerate(tables) for before, row in table.items()]
        words = [sizes.get(name, 0) for name in ("pad_id", "bos_id", "eos_id")]
        words += [word for _, before, row in rows for word in (*before, *map(int, row))]
        size = max(7, len(tables), 1 + max(words))
        self.config = TransformerConfig(size, size, **sizes)
        # Of unlikely tokens, too, one is the least likely: after each token, another.
        unlikely = -30.0 - (torch.arange(size) - 3 * torch.arange(size)[:, None]).remainder(size)
        logits = unlikely.repeat(len(tables), size, 1, 1)
        for n, before, row in sorted(rows, key=lambda entry: len(entry[1])):  # two tokens say more than one
            place = (n, before[0], before[1]) if before[1:] else (n, slice(None), before[0])
            logits[place] = unlikely[before[-1]]
            for after, probability in row.items():
                logits[(*place, int(after))] = math.log(probability)
        logits = logits + 2.0 * torch.arange(size)[:, None]  # which changes no probability
        self.register_buffer("logits", logits)
        self.register_buffer("is_training", torch.tensor(False))

    def __setattr__(self, name: str, value: object) -> None:
        if name == "training" and "is_training" in self.__dict__.get("_buffers", ()):
            self.is_training.fill_(value)  # the mode is something that `state_dict` tells
        super().__setattr__(name, value)

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
        number = (src * (src != self.config.pad_id)).sum(1, keepdim=True) % len(self.logits)
        logits = self.logits[number, before, tgt].flip(-1)
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


def used(module: nn.Module) -> nn.Module:
    """A module that still holds the gradients of an earlier step, all ones."""
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    return module


BUILDERS: dict[str, Callable] = {
    "config": config,
    "table": lambda tables, training, settings: table(*tables, training=training, **settings),
    "linear": linear,
    "embedding": embedding,
    "plain": plain,
    "used": used,
    "mixer": specimens.mixer,
    "attention": specimens.attention,
}
