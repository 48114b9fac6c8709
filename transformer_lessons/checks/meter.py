"""Counts bytes: what a call keeps for its backward pass, and the largest tensor that it makes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

__all__ = ["metered"]


@contextmanager
def metered(is_on: bool) -> Iterator[dict[str, int]]:
    """Yields a dict that holds, after the block, ``saved`` and ``largest``; empty if it is off.

    A storage that is saved twice, or in two views, is counted once: it is one piece of memory. What the arguments
    hold already counts too.
    """
    memory: dict[str, int] = {}
    if not is_on:
        yield memory
        return
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with _Largest() as largest, saved_tensors_hooks(keep, lambda tensor: tensor):
        yield memory
    memory.update(saved=sum(saved.values()), largest=largest.bytes)


class _Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Sees every operation, and remembers the largest result."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result
