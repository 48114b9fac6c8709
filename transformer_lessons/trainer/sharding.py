"""A model in shares: each of several processes holds a part of every parameter, its gradient and its moments.

`torch.distributed.fsdp.fully_shard` divides every tensor along its first axis. A layer's whole weights exist only
while the layer computes: they are gathered before, and its gradients are summed and divided again after
(Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054, stage 3; Zhao et al. 2023,
https://arxiv.org/abs/2304.11277).
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import distributed

# `torch.distributed.fsdp` is imported where it is used: it takes most of a second, and most runs do without it.


def shard(root: nn.Module, layers: Iterable[nn.Module], device: torch.device) -> None:
    """Leave in this process its share of each parameter, on `device`; `root` is what will be called.

    Each of the `layers` is gathered when it is called, and given up again; what belongs to none of them
    (embeddings, last norms, the projection) is gathered when `root` is called, and stays until the backward pass
    is through.

    Two pitfalls: only a call of `root` gathers anything, so a method that goes around ``forward`` finds shares
    where it expects weights. And the optimiser must be made afterwards, of the shares.

    Raises:
        ValueError: for what are no modules or no device, or without other processes to share with.
    """
    expect.kind(nn.Module, root=root)
    expect.several(layers=layers)
    expect.kind(torch.device, device=device)
    if distributed.world_size() == 1:
        raise ValueError("shard: expected two processes or more, got 1")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (distributed.world_size(),))
    for layer in layers:
        expect.kind(nn.Module, layers=layer)
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh)


def is_sharded(model: nn.Module) -> bool:
    """Whether this process holds only shares of the model's parameters.

    A pitfall: a share still gives the whole's ``shape``; what is here is ``to_local()``.

    Raises:
        ValueError: for what is no module.
    """
    expect.kind(nn.Module, model=model)
    return any(hasattr(parameter, "to_local") for parameter in model.parameters())


def whole(tensor: Tensor) -> Tensor:
    """A tensor, gathered from all processes if it is in shares. A pitfall: then all of them must ask for it.

    Raises:
        ValueError: for what is no tensor.
    """
    expect.kind(Tensor, tensor=tensor)
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state dict; of a sharded model gathered, one tensor after another, on the CPU of process 0.

    A pitfall: as with `whole`, no process may leave out the call. The others get an empty dict.

    Raises:
        ValueError: for what is no module.
    """
    if not is_sharded(model):
        return model.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def whole_model(model: Transformer) -> Transformer | None:
    """The model; of a sharded one a copy on the CPU of process 0, and None on the others.

    A pitfall: the copy is that of a moment, and learns nothing more.

    Raises:
        ValueError: for what is no `Transformer`.
    """
    expect.kind(Transformer, model=model)
    weights = whole_weights(model)
    if not is_sharded(model) or distributed.rank():
        return None if is_sharded(model) else model
    with torch.random.fork_rng(devices=[]):  # its first weights must not cost the run its random numbers
        copy = Transformer(model.config).to(model.output.weight.dtype)
    copy.load_state_dict(weights)
    return copy
