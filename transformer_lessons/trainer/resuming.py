"""All that a run needs to go on, in one file: weights, optimiser, random states, and how far it is.

It is the same whether one process trained, several with a copy each, or a sharded model: any of them can go on.
"""

from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from transformer_lessons.data.files import replacing
from transformer_lessons.trainer.distributed import gather_state_dict, rank, sharded_as, world_size

FILE = "checkpoint.pt"


def found(directory: Path) -> Path | None:
    """The checkpoint in a run's folder; None if there is none."""
    path = Path(directory) / FILE
    return path if path.exists() else None


def discard(directory: Path) -> None:
    """Remove the checkpoint from a run's folder."""
    (Path(directory) / FILE).unlink(missing_ok=True)


def save_checkpoint(directory: Path, weights: dict, optimizer: Optimizer, progress: dict) -> None:
    """Write all that `load_checkpoint` needs, whole or not at all: all processes gather it, process 0 writes."""
    content = {
        **progress,
        "cpu_random_state": torch.get_rng_state(),
        "cuda_random_states": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "model": weights,
        "optimizer": gather_state_dict(optimizer.state_dict()),
    }
    if not rank():
        with replacing(directory / FILE) as temporary:
            torch.save(content, temporary)


def load_checkpoint(directory: Path, model: nn.Module, optimizer: Optimizer) -> dict:
    """Put the state that `save_checkpoint` wrote into model and optimiser; returns its `progress`.

    ValueError if there is no checkpoint, or it is of another model, damaged, or would run code. A pitfall: models
    of equal shapes may still compute different things.
    """
    path = Path(directory) / FILE
    if not path.exists():
        raise ValueError(f"resume: expected a checkpoint, found no {path}")
    try:
        # Of several processes, each reads no more than its part.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=world_size() > 1)
        weights, own = content.pop("model"), model.state_dict()
        model.load_state_dict({name: sharded_as(own.get(name), x) for name, x in weights.items()})
        moments, parameters = content.pop("optimizer"), list(model.parameters())
        for number, state in moments["state"].items():  # numbered as the parameters are
            of = parameters[number]
            state |= {name: sharded_as(of, x) for name, x in state.items() if x.shape == of.shape}
        optimizer.load_state_dict(moments)
        torch.set_rng_state(content.pop("cpu_random_state"))
        states = content.pop("cuda_random_states")
    except Exception as error:  # for what was never a checkpoint, torch has all kinds of them
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"resume: expected a checkpoint of this model, got {path}: {reason}") from None
    if torch.cuda.is_available() and states:
        torch.cuda.set_rng_state_all(states[: torch.cuda.device_count()])  # there may be fewer now
    return content
