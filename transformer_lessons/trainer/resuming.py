"""What a run needs to go on, on disk: weights, optimiser, random states, and how far it is.

One process writes ``checkpoint.pt``. If weights and moments are in shares (`sharding`), each process writes its
own, side by side, into the folder ``checkpoint``, from which any number of processes can read what is theirs.
Either can be read by a run of the other kind.
"""

import shutil
from pathlib import Path
from types import NoneType

import torch
from torch import nn
from torch.optim import Optimizer

from transformer_lessons import expect
from transformer_lessons.data.files import replacing
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoint_folder import (
    FOLDER,
    OLD,
    UNFINISHED,
    read_folder,
    refuse_another,
    set_aside,
    shapes,
    write_folder,
)
from transformer_lessons.trainer.sharding import is_sharded

FILE = "checkpoint.pt"


def found(directory: Path) -> Path | None:
    """The checkpoint in a run's folder, a file or a folder; None if there is none.

    A pitfall: ``checkpoint.old`` counts. It is there if the process was killed between the two renames of
    `save_checkpoint`, and is whole.

    Raises:
        ValueError: for what is no path.
    """
    directory = expect.path(directory, "directory")
    return next((directory / name for name in (FOLDER, FILE, OLD) if (directory / name).exists()), None)


def discard(directory: Path, *, but: Path | None = None) -> None:
    """Remove the checkpoints in a run's folder, `but` for one, and what is left of one that was not finished.

    A pitfall: with several processes it is for one of them to do, while the others wait.

    Raises:
        ValueError: for what is no path.
    """
    directory = expect.path(directory, "directory")
    expect.kind((Path, NoneType), but=but)
    for path in (directory / name for name in (FILE, FOLDER, OLD, UNFINISHED)):
        if path != but and path.name == FILE:
            path.unlink(missing_ok=True)
        elif path != but:
            shutil.rmtree(path, ignore_errors=True)


def save_checkpoint(
    directory: Path, model: nn.Module, optimizer: Optimizer, progress: dict, *, in_shares: bool = False
) -> None:
    """Write all that `load_checkpoint` needs, whole or not at all; `in_shares` decides whether file or folder.

    A pitfall: all processes must call it, although one alone writes a file. A folder they write together, so all
    machines must see it, at the same path.

    Args:
        directory: the run's folder.
        model, optimizer: what is trained.
        progress: what else to keep: numbers, text, tensors, and lists and dicts of them.
        in_shares: write a folder; needed if this process does not hold all of the model.

    Raises:
        ValueError: for arguments of other types.
    """
    directory = expect.path(directory, "directory")
    expect.kind(nn.Module, model=model)
    expect.kind(Optimizer, optimizer=optimizer)
    expect.kind(dict, progress=progress)
    progress = {
        **progress,
        "cpu_random_state": torch.get_rng_state(),
        "cuda_random_states": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    if not distributed.rank():  # or, after two interruptions, an older one might be found than there is
        discard(directory, but=found(directory))
    if in_shares:
        write_folder(directory, model, optimizer, progress)
        if not distributed.rank():
            (directory / FILE).unlink(missing_ok=True)
    elif not distributed.rank():
        with replacing(directory / FILE) as temporary:
            torch.save(
                {**progress, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary
            )
        set_aside(directory)
        shutil.rmtree(directory / OLD, ignore_errors=True)


def load_checkpoint(directory: Path, model: nn.Module, optimizer: Optimizer) -> dict:
    """Put the state that `save_checkpoint` wrote into model and optimiser; returns its `progress`.

    A pitfall: with several processes all must call it, and all get the random state of process 0.

    Raises:
        ValueError: if there is no checkpoint, or it is of another model, damaged, or would run code.
    """
    path = found(directory)
    expect.kind(nn.Module, model=model)
    expect.kind(Optimizer, optimizer=optimizer)
    if path is None:
        raise ValueError(f"resume: expected a checkpoint, found no {Path(directory) / FILE}")
    try:
        progress = (_load_file if path.name == FILE else read_folder)(path, model, optimizer)
    except ValueError:
        raise
    except Exception as error:  # for what was never a checkpoint, torch has all kinds of them
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"resume: expected a checkpoint, got {path}: {reason}") from None
    torch.set_rng_state(progress.pop("cpu_random_state"))
    states = progress.pop("cuda_random_states")
    if torch.cuda.is_available() and states:
        torch.cuda.set_rng_state_all(states[: torch.cuda.device_count()])  # there may be fewer now
    return progress


def _load_file(path: Path, model: nn.Module, optimizer: Optimizer) -> dict:
    content = torch.load(path, map_location="cpu", weights_only=True)
    weights, moments = content.pop("model"), content.pop("optimizer")
    refuse_another(path, shapes(weights), shapes(model.state_dict()))
    if is_sharded(model):
        _set_shares(model, optimizer, weights, moments)
    else:
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    return content


def _set_shares(model: nn.Module, optimizer: Optimizer, weights: dict, moments: dict) -> None:
    """Of whole weights and moments, which are numbered as the parameters are, what this process holds."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, weights, options=options)
    names = [name for name, _ in model.named_parameters()]
    state = {names[number]: moment for number, moment in moments["state"].items()}
    groups = [{**group, "params": [names[n] for n in group["params"]]} for group in moments["param_groups"]]
    optimizer.state.clear()
    if state:
        saved = {"state": state, "param_groups": groups}
        set_optimizer_state_dict(model, optimizer, saved, options=options)
