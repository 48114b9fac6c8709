"""Counts bytes: what a call keeps for its backward pass, its largest tensor, the most it holds at once."""

import gc
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lessons.checks.learner.adapter import leaves

__all__ = ["Meter"]


class Meter(TorchDispatchMode):
    """Sees every operation within its `with` block, forwards and backwards, and counts what it makes.

    Only what is made in the block counts, not what was handed in, and views of either count for nothing. A piece
    of memory that several tensors share is counted once.
    """

    def __init__(self):
        super().__init__()
        self._alive: dict[int, tuple[weakref.ref, int]] = {}
        self._held = self._peak = self._largest = self._saved = 0
        self._shape: list[int] = []

    @property
    def memory(self) -> dict[str, Any]:
        """In bytes: the "largest" tensor, and its "shape"; "peak", the most held at once; "saved"."""
        return {"largest": self._largest, "shape": self._shape, "peak": self._peak, "saved": self._saved}

    def returned(self, result: Any) -> None:
        """The call is over: what is still held, besides what it returned, is "saved" for the way back.

        It does not matter who holds it: autograd, a context of an own function, or a closure.
        """
        if self._alive:
            gc.collect(1)  # a cycle that nobody holds is no memory kept
        mine = {storage._cdata for _, storage in _storages(result)}
        self._saved = sum(size for key, (_, size) in self._alive.items() if key not in mine)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip it, torch imports it, which takes a second. Nothing is compiled in here."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if not _makes(operation):
            return result
        for tensor, storage in _storages(result):
            key, size = storage._cdata, storage.nbytes()
            if key in self._alive:
                continue
            self._alive[key] = weakref.ref(storage, lambda _, key=key: self._free(key)), size
            self._held += size
            if size > self._largest:
                self._largest, self._shape = size, list(tensor.shape)
        self._peak = max(self._peak, self._held)
        return result

    def _free(self, key: int) -> None:
        _, size = self._alive.pop(key)
        self._held -= size


@cache
def _makes(operation: Any) -> bool:
    """Whether its results are new memory, not views of its arguments, nor these changed in place."""
    if operation is torch.ops.aten._unsafe_view.default:  # a view, whatever its schema says
        return False
    return not any(returned.alias_info for returned in operation._schema.returns)


def _storages(value: Any) -> Iterator[tuple[Tensor, torch.UntypedStorage]]:
    """The tensors in it that have a storage, each with that."""
    return ((x, x.untyped_storage()) for x in leaves(value).values() if x.layout is torch.strided)
