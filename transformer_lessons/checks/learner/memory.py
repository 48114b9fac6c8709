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


class Meter(TorchDispatchMode):
    """A mode that sees every operation in its `with` block, forwards and backwards, and counts its memory.

    Only memory made in the block counts, not what was passed in; views of either count for nothing. Memory
    that several tensors share is counted once.
    """

    def __init__(self):
        super().__init__()
        self._alive: dict[int, tuple[weakref.ref, int]] = {}
        self._held = self._peak = self._largest = self._saved = 0
        self._shape: list[int] = []

    @property
    def memory(self) -> dict[str, Any]:
        """In bytes: the "largest" tensor, with its "shape"; "peak", the most held at once; "saved"."""
        return {"largest": self._largest, "shape": self._shape, "peak": self._peak, "saved": self._saved}

    def count_saved(self, result: Any) -> None:
        """Count as "saved" for the backward pass what is still held after the call, apart from its result.

        It does not matter what holds it: autograd, the context of a custom function, or a closure.
        """
        if self._alive:
            gc.collect(1)  # unreachable cycles do not count as kept
        mine = {storage._cdata for _, storage in _storages(result)}
        self._saved = sum(size for key, (_, size) in self._alive.items() if key not in mine)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to skip dynamo, torch imports it, which takes a second. Nothing is compiled here."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if not _allocates(operation):
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
def _allocates(operation: Any) -> bool:
    """Whether the results are new memory, neither views of the arguments nor these changed in place."""
    if operation is torch.ops.aten._unsafe_view.default:  # a view, whatever its schema says
        return False
    return not any(returned.alias_info for returned in operation._schema.returns)


def _storages(value: Any) -> Iterator[tuple[Tensor, torch.UntypedStorage]]:
    """The tensors in a value that have a storage, each with its storage."""
    return ((x, x.untyped_storage()) for x in leaves(value).values() if x.layout is torch.strided)
