"""Export as a script for the live translator's page, which has its own implementation in ``model.js``.

It is a script and not JSON, because a page opened from disk may load scripts but not read files.
"""

import base64
import json
from dataclasses import asdict
from pathlib import Path

from transformer_lessons.config import expect
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.fast.int8 import to_int8
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import Tokeniser

SUPPORTED = {"activation": "relu", "position": "sinusoidal"}  # what model.js implements


def save(directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser) -> None:
    """Write ``model.js``, which adds a model named "model" to those of the page."""
    (directory / "model.js").write_text(script("model", exported(model, source, target)), encoding="utf-8")


def script(name: str, content: dict) -> str:
    """The script that adds a model to the page, which must load its own code first."""
    values = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"lessons.addModel({json.dumps(name)}, {values});\n"


def exported(model: Transformer, source: Tokeniser, target: Tokeniser, dtype: str = "int8") -> dict:
    """A model as plain values: config, tokens, and each parameter's offset in one string of bytes (base64).

    A matrix is int8, with a scale for each row: ``w ≈ q · s,  s = max |w| / 127``, so
    ``|w − q · s| ≤ s / 2``. Vectors, one number in a hundred, stay float32, as everything does with
    ``dtype="float32"``. Tied weights are written once, under their first name, and listed under `tied`. A
    pitfall: with one scale for a whole matrix, its largest row would cost all others their precision.

    ValueError for a model with parts that the page has no code for, or without a list of tokens.
    """
    expect(isinstance(source, Vocabulary), "web", "a model of number words, no text", type(source).__name__)
    config = asdict(model.config)
    for name, expected in SUPPORTED.items():
        expect(config[name] == expected, "web", f"{name} {expected!r}, all that it supports", config[name])
    tensors, tied, first, data = {}, {}, {}, bytearray()
    for name, parameter in model.state_dict(keep_vars=True).items():
        if (known := first.setdefault(id(parameter), name)) != name:
            tied[name] = known
            continue
        parts = {name: parameter.detach().float()}
        if dtype == "int8" and parameter.dim() == 2:
            parts[name], scale = to_int8(parts[name])
            parts[f"{name}.scale"] = scale.squeeze(-1)
        for key, tensor in parts.items():
            about = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
            tensors[key] = {**about, "offset": len(data)}
            # Little-endian, like all current machines; a browser reads float32 only at multiples of four.
            data += tensor.contiguous().numpy().tobytes()
            data += bytes(-len(data) % 4)
    return {
        "config": config,
        "source_tokens": source.tokens,
        "target_tokens": target.tokens,
        "tensors": tensors,
        "tied": tied,
        "data": base64.b64encode(data).decode("ascii"),
    }
