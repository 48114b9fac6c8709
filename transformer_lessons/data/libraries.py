"""Optional libraries: the package works without them."""

from importlib import import_module
from types import ModuleType


def library(name: str, *, extra: str) -> ModuleType:
    """Import a library; if it is missing, the ImportError names the extra that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is installed, but a library that it needs is not
            raise
        install = f'pip install "transformer-lessons[{extra}]"'
        raise ImportError(f"{name}: expected an installed library, got none; run {install}") from None
