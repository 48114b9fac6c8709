"""Counts bytes: what a call keeps for its backward pass, its largest tensor, the most it holds at once."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["metered"]


@contextmanager
def metered(is_on: bool) -> Iterator["Count"]:
    """Yields a `Count`, whose ``memory`` is empty if it is off."""
    mode = _Mode() if is_on else None
    count = Count(mode)
    if mode is None:
        yield count
        return
    with mode:
        yield count
    count.memory.update(largest=mode.largest, shape=mode.shape, peak=mode.peak)


class Count:
    """What was counted within a block of `metered`, in bytes.

    Attributes:
        memory: "largest", the largest tensor made, and its "shape"; "peak", the most that tensors made in the
            block held at once; "saved", what was kept when the call returned.

    Only what is made in the block counts, not what was handed in, and views of either count for nothing. A piece
    of memory that several tensors share is counted once.
    """

    def __init__(self, mode: "_Mode | None"):
        self.memory: dict[str, Any] = {}
        self._mode = mode

    def returned(self, result: Any) -> None:
        """The call is over: what is still held, besides what it returned, is kept for the way back.

        It does not matter who holds it: autograd, a context of an own function, or a closure.
        """
        if self._mode is None:
            return
        if self._mode.alive:
            gc.collect(1)  # a cycle that nobody holds is no memory kept
        mine = {storage._cdata for storage in _storages(result)}
        kept = [size for key, (_, size) in self._mode.alive.items() if key not in mine]
        self.memory["saved"] = sum(kept)


class _Mode(TorchDispatchMode):
    """Sees every operation, forwards and backwards; notes what it makes, until that is freed."""

    def __init__(self):
        super().__init__()
        self.alive: dict[int, tuple[weakref.ref, int]] = {}
        self.held = self.peak = self.largest = 0
        self.shape: list[int] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip it, torch imports it, which takes a second. Nothing is compiled in here."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if not _makes(operation):
            return result
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key in self.alive:
                continue
            self.alive[key] = weakref.ref(storage, lambda _, key=key: self._free(key)), size
            self.held += size
            if size > self.largest:
                self.largest, self.shape = size, list(tensor.shape)
        self.peak = max(self.peak, self.held)
        return result

    def _free(self, key: int) -> None:
        _, size = self.alive.pop(key)
        self.held -= size


@cache
def _makes(operation: Any) -> bool:
    """Whether its results are new memory, not views of its arguments, nor these changed in place."""
    if operation is torch.ops.aten._unsafe_view.default:  # a view, whatever its schema says
        return False
    return not any(returned.alias_info for returned in operation._schema.returns)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _storages(value: Any) -> list[torch.UntypedStorage]:
    return [tensor.untyped_storage() for tensor in _tensors(value)]
