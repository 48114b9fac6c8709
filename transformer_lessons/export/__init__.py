"""Export of trained models to other programs (`lessons export`), and import of weights trained elsewhere.

Weights are renamed, and reordered where a format requires it; the model then gives the same tokens.
`save` writes a model; `weights.import_weights` reads one.
"""

from pathlib import Path
from shutil import rmtree

from transformer_lessons.export import ctranslate2, huggingface, onnx, web
from transformer_lessons.trainer.checkpoints import load_model

FORMATS = {module.__name__.rpartition(".")[2]: module for module in (huggingface, ctranslate2, onnx, web)}


def save(run: Path | None, directory: Path, *, format: str) -> None:
    """Write the model of a run, or of the package if None, into a new folder, whole or not at all.

    ValueError if the folder exists, or if the format cannot express some part of the model.
    """
    if directory.exists():
        raise ValueError(f"directory: expected a new folder, got {directory}, which exists")
    temporary = directory.with_name(f".{directory.name}.new")
    rmtree(temporary, ignore_errors=True)  # left by a killed process
    try:
        temporary.mkdir(parents=True)
        FORMATS[format].save(temporary, *load_model(run))
        temporary.replace(directory)
    finally:
        rmtree(temporary, ignore_errors=True)
