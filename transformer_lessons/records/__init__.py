"""Committed records of measurements that a chapter shows but does not run itself."""

import json
from importlib.resources import files


def read(name: str) -> dict:
    """The record with this name; each says on which device and with which versions it was made."""
    return json.loads((files(__name__) / f"{name}.json").read_text(encoding="utf-8"))
