"""Models and runs on disk: a folder with a config, weights, and how they came about::

    config.json          task, sizes, training settings, and the tokens that the ids stand for
    tokenizer.json       these instead, if both languages share a byte-pair encoding
    weights.safetensors  the parameters
    record.json          what was measured, on which device, with which versions
    metrics.jsonl        one line a training step
    checkpoint.pt        all that resuming needs (`resuming`), or, of a model in shares, a folder ``checkpoint``
    weights-000250.pt    the parameters after that step, if snapshots are kept

Everything is written by `files.replacing`: a reader never sees half a file, and a power cut leaves the old one.
"""

import pickle
from collections.abc import Iterable
from dataclasses import asdict
from importlib.resources import as_file, files
from pathlib import Path
from typing import get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model as load_weights
from safetensors.torch import save_model as save_weights
from torch import Tensor

from transformer_lessons import expect
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.files import read_json, replacing, write_json
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.model import Transformer

PRETRAINED = "number_words"
TOKENISER = "tokenizer.json"
Tokeniser = Vocabulary | Subwords


def save_model(
    directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser, **about: object
) -> None:
    """Write ``config.json`` (with `about`: task, training settings), ``weights.safetensors`` and the tokenisers.

    A pitfall: tied weights are one tensor under several names. They are written once and tied again by the model
    that loads them; a plain dictionary of tensors would make several of them.

    Raises:
        ValueError: for what is no path, model or tokeniser, two encodings where one is shared, or the copy of a
            model that `decoding_steps.column_major` made.
    """
    directory = expect.path(directory, "directory")
    expect.kind(Transformer, model=model)
    if not all(weight.is_contiguous() for weight in model.parameters()):
        raise ValueError("model: expected weights stored by rows, got a copy that stores them by columns")
    expect.kind(get_args(Tokeniser), source=source, target=target)
    if isinstance(source, Subwords) and source is not target:
        raise ValueError("target: expected the encoding that is also the source's, got another")
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(source, Subwords):
        tokens = {}
        source.save(directory / TOKENISER)
    else:
        # Another model's, which `load_tokenisers` would believe.
        (directory / TOKENISER).unlink(missing_ok=True)
        tokens = {"source_tokens": source.tokens[3:], "target_tokens": target.tokens[3:]}
    write_json(directory / "config.json", {**about, "model": asdict(model.config), **tokens})
    with replacing(directory / "weights.safetensors") as temporary:
        save_weights(model, str(temporary))


def load_tokenisers(directory: Path) -> tuple[Tokeniser, Tokeniser]:
    """What turns source and target sentences into ids and back, as `save_model` wrote them.

    A pitfall: a byte-pair encoding that both languages share is one object, returned twice.

    Raises:
        ValueError: for what is no path, or files that say something else.
        ImportError: for a byte-pair encoding without the `tokenizers` library.
    """
    directory = expect.path(directory, "directory")
    if (directory / TOKENISER).is_file():
        joint = Subwords.load(directory / TOKENISER)
        return joint, joint
    config = read_json(directory / "config.json")
    try:
        return Vocabulary(config["source_tokens"]), Vocabulary(config["target_tokens"])
    except KeyError as error:
        expected = f"a folder with {TOKENISER}, or tokens in its config.json"
        raise ValueError(f"model: expected {expected}, got {directory}: {error}") from None


def load_model(directory: Path | None = None) -> tuple[Transformer, Tokeniser, Tokeniser]:
    """A saved model, in evaluation mode on the CPU, and the tokenisers of its two languages.

    A pitfall: who trains it further has to call ``model.train()``, or dropout stays off.

    Args:
        directory: where `save_model` wrote; without it, the trained model that comes with the package.

    Raises:
        ValueError: for what is no path, a folder that holds no model, or one that its config does not describe.
    """
    if directory is None:
        with as_file(files("transformer_lessons") / "pretrained" / PRETRAINED) as packaged:
            return load_model(packaged)
    directory = expect.path(directory, "directory")
    for name in ("config.json", "weights.safetensors"):
        if not (directory / name).is_file():
            raise ValueError(f"model: expected a folder with {name}, got {directory}")
    config = read_json(directory / "config.json")
    try:
        model = Transformer(_config(config["model"]))
        load_weights(model, directory / "weights.safetensors")
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"model: expected config and weights that fit, got {directory}: {reason}") from None
    return model.eval(), *load_tokenisers(directory)


# What `variants` build now was once chosen in the configuration, where it stands with the one value there is.
RETIRED = {"norm": "layer", "num_key_value_heads": None}


def _config(sizes: dict) -> TransformerConfig:
    for name, value in RETIRED.items():
        if sizes.get(name, value) != value:
            raise ValueError(
                f"model: expected {name}: {value}, as all but `variants` have it, got {sizes[name]}"
            )
    return TransformerConfig(**{name: value for name, value in sizes.items() if name not in RETIRED})


def snapshots(directory: Path) -> list[Path]:
    """The weights that a run has kept (``TrainingConfig.snapshots``), the latest last.

    A pitfall: of a folder without any, or that does not exist, the list is empty.

    Raises:
        ValueError: for what is no path.
    """
    directory = expect.path(directory, "directory")
    return sorted(directory.glob("weights-*.pt"))


def save_snapshot(directory: Path, step: int, weights: dict[str, Tensor], *, keep: int) -> None:
    """Write ``weights-STEP.pt``, and of all such files leave the latest `keep`.

    A pitfall: the latest are those of the highest steps, so what another run has left had better be gone.

    Raises:
        ValueError: for what is no path, weights that are no dict, a step below 0, or fewer than 1 to keep.
    """
    directory = expect.path(directory, "directory")
    expect.lengths(step=step)
    expect.kind(dict, weights=weights)
    expect.sizes(keep=keep)
    with replacing(directory / f"weights-{step:06}.pt") as temporary:
        torch.save(weights, temporary)
    for old in snapshots(directory)[:-keep]:
        old.unlink()


def average_checkpoints(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, to load with ``model.load_state_dict`` (§6.1).

    ``θ = (θ_1 + … + θ_n) / n``, summed in float64. The paper averages the last 5 checkpoints of the base model
    and the last 20 of the big one, written ten minutes apart.

    A pitfall: only weights on one training path can be averaged; the mean of two independently trained models is
    no model. What is not a float, such as a counter, is the last checkpoint's.

    Args:
        paths: files that a `training.Trainer` wrote: `snapshots`, or checkpoints.

    Raises:
        ValueError: for no paths, one alone that is in no list, a file that is no checkpoint, or checkpoints of
            different models.
    """
    expect.several(paths=paths)
    paths, total, state = [expect.path(path, "paths") for path in paths], {}, {}
    if not paths:
        raise ValueError("paths: expected one checkpoint or more, got none")
    for path in paths:
        state = _read_weights(path)
        shapes = {name: tensor.shape for name, tensor in state.items()}
        if total and shapes != {name: tensor.shape for name, tensor in total.items()}:
            raise ValueError(f"paths: expected checkpoints of one model, {path} is of another")
        total = {name: total.get(name, 0.0) + tensor.double() for name, tensor in state.items()}
    return {
        name: (total[name] / len(paths)).to(last.dtype) if last.is_floating_point() else last
        for name, last in state.items()
    }


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
        raise ValueError(f"paths: expected a checkpoint, got {path}") from None
    state = content.get("model", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ValueError(f"paths: expected a checkpoint, got {path}")
    return dict(state)
