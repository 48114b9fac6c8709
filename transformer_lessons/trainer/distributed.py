"""Training one model in several processes, one per device, by PyTorch's own engine and ``torchrun``.

``torchrun --nproc-per-node 4 -m transformer_lessons train …`` starts four processes. Each computes its rows of
a batch, and holds the whole model (`DistributedDataParallel`, Li et al. 2020, https://arxiv.org/abs/2006.15704)
or a part of every weight, gradient and moment (`fully_shard`, Zhao et al. 2023,
https://arxiv.org/abs/2304.11277). Without torchrun there is one process, rank 0 of 1. A pitfall: every
process must make the collective calls (`wait`, `summed`, `any_of`, `full_…`), or the others wait for ever.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from transformer_lessons.data.batches import Batch

# What `fully_shard` needs is imported where it is used: it takes most of a second, which most runs save.


def rank() -> int:
    """The number of this process, from 0 over all machines; process 0 writes files and shows progress."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, if it did; yield the device of this one."""
    if "WORLD_SIZE" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        device, count = torch.device("cuda", int(os.environ["LOCAL_RANK"])), torch.cuda.device_count()
        if device.index >= count:
            raise ValueError(f"nproc-per-node: expected at most {count}, the number of GPUs here, got more")
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def wait() -> None:
    """Wait until every process has arrived."""
    if world_size() > 1:
        dist.barrier()


def summed(tensor: Tensor) -> Tensor:
    """The sum over all processes, on each of them."""
    if world_size() > 1:
        dist.all_reduce(tensor := tensor.clone())
    return tensor


def any_of(value: bool, device: torch.device) -> bool:
    """Whether the value is true on any process, so that all can stop at the same step."""
    return bool(summed(torch.tensor(int(value), device=device)))


def own_parts(batch: Batch, parts: int) -> list[Batch]:
    """This process's rows of a batch, perhaps none, in `parts` parts, or fewer if a process has fewer rows.

    A pitfall: equal numbers of rows are not equal numbers of tokens, so means of parts must not be averaged.
    """
    processes = world_size()
    parts = max(1, min(parts, len(batch.src) // processes))  # the same on all: they communicate in each
    own = [ids.tensor_split(processes)[rank()].tensor_split(parts) for ids in batch]
    return [Batch(*part) for part in zip(*own, strict=True)]


def parallelise(loss: nn.Module, layers: list[nn.Module], device: torch.device, *, shard: bool) -> nn.Module:
    """The loss module to call: on the device and, with several processes, replicated or sharded.

    If sharded, each of the `layers` is gathered while it computes, and the rest while `loss` is called.
    Gradients are averaged over the processes. A pitfall: create the optimiser afterwards, from the shards.
    """
    if world_size() == 1:
        return loss.to(device)
    if not shard:
        return DistributedDataParallel(loss.to(device))
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world_size(),))
    for module in (*layers, loss):
        fully_shard(module, mesh=mesh)
    return loss


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered if each process holds only a shard."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def full_state_dict(state: dict) -> dict:
    """A state dict with whole tensors; shards are gathered one tensor at a time, to the CPU of process 0."""

    def gathered(value):
        whole = full_tensor(value) if isinstance(value, Tensor) else value
        return whole if whole is value else None if rank() else whole.cpu()

    return tree_map(gathered, state)


def shard_like(other: Tensor | None, tensor: Tensor) -> Tensor:
    """This process's shard of a tensor that every process has whole, sharded as `other` is, if it is."""
    if not hasattr(other, "full_tensor") or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)
