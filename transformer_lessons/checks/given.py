"""Objects that a check passes to an answer, built from plain values where the answer runs."""

import ast
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lessons.checks import specimens
from transformer_lessons.config import TransformerConfig


class Table(nn.Module):
    """A language model that one can read: tables of the probabilities of what follows one token or two.

    Called as a `Transformer` is, ``model(src, tgt)``, or in its parts. A source whose tokens add up to n gets
    the n-th table, counted from 0, modulo their number. In training mode, or if a mask does not hide exactly
    the source's padding, all logits are negated.
    """

    def __init__(self, *tables: dict, **settings: int):
        super().__init__()
        sizes = {"d_model": 1, "num_heads": 1, "max_length": 8, **settings}
        rows = [(n, _tokens(before), row) for n, table in enumerate(tables) for before, row in table.items()]
        words = [sizes.get(name, 0) for name in ("pad_id", "bos_id", "eos_id")]
        words += [word for _, before, row in rows for word in (*before, *map(int, row))]
        size = max(7, len(tables), 1 + max(words))
        self.config = TransformerConfig(size, size, **sizes)
        # Unlikely tokens differ, too, so that one is the least likely, a different one after each token.
        unlikely = -30.0 - (torch.arange(size) - 3 * torch.arange(size)[:, None]).remainder(size)
        logits = unlikely.repeat(len(tables), size, 1, 1)
        for n, before, row in sorted(rows, key=lambda entry: len(entry[1])):  # two tokens override one
            place = (n, before[0], before[1]) if before[1:] else (n, slice(None), before[0])
            logits[place] = unlikely[before[-1]]
            for after, probability in row.items():
                logits[(*place, int(after))] = math.log(probability)
        logits = logits + 2.0 * torch.arange(size)[:, None]  # shifts rows, which changes no probability
        self.register_buffer("logits", logits)
        self.register_buffer("is_training", torch.tensor(False))

    def __setattr__(self, name: str, value: object) -> None:
        if name == "training" and "is_training" in self.__dict__.get("_buffers", ()):
            self.is_training.fill_(value)  # so that `state_dict` includes the mode
        super().__setattr__(name, value)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits of shape (batch, target, vocab)."""
        mask = (src != self.config.pad_id)[:, None, None]
        return self.output(self.decode(tgt, self.encode(src, mask), mask))

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """The memory: here, the source itself, and for each position whether the mask is right about it."""
        return torch.stack([src, self._is_mask_right(src, src_mask)], -1)

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """The logits, with the vocabulary reversed; `output` reverses it back."""
        src, was_right = memory.unbind(-1)
        before = torch.cat([torch.full_like(tgt[:, :1], self.config.pad_id), tgt[:, :-1]], 1)
        number = (src * (src != self.config.pad_id)).sum(1, keepdim=True) % len(self.logits)
        logits = self.logits[number, before, tgt].flip(-1)
        is_right = (was_right * self._is_mask_right(src, src_mask)).bool().all(-1) & (not self.training)
        return torch.where(is_right[:, None, None], logits, -logits)

    def output(self, hidden: Tensor) -> Tensor:
        """The logits, in the order of the vocabulary."""
        return hidden.flip(-1)

    def _is_mask_right(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """For each source position, 1 if the mask is right about it (it hides padding alone), else 0."""
        is_real = src != self.config.pad_id
        shown = torch.ones_like(is_real) if src_mask is None else src_mask.expand(len(src), 1, 1, -1)[:, 0, 0]
        return (shown == is_real).long()


def _tokens(before: int | str | tuple) -> tuple[int, ...]:
    """The tokens in the key of a table's row: 3, "3", (3, 4) or "(3, 4)"."""
    found = ast.literal_eval(before) if isinstance(before, str) else before
    return found if isinstance(found, tuple) else (found,)


def table(*tables: dict, training: bool = False, **settings: int) -> Table:
    """A `Table` in evaluation mode, or in training mode."""
    return Table(*tables, **settings).train(training)


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """An `nn.Linear` with this weight and bias."""
    made = nn.Linear(weight.size(1), weight.size(0), dtype=weight.dtype)
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def used(module: nn.Module) -> nn.Module:
    """A module that still holds the gradients of an earlier step, all ones."""
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    return module


BUILDERS: dict[str, Callable] = {
    "config": lambda sizes: TransformerConfig(**{"source_vocab_size": 7, "target_vocab_size": 7} | sizes),
    "table": lambda tables, training, settings: table(*tables, training=training, **settings),
    "linear": linear,
    "embedding": lambda weight: nn.Embedding.from_pretrained(weight.clone(), freeze=False),
    "plain": lambda value: value,  # for an argument that the message should not print in full
    "used": used,
    "mixer": specimens.mixer,
    "attention": specimens.attention,
}
