"""Models and runs on disk: a folder with a config, weights, and a record of how they were made::

    config.json          task, sizes, training settings, and the tokens that the ids stand for
    tokenizer.json       the tokens instead, if both languages share a byte-pair encoding
    weights.safetensors  the parameters
    record.json          what was measured, on which device, with which versions
    metrics.jsonl        one line per training step
    checkpoint.pt        everything needed to resume
    weights-000250.pt    the parameters after that step, if snapshots are kept

Everything is written by `files.replacing`: a reader never sees half a file, and a power cut leaves the old one.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model as load_weights
from safetensors.torch import save_model as save_weights
from torch import Tensor

from transformer_lessons.config import TransformerConfig, expect
from transformer_lessons.data.files import brief, read_json, replacing, write_json
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.model import Transformer

PRETRAINED = Path(__file__).parents[1] / "pretrained/number_words"
TOKENISER = "tokenizer.json"
CHECKPOINT = "checkpoint.pt"
Tokeniser = Vocabulary | Subwords


def save_model(
    directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser, **about: object
) -> None:
    """Write ``config.json`` (with `about`: task, training settings), ``weights.safetensors`` and the tokenisers.

    Tied weights are written once, and tied again by the model that loads them.
    """
    save_config(directory, model.config, source, target, **about)
    with replacing(directory / "weights.safetensors") as temporary:
        save_weights(model, str(temporary))


def save_config(
    directory: Path, config: TransformerConfig, source: Tokeniser, target: Tokeniser, **about: object
) -> None:
    """Write what `save_model` writes, except the weights. A `Subwords` must be shared by both languages."""
    if isinstance(source, Subwords):
        tokens = {}
        source.save(directory / TOKENISER)
    else:
        (directory / TOKENISER).unlink(missing_ok=True)  # another model's, which would be loaded
        tokens = {"source_tokens": source.tokens[3:], "target_tokens": target.tokens[3:]}
    write_json(directory / "config.json", {**about, "model": asdict(config), **tokens})


def load_tokenisers(directory: Path) -> tuple[Tokeniser, Tokeniser]:
    """Load the source and target tokenisers that `save_model` wrote."""
    if (directory / TOKENISER).is_file():
        joint = Subwords.load(directory / TOKENISER)
        return joint, joint
    config = read_json(directory / "config.json")
    expect("source_tokens" in config, "model", f"a folder with {TOKENISER}", str(directory))
    return Vocabulary(config["source_tokens"]), Vocabulary(config["target_tokens"])


def load_model(directory: Path | None = None) -> tuple[Transformer, Tokeniser, Tokeniser]:
    """Load the model that `save_model` wrote, in evaluation mode on the CPU, and its two tokenisers.

    Without a directory, load the packaged model. ValueError for a folder without one, or with a broken one.
    """
    directory = Path(directory or PRETRAINED)
    for name in ("config.json", "weights.safetensors"):
        expect((directory / name).is_file(), "model", f"a folder with {name}", str(directory))
    config = read_json(directory / "config.json")
    try:
        model = Transformer(TransformerConfig(**config["model"]))
        load_weights(model, directory / "weights.safetensors")
        tokenisers = load_tokenisers(directory)
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"model: expected matching files, got {directory}: {brief(error)}") from None
    sizes, got = (model.config.source_vocab_size, model.config.target_vocab_size), (*map(len, tokenisers),)
    expect(got == sizes, f"{directory}: tokens", f"{sizes} of source and target, as in its config", got)
    return model.eval(), *tokenisers


def snapshots(directory: Path) -> list[Path]:
    """The files of weights that a run has kept (``TrainingConfig.snapshots``), oldest first."""
    return sorted(Path(directory).glob("weights-*.pt"), key=lambda path: (len(path.name), path.name))


def save_snapshot(directory: Path, step: int, weights: dict[str, Tensor], *, keep: int) -> None:
    """Write ``weights-STEP.pt``, and delete all such files except the latest `keep`."""
    with replacing(directory / f"weights-{step:06}.pt") as temporary:
        torch.save(weights, temporary)
    for old in snapshots(directory)[:-keep]:
        old.unlink()


def average_checkpoints(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights in several `snapshots`, for ``model.load_state_dict`` (§6.1).

    ``θ = (θ_1 + … + θ_n) / n``, summed in float64. The paper averages the last 5 checkpoints of the base model
    and the last 20 of the big one, written ten minutes apart. A pitfall: only weights on one training path can be
    averaged; the mean of two independently trained models is useless.
    """
    paths, total = list(paths), {}
    if not paths:
        raise ValueError("paths: expected one checkpoint or more, got none")
    for path in paths:
        state = torch.load(path, map_location="cpu", weights_only=True)
        total = {name: total.get(name, 0.0) + tensor.double() for name, tensor in state.items()}
    return {name: (total[name] / len(paths)).to(tensor.dtype) for name, tensor in state.items()}
