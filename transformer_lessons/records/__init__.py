"""Measured records, committed: what a chapter shows and does not run itself."""

import json
from importlib.resources import files


def read(name: str) -> dict:
    """The record of that name; each says on which device and with which versions it was made.

    Raises:
        ValueError: if there is no such record.
    """
    path = files(__name__) / f"{name}.json"
    if not path.is_file():
        known = sorted(p.name[:-5] for p in files(__name__).iterdir() if p.name.endswith(".json"))
        raise ValueError(f"name: expected one of {', '.join(known)}, got {name!r}")
    return json.loads(path.read_text(encoding="utf-8"))
