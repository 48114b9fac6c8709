"""A trained model for other programs (`lessons export`), and weights that were trained elsewhere.

The same weights under other names, in another order where a format wants one: the same values, the same tokens.
`save` writes a model; `weights.take_over` reads one.
"""

from pathlib import Path
from shutil import rmtree

from transformer_lessons.export import ctranslate2, huggingface, onnx, web
from transformer_lessons.trainer.checkpoints import load_model

FORMATS = {module.__name__.rpartition(".")[2]: module for module in (huggingface, ctranslate2, onnx, web)}


def save(run: Path | None, directory: Path, *, format: str) -> None:
    """Write the model of a run, or the one that comes with the package, into a new folder, whole or not at all.

    ValueError for a folder that exists, or for a model of which the format cannot express something.
    """
    if directory.exists():
        raise ValueError(f"directory: expected a new one, got {directory}, which exists")
    temporary = directory.with_name(f".{directory.name}.new")
    rmtree(temporary, ignore_errors=True)  # what a kill has left
    try:
        temporary.mkdir(parents=True)
        FORMATS[format].save(temporary, *load_model(run))
        temporary.replace(directory)
    finally:
        rmtree(temporary, ignore_errors=True)
