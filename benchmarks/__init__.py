"""Measurements whose results are committed as records: ``python -m benchmarks.NAME``."""

from pathlib import Path

import transformer_lessons  # before torch: it settles how torch's threads wait

# isort: split
import torch

from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

RECORDS = Path(transformer_lessons.__file__).parent / "records"


def write(name: str, device: str = "cpu", **found: object) -> None:
    """The record that a page shows, with the versions that made it."""
    found["made_with"] = versions(torch.device(device)) | found.get("made_with", {})
    write_json(RECORDS / f"{name}.json", found)
