"""How several processes share a training step: who computes what, who holds what, and when gradients cross.

Either each holds the whole model and the gradients are averaged (`DistributedDataParallel`, Li et al. 2020), or
each holds a share of it (`sharding`). What is learned is the same.
"""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lessons import expect
from transformer_lessons.data.batches import Batch
from transformer_lessons.data.packing import PackedBatch
from transformer_lessons.fast.accumulation import split
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.loss import BatchLoss
from transformer_lessons.trainer.sharding import is_sharded, shard


def share(batch: Batch | PackedBatch) -> Batch | PackedBatch:
    """What this process computes of a batch. All of them know all of it, and so how many tokens it has.

    A pitfall: shares are alike in rows, not in tokens, so their means must not be averaged.

    Raises:
        ValueError: for what is no batch, or one with fewer rows than there are processes.
    """
    processes = distributed.world_size()
    shares = split(batch, processes)
    if len(shares) < processes:
        raise ValueError(f"batch: expected {processes} rows or more, one a process, got {len(batch.src)}")
    return shares[distributed.rank()]


def divided(loss: BatchLoss, device: torch.device, *, in_shares: bool) -> nn.Module:
    """The loss to call: on the device; with several processes, its model copied to each or divided among them.

    A pitfall: the gradients that it leaves are the mean over the processes; for the sum, multiply the loss by
    their number.

    Raises:
        ValueError: for what is no `BatchLoss` or no device.
    """
    expect.kind(BatchLoss, loss=loss)
    expect.kind(torch.device, device=device)
    if distributed.world_size() == 1:
        return loss.to(device)
    if in_shares:
        shard(loss, [*loss.model.encoder_layers, *loss.model.decoder_layers], device)
        return loss
    return DistributedDataParallel(loss.to(device))


def synchronised(loss: nn.Module, is_last: bool):
    """A context for one part of a batch: gradients cross between processes once a step, with those of the last.

    A pitfall: those of a model in shares cross with each part. Otherwise every process would hold whole gradients
    in the meantime, as large as the weights that it has no room for.

    Raises:
        ValueError: for what is no module.
    """
    expect.kind(nn.Module, loss=loss)
    if distributed.world_size() == 1 or is_last or is_sharded(loss):
        return nullcontext()
    return loss.no_sync()
