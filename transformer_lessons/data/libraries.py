"""Libraries that only some users need: the package works without them."""

from importlib import import_module
from types import ModuleType


def library(name: str, *, extra: str) -> ModuleType:
    """Import it; if it is not there, ImportError says which extra of ours brings it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is there, and something that it wants is not
            raise
        install = f'pip install "transformer-lessons[{extra}]"'
        raise ImportError(f"{name}: expected an installed library, got none: {install}") from None
