"""A mistake of any attention: it works only for inputs that lie in memory in the order of their axes."""

from torch import Tensor

from transformer_lessons.checks.core import Mistake

__all__ = ["CONTIGUOUS_ONLY"]


def _viewed(*inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.view(-1, *x.shape[-2:]).view(x.shape) for x in inputs)


CONTIGUOUS_ONLY = Mistake(
    "contiguous_only",
    "you call view on an input whose axes may have been exchanged before; reshape copies where it has to",
    "Tensors made for a try lie in memory in order. Queries, keys and values that were split into heads do not.",
    "RuntimeError, as soon as it stands in a model.",
    "#ch07-reshape",
    ({"inputs": _viewed},),
)
