"""Experiments are what a chapter's cells define; here they run whole, and a record keeps what came out."""

from pathlib import Path

import nbformat
import torch

from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

ROOT = Path(__file__).parent.parent


def definitions(chapter: str, *starts: str) -> dict:
    """What the cells of a chapter define that begin with one of these lines."""
    defined: dict = {}
    for cell in nbformat.read(ROOT / "book" / "chapters" / f"{chapter}.ipynb", as_version=4).cells:
        if cell.source.startswith(starts):
            exec(cell.source, defined)  # the course's own code
    return defined


def write(name: str, **found: object) -> None:
    """The record that a chapter shows, with the versions that made it."""
    record = {"made_with": versions(torch.device("cpu")), **found}
    write_json(ROOT / "transformer_lessons" / "records" / f"{name}.json", record)
