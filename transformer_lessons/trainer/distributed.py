"""Several processes, one a device, that train one model: started by ``torchrun``, found by its variables.

``torchrun --nproc-per-node 4 -m transformer_lessons train …`` starts four processes, in which RANK and WORLD_SIZE
say who they are. Each computes its share of a batch; the gradients are averaged over all (Li et al. 2020,
https://arxiv.org/abs/2006.15704), so all take the same step. Without torchrun there is one process, rank 0 of 1,
and nothing here does anything.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from transformer_lessons import expect


def rank() -> int:
    """The number of this process, from 0; process 0 writes the files and shows the progress.

    A pitfall: it counts over all machines; the number on this one, which chooses the GPU, is LOCAL_RANK.
    """
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes train together. A pitfall: they share a batch, so more of them take no more steps."""
    return dist.get_world_size() if dist.is_initialized() else 1


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, if it did; yields the device of this one.

    NCCL connects GPUs, gloo everything else. A pitfall: if one process fails, the others wait for it; torchrun
    ends them.

    Raises:
        ValueError: for what is no device, or more processes on this machine than it has GPUs.
    """
    expect.kind(torch.device, device=device)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        number, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= count:
            raise ValueError(
                f"nproc-per-node: expected at most {count}, the GPUs here, got {number + 1} or more"
            )
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def wait() -> None:
    """Until all processes are here. A pitfall: as with `summed`, none may leave it out."""
    if world_size() > 1:
        dist.barrier()


def summed(tensor: Tensor) -> Tensor:
    """The sum over all processes, on each of them. A pitfall: a call that one process leaves out stops all.

    Raises:
        ValueError: for what is no tensor.
    """
    expect.kind(Tensor, tensor=tensor)
    if world_size() == 1:
        return tensor
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def any_of(value: bool, device: torch.device) -> bool:
    """True on every process if it is on one: they must stop at the same step.

    A pitfall: the first to stop alone would leave the others waiting for its gradients for ever.

    Raises:
        ValueError: for what is no device.
    """
    expect.kind(torch.device, device=device)
    return value if world_size() == 1 else bool(summed(torch.tensor(int(value), device=device)))
