"""What passes between a check and a learner's code: copies on the way in, plain values on the way out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lessons.checks.learner.adapter import items

MOST_BITS = 1023  # of an integer; Python refuses to print one of some 14,000 bits
DEPTH = 16  # how deep lists and dicts may nest before the rest is only described


def mapped(value: Any, change: Callable[[str, Tensor], Tensor], path: str) -> Any:
    """The same lists and dicts with each tensor replaced by what `change` makes of its path and itself."""
    if isinstance(value, Tensor):
        return change(path, value)
    within = {name: mapped(item, change, f"{path}.{name}" if path else name) for name, item in items(value)}
    if isinstance(value, dict):
        return within
    return list(within.values()) if isinstance(value, list | tuple) else value


def copied(value: Any) -> Any:
    """The same lists and dicts with copies of all tensors."""
    return mapped(value, lambda _, tensor: tensor.clone(), "")


def outgoing(value: Any, depth: int = 0) -> Any:
    """What is sent for a result: plain values, and a description of anything else."""
    if isinstance(value, Tensor):
        if described := describe_unusual(value):
            return {"opaque": described}
        return value.detach().to("cpu", copy=True).as_subclass(Tensor)
    if type(value) is int and value.bit_length() > MOST_BITS:
        return {"opaque": "an int too large for a float"}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth < DEPTH and isinstance(value, np.generic | np.ndarray):
        return outgoing(value.tolist(), depth + 1)
    if depth < DEPTH and isinstance(value, list | tuple):
        return [outgoing(item, depth + 1) for item in value]
    if depth < DEPTH and isinstance(value, dict):
        return {str(name): outgoing(item, depth + 1) for name, item in value.items()}
    return {"opaque": f"{'an' if kind(value)[0] in 'aeiou' else 'a'} {kind(value)}"}


def kind(value: Any) -> str:
    """The type of a result in words."""
    if isinstance(value, Tensor):
        return "Tensor"
    known = {tuple: "tuple", list: "list", dict: "dict", float: "float"}
    for type_, name in known.items():
        if isinstance(value, type_):
            return name
    type_ = type(value)
    return type_.__name__ if type_.__module__ == "builtins" else f"{type_.__module__}.{type_.__name__}"


def describe_unusual(tensor: Tensor) -> str | None:
    """A description of a tensor without numbers, of another layout, or with few operations; else None."""
    layout = "" if tensor.layout is torch.strided else f"{_short(tensor.layout)} "
    sort = "nested " if tensor.is_nested else "quantized " if tensor.is_quantized else layout
    if not sort and not tensor.is_meta:
        return None
    shape = "" if tensor.is_nested else f" of shape {tuple(tensor.shape)}"
    return f"a {sort}{_short(tensor.dtype)} tensor{shape} on {tensor.device}"


def _short(name: torch.dtype | torch.layout) -> str:
    return str(name).removeprefix("torch.")


def edits(before: Any, after: Any, path: str = "") -> list[str]:
    """The paths of the values that have changed."""
    if isinstance(before, Tensor):
        return [] if isinstance(after, Tensor) and _same(before, after) else [path]
    if type(before) in (bool, int, float, str):
        is_same = type(after) is type(before) and (before == after or before != before)
        return [] if is_same else [path]
    inner, now = dict(items(before)), dict(items(after))
    if inner.keys() != now.keys():  # for example, a list that grew
        return [path]
    within = f"{path}." if path else ""
    return [edit for name, item in inner.items() for edit in edits(item, now[name], within + name)]


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    b = b.detach()
    return torch.equal(a, b) or bool(a.is_floating_point() and torch.allclose(a, b, 0, 0, equal_nan=True))
