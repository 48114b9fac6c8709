"""What is asked of tensors: shapes, dtypes and devices, which are free; values only where they are `readable`."""

import torch
from torch import Tensor

from transformer_lessons.expect.values import kind, lengths


def floats(*axes: str, **given: Tensor) -> None:
    """Refuse what is no tensor of floats, or (if `axes` are named) has another number of axes.

    Raises:
        ValueError: naming the first argument that is none.
    """
    for name, x in given.items():
        if not isinstance(x, Tensor):  # asked here too: a step of decoding passes by a hundred times
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


def computed_in(x: Tensor) -> torch.dtype:
    """What products with x are computed in: its own type or, but for float64, that of `torch.autocast`."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if _is_autocast(device) and x.dtype != torch.float64 else x.dtype


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


def readable(x: Tensor) -> bool:
    """Whether the values can be looked at for free: not on a GPU, not in a compiled graph."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def broadcasts(mask: Tensor, shape: tuple[int, ...], name: str = "mask") -> None:
    """Refuse a mask that does not broadcast to `shape`. A pitfall: without this it could widen what it masks.

    Raises:
        ValueError: naming the mask and both shapes.
    """
    axes = range(-mask.dim(), 0)  # aligned at the last one
    if mask.dim() > len(shape) or any(mask.size(axis) not in (1, shape[axis]) for axis in axes):
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
