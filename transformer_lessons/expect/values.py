"""What is asked of numbers, kinds and collections."""

import math
import operator
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

NUMBER = (int, float)  # and tuples elsewhere: torch 2.9 cannot compile ``isinstance(x, int | float)``


def sizes(**given: int) -> None:
    """Refuse sizes that are not whole numbers from 1 on. A pitfall: True would pass for 1, so types are compared.

    Raises:
        ValueError: naming the first argument that is no size.
    """
    _whole(1, given)


def lengths(**given: int) -> None:
    """Refuse lengths and counts that are not whole numbers from 0 on. A pitfall: as in `sizes`.

    Raises:
        ValueError: naming the first argument that is no length.
    """
    _whole(0, given)


def _whole(least: int, given: dict[str, int]) -> None:
    for name, number in given.items():
        # A SymInt is what a length becomes in a graph that is traced for any length.
        if type(number) not in (int, torch.SymInt) or number < least:
            raise ValueError(f"{name}: expected an integer, {least} or more, got {number!r}")


def integers(**given: int) -> None:
    """Refuse what is no whole number, negative or not.

    Raises:
        ValueError: naming the first argument that is none.
    """
    for name, number in given.items():
        if type(number) is not int:
            raise ValueError(f"{name}: expected an integer, got {number!r}")


def number(**given: float) -> None:
    """Refuse what is no finite number, 0 or more. A pitfall: NaN passes every test that is put as a refusal.

    Raises:
        ValueError: naming the first argument that is none.
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, NUMBER) or not 0 <= value < math.inf:
            raise ValueError(f"{name}: expected a number, 0 or more, got {value!r}")


def probability(**given: float) -> None:
    """Refuse what is no probability of dropping. A pitfall: 1 would drop everything and divide by zero.

    Raises:
        ValueError: naming the first argument outside [0, 1).
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, NUMBER) or not 0 <= value < 1:
            raise ValueError(f"{name}: expected 0 or more and below 1, got {value!r}")


def kind(wanted: type | tuple[type, ...], **given: object) -> None:
    """Refuse what is not of a type, or of one of several, such as a list for a tensor, or None.

    Raises:
        ValueError: naming the first argument that is not.
    """
    for name, value in given.items():
        if not isinstance(value, wanted):
            names = " or ".join(
                each.__name__ for each in (wanted if isinstance(wanted, tuple) else (wanted,))
            )
            raise ValueError(f"{name}: expected a {names}, got {_shown(value)}")


def function(**given: object) -> None:
    """Refuse what cannot be called.

    Raises:
        ValueError: naming the first argument that cannot.
    """
    for name, value in given.items():
        if not callable(value):
            raise ValueError(f"{name}: expected a function or module, got {_shown(value)}")


def several(**given: Iterable) -> None:
    """Refuse what is not several things. A pitfall: a str is an iterable of str, and would be taken apart.

    Raises:
        ValueError: naming the first argument that is a str or no iterable.
    """
    for name, items in given.items():
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise ValueError(f"{name}: expected several, such as a list, got {_shown(items)}")


def path(given: Path | str, name: str = "path") -> Path:
    """A path from what was given for one.

    Raises:
        ValueError: for what is neither a path nor a str.
    """
    if not isinstance(given, Path | str):
        raise ValueError(f"{name}: expected a path, got {_shown(given)}")
    return Path(given)


def _shown(value: object) -> str:
    """A short value itself, of others the type: a tensor's or model's numbers would fill the screen."""
    return repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def index(given: int, count: int, name: str = "ids") -> int:
    """One id of 0 … count − 1. A pitfall: from a list, a negative one would count from the end.

    Raises:
        ValueError: for what is no such number.
    """
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if not 0 <= number < count:
        raise ValueError(f"{name}: expected 0 to {count - 1}, got {given!r}")
    return number


def library(name: str, *, extra: str) -> ModuleType:
    """A library that only some users need, imported when they do: the package works without it.

    Raises:
        ImportError: if it is not installed, saying which extra of ours brings it.
    """
    try:
        return import_module(name)
    except ImportError:
        install = f'pip install "transformer-lessons[{extra}]"'
        raise ImportError(f"{name}: expected an installed library, got none: {install}") from None
