"""Small models and implementations, right and wrong, on which learners' tests and tools are tried."""

from collections.abc import Callable
from functools import cache, partial
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.attention import scaled_dot_product_attention

_FUNCTIONS: WeakKeyDictionary = WeakKeyDictionary()


def _hidden(function: Callable) -> Callable:
    """The same function, but nothing of its own tells a learner's code which it is; only the table does."""

    def hidden(*args: object) -> object:
        try:
            return _FUNCTIONS[hidden](*args)
        except Exception as error:
            raise error.with_traceback(None) from None

    _FUNCTIONS[hidden] = function
    return hidden


class _Mixer(nn.Module):
    def __init__(self, pattern: Tensor, weight: Tensor, dropout: float, kind: str):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.part = nn.Dropout(dropout)  # has a training mode of its own
        self.mixed = _hidden(partial(_mixed, pattern, weight, kind))

    def forward(self, x: Tensor) -> Tensor:
        return self.mixed(self, x)

    def get_extra_state(self) -> Tensor:
        """What a caller should leave unchanged: modes, the absence of gradients, and `requires_grad`."""
        training = sum(module.training for module in self.modules())
        touched = any(p.grad is not None and bool(p.grad.count_nonzero()) for p in self.parameters())
        return torch.tensor([training, touched, all(p.requires_grad for p in self.parameters())])


def _mixed(pattern: Tensor, weight: Tensor, kind: str, model: _Mixer, x: Tensor) -> Tensor:
    if kind == "constant":
        return torch.zeros(len(x), len(weight), dtype=x.dtype)
    if kind == "deaf":
        x = torch.zeros_like(x)
    if kind == "nested":
        x = torch.cat([model.part(x[:2]), x[2:]])
    mixed = F.dropout(model.gain * (pattern.to(x) @ x), model.part.p, model.training)
    y = torch.tanh(mixed @ weight.to(x).T)
    return torch.cat([y, -2 * y, y], dim=-1) if kind == "mirrored" else y


def mixer(
    pattern: Tensor, weight: Tensor, dropout: float = 0.0, training: bool = False, kind: str = "plain"
) -> nn.Module:
    """A model y = tanh(pattern · x · weightᵀ); its output t depends on input s where pattern[t, s] is not 0.

    Args:
        pattern: (length, length).
        weight: (d_out, d_in).
        dropout: the dropout rate of the mixed vectors.
        training: whether it is in training mode.
        kind: "plain"; "nested", in which a submodule also drops some of the first two inputs; "mirrored",
            which returns y, −2y and y side by side; "deaf", which ignores its input; "constant", which
            returns zeros that depend on nothing, not even on its own weights.
    """
    return _Mixer(pattern, weight, dropout, kind).train(training)


def attention(kind: str) -> Callable:
    """An implementation ``attention(query, key, value, mask=None)`` of scaled dot-product attention.

    Args:
        kind: "reference", "fused" or "additive", which are right; a key of `EXTRA_CHANGES`; or the name of a
            known mistake.
    """
    hidden = _hidden(IMPLEMENTATIONS.get(kind) or _changed(kind))

    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None):
        # All have the same name, so that no test can recognise mistakes by their names.
        return hidden(query, key, value, mask)

    return attention


@cache
def _changed(kind: str) -> Callable:
    """The package's own function, with the change that makes the mistake."""
    from transformer_lessons.checks import definitions, task  # here, as they import this file

    known = task("scaled_dot_product_attention")
    ways = {mistake.name: mistake.ways[0] for mistake in known.mistakes}
    return known.define(definitions.changed(known.source, {**ways, **EXTRA_CHANGES}[kind]))


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The fused kernel for the output; a second call with one-hot values gives the weights."""
    sees = None if mask is None else mask.any(dim=-1, keepdim=True)
    safe = None if mask is None else torch.atleast_2d(mask | ~sees)
    one_hot = torch.eye(key.size(-2), dtype=key.dtype, device=key.device).expand(*key.shape[:-1], -1)
    found = [F.scaled_dot_product_attention(query, key, v, safe) for v in (value, one_hot)]
    output, weights = found if sees is None else (torch.where(sees, x, 0.0) for x in found)
    return output, weights


def _additive(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """A very low score for each hidden key; a query that sees no key gets an average."""
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5
    weights = (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(dim=-1)
    return torch.einsum("...qk,...kv->...qv", weights, value), weights


IMPLEMENTATIONS = {"reference": scaled_dot_product_attention, "fused": _fused, "additive": _additive}
EXTRA_CHANGES = {
    # Wrong shapes raise other errors: a test that expects only those does not catch this one.
    "crashing": ("return weights @ value,", "return weights @ values,"),
    "weights_unmasked": ("return weights @ value, weights", "return weights @ value, scores.softmax(dim=-1)"),
    "weights_nan": ("@ value, weights", "@ value, weights / weights.sum(dim=-1, keepdim=True)"),
    "overflowing": (
        "scores.softmax(dim=-1)",
        "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)",
        "masked.softmax(dim=-1).masked_fill(~mask, 0.0)",
        "masked.exp() / masked.exp().sum(dim=-1, keepdim=True).clamp(min=1e-30)",
    ),
}
