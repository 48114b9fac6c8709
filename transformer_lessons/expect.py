"""What several modules demand of their arguments, and how they complain: name, expected, got.

Types, shapes, dtypes and devices are free to ask for. Values are looked at only where that makes nobody wait for
a GPU (`readable`).
"""

import math
import operator
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor


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
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ValueError(f"{name}: expected a number, 0 or more, got {value!r}")


def probability(**given: float) -> None:
    """Refuse what is no probability of dropping. A pitfall: 1 would drop everything and divide by zero.

    Raises:
        ValueError: naming the first argument outside [0, 1).
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"{name}: expected 0 or more and below 1, got {value!r}")


def kind(wanted: type, **given: object) -> None:
    """Refuse what is not of a type, such as a list for a tensor, or None.

    Raises:
        ValueError: naming the first argument that is not.
    """
    for name, value in given.items():
        if not isinstance(value, wanted):
            raise ValueError(f"{name}: expected a {wanted.__name__}, got {_shown(value)}")


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


def floats(*axes: str, **given: Tensor) -> None:
    """Refuse what is no tensor of floats, or (if `axes` are named) has another number of axes.

    Raises:
        ValueError: naming the first argument that is none.
    """
    for name, x in given.items():
        kind(Tensor, **{name: x})
        if not x.is_floating_point() or (axes and x.dim() != len(axes)):
            shape = f" of shape ({', '.join(axes)})" if axes else ""
            raise ValueError(f"{name}: expected floats{shape}, got {x.dtype} {tuple(x.shape)}")


def width(
    x: Tensor,
    weight: Tensor,
    *axes: str,
    name: str = "x",
    width_name: str = "d_model",
    same_dtype: bool = False,
) -> None:
    """Refuse vectors that do not fit the weights they are to meet, in width, device or (if asked) dtype.

    Pitfalls: an axis of one would broadcast; under autocast dtypes may differ.

    Raises:
        ValueError: naming tensor and width.
    """
    # Called for every input of every layer: what fits must be through in a microsecond or two.
    if not isinstance(x, Tensor) or not x.is_floating_point() or (axes and x.dim() != len(axes)):
        floats(*axes, **{name: x})
    if x.dim() == 0 or x.size(-1) != weight.size(-1):
        raise ValueError(
            f"{name}: expected a last axis of {width_name} = {weight.shape[-1]}, got {tuple(x.shape)}"
        )
    if x.device != weight.device:
        same_device(weight, **{name: x})
    if same_dtype and x.dtype != weight.dtype and not _is_autocast(x.device.type):
        raise ValueError(f"{name}: expected {weight.dtype}, as the weights, got {x.dtype}")


def _is_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def same_device(other: Tensor, of: str = "the weights", **given: Tensor) -> None:
    """Refuse tensors on another device. A pitfall: "meta" is one, and computes with nothing.

    Raises:
        ValueError: naming the first argument that lies elsewhere.
    """
    for name, x in given.items():
        if x.device != other.device:
            raise ValueError(f"{name}: expected device {other.device}, as {of}, got {x.device}")


def ids(*axes: str, **given: Tensor) -> None:
    """Refuse what is no tensor of ids with such axes, ``(batch, length)`` unless named.

    Raises:
        ValueError: naming the first argument that is none.
    """
    axes = axes or ("batch", "length")
    for name, x in given.items():
        kind(Tensor, **{name: x})
        if x.dim() != len(axes) or x.dtype not in (torch.int64, torch.int32):
            expected = f"expected int64 or int32 of shape ({', '.join(axes)})"
            raise ValueError(f"{name}: {expected}, got {x.dtype} {tuple(x.shape)}")


def below(count: int, reason: str = "", **given: Tensor) -> None:
    """Refuse ids outside 0 … count − 1, where they can be looked at.

    A pitfall: on a GPU a wrong id is found by the kernel, which takes the whole process down.

    Raises:
        ValueError: naming the first argument with such an id, and the id.
    """
    for name, x in given.items():
        if readable(x) and x.numel():
            low, high = int(x.min()), int(x.max())
            if low < 0 or high >= count:
                raise ValueError(f"{name}: expected 0 to {count - 1}{reason}, got {low if low < 0 else high}")


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


def readable(x: Tensor) -> bool:
    """Whether the values can be looked at for free: not on a GPU, not in a compiled graph."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def broadcasts(mask: Tensor, shape: tuple[int, ...], name: str = "mask") -> None:
    """Refuse a mask that does not broadcast to `shape`. A pitfall: without this it could widen what it masks.

    Raises:
        ValueError: naming the mask and both shapes.
    """
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > len(shape) or any(size not in (1, full) for size, full in sizes):
        raise ValueError(f"{name}: expected to broadcast to {tuple(shape)}, got {tuple(mask.shape)}")


def offset(given: int | Tensor) -> int:
    """The number that says where a sequence starts, or 0 where asking a tensor for it could cost a wait.

    Raises:
        ValueError: for what is no integer, or one below 0.
    """
    if isinstance(given, Tensor):
        if given.dim() or given.dtype not in (torch.int64, torch.int32):
            expected = "an integer, or a tensor of one without axes"
            raise ValueError(f"offset: expected {expected}, got {given.dtype} {tuple(given.shape)}")
        given = int(given) if readable(given) else 0
    lengths(offset=given)
    return given
