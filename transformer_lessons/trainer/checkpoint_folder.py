"""A checkpoint in shares: a folder that all processes write together, each what it holds.

`torch.distributed.checkpoint` writes and reads the tensors, whatever the number of processes; the rest is a file.
"""

import pickle
import shutil
import warnings
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lessons import expect
from transformer_lessons.data.files import replacing
from transformer_lessons.trainer import distributed

FOLDER, OLD, UNFINISHED = "checkpoint", "checkpoint.old", ".checkpoint"
PROGRESS = "progress.pt"

# All that the list of tensors in a folder is made of; see `_List`.
SAFE_MODULES = {
    *("torch", "torch.serialization", "pathlib", "pathlib._local"),
    *("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"),
}
SAFE_NAMES = {
    *("Size", "PosixPath", "WindowsPath", "Metadata", "MetadataIndex", "ChunkStorageMetadata", "StorageMeta"),
    *("TensorStorageMetadata", "TensorProperties", "_StorageInfo", "_MEM_FORMAT_ENCODING", "_get_layout"),
}


def set_aside(directory: Path) -> None:
    """Rename a run's ``checkpoint``: what holds something can be neither replaced nor removed in one step.

    A pitfall: between the renames of the old one and of the new one, the old one is all there is.

    Raises:
        ValueError: for what is no path.
    """
    directory = expect.path(directory, "directory")
    if (directory / FOLDER).exists():
        shutil.rmtree(directory / OLD, ignore_errors=True)
        (directory / FOLDER).rename(directory / OLD)


def write_folder(directory: Path, model: nn.Module, optimizer: Optimizer, progress: dict) -> None:
    """Write a run's ``checkpoint``, under another name until all processes have written their part.

    A pitfall: all processes must call it, and see the same folder, on whichever machine they are.

    Raises:
        ValueError: for arguments of other types.
        FileNotFoundError: if another process wrote into another folder; the last checkpoint is then still there.
    """
    directory = expect.path(directory, "directory")
    expect.kind(nn.Module, model=model)
    expect.kind(Optimizer, optimizer=optimizer)
    expect.kind(dict, progress=progress)
    from torch.distributed.checkpoint import FileSystemWriter, save

    unfinished = directory / UNFINISHED
    if not distributed.rank():
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with replacing(unfinished / PROGRESS) as temporary:
            torch.save({**progress, "has_moments": bool(optimizer.state)}, temporary)
    distributed.wait()
    tensors = _tensors(model, optimizer, bool(optimizer.state))
    with _as_any_other_file():
        save(tensors, storage_writer=FileSystemWriter(unfinished))
    distributed.wait()
    if not distributed.rank():
        _refuse_incomplete(unfinished)
        set_aside(directory)
        unfinished.rename(directory / FOLDER)
        shutil.rmtree(directory / OLD, ignore_errors=True)
    distributed.wait()


def _tensors(model: nn.Module, optimizer: Optimizer, has_moments: bool) -> dict:
    """Weights and, by the parameters' names, moments: as many of each as this process holds."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    tensors = {"model": get_model_state_dict(model)}
    if has_moments:  # asked of an optimiser before its first step, torch would make one up, and count it
        tensors["optimizer"] = get_optimizer_state_dict(model, optimizer)["state"]
    return tensors


@contextmanager
def _as_any_other_file():
    """One process may write and read a folder too, where torch would warn, and torch 2.9 of its own ways.

    What fails, fails by its own name.
    """
    from torch.distributed.checkpoint import CheckpointException

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")
            warnings.filterwarnings("ignore", "TypedStorage is deprecated")
            yield
    except (
        CheckpointException
    ) as failed:  # all processes get it, for a full disk of one; and it is no Exception
        raise next(iter(failed.failures.values()))[0] from None


def read_folder(path: Path, model: nn.Module, optimizer: Optimizer) -> dict:
    """Put what `write_folder` wrote into model and optimiser; returns its `progress`.

    A pitfall: with several processes, all must call it. And what is damaged, or would run code, ends in errors of
    pickle and torch; `resuming.load_checkpoint` makes one of them.

    Raises:
        ValueError: for arguments of other types, or a checkpoint of another model.
    """
    path = expect.path(path)
    expect.kind(nn.Module, model=model)
    expect.kind(Optimizer, optimizer=optimizer)
    from torch.distributed.checkpoint import FileSystemReader, load

    progress = torch.load(path / PROGRESS, map_location="cpu", weights_only=True)
    has_moments = progress.pop("has_moments")
    if not has_moments:
        optimizer.state.clear()
    tensors = _tensors(model, optimizer, has_moments)
    refuse_another(path, _listed(path), shapes(tensors))
    with _as_any_other_file():
        load(tensors, storage_reader=FileSystemReader(path))  # into the tensors that are there
    return progress


def shapes(tensors: dict, prefix: str = "") -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors in nested dicts, by names joined with dots. A pitfall: other things are left out.

    Raises:
        ValueError: for what is no dict.
    """
    expect.kind(dict, tensors=tensors)
    found = {}
    for name, value in tensors.items():
        if isinstance(value, Tensor):
            found[prefix + name] = tuple(value.shape)
        elif isinstance(value, dict):
            found |= shapes(value, f"{prefix}{name}.")
    return found


def refuse_another(path: Path, saved: dict, own: dict) -> None:
    """Refuse the checkpoint at `path` if the `shapes` in it are not the model's own.

    A pitfall: models of equal shapes may still compute different things.

    Raises:
        ValueError: naming the first tensor that differs.
    """
    if saved != own:
        name = min(name for name in saved.keys() | own.keys() if saved.get(name) != own.get(name))
        wanted = [values.get(name, "nothing") for values in (own, saved)]
        raise ValueError(
            f"resume: expected a checkpoint of this model, {path} is of another: "
            f"{name}: expected {wanted[0]}, got {wanted[1]}"
        )


class _List(pickle.Unpickler):
    """Reads the list of what is in a folder, which torch pickles, but nothing that could run code.

    Torch would unpickle the list, and what it lists as other than tensors, whoever may have written them.
    """

    def find_class(self, module: str, name: str) -> object:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if module not in SAFE_MODULES or not (name in SAFE_NAMES or is_dtype):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _read_list(path: Path):
    with (path / ".metadata").open("rb") as file:
        return _List(file).load()


def _listed(path: Path) -> dict[str, tuple[int, ...]]:
    """The names of the tensors in a folder, and their shapes."""
    return {name: tuple(tensor.size) for name, tensor in _read_list(path).state_dict_metadata.items()}


def _refuse_incomplete(path: Path) -> None:
    """Each machine may have written into a folder of its own, of the same name: nobody could go on from that."""
    for name in sorted({part.relative_path for part in _read_list(path).storage_data.values()}):
        if not (path / name).exists():
            raise FileNotFoundError(
                f"checkpoint: expected a folder that all processes see, {path} lacks {name} of another"
            )
