"""Values, results and errors in the form in which a message shows them."""

import math
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Given
from transformer_lessons.checks.learner.adapter import is_opaque
from transformer_lessons.checks.seen import Outcome

FEW_NUMBERS, WIDTH = 9, 110


def literal(value: Any) -> str:
    """A value as a Python expression."""
    if isinstance(value, Given):
        return value.expression
    if isinstance(value, list | tuple):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    if not isinstance(value, Tensor):
        return repr(value)
    usual = value.dtype in (torch.float32, torch.int64, torch.bool)
    shape, dtype = ", ".join(map(str, value.shape)), "" if usual else f", dtype={value.dtype}"
    if not value.numel():
        return f"torch.zeros({shape}{dtype})"
    if value.numel() > FEW_NUMBERS and (value == value.flatten()[0]).all():
        number = _exact(value.flatten()[0])
        made = f"ones({shape}" if number == "1." else f"full({tuple(value.shape)}, {number}"
    else:
        made = f"tensor({_exact(value)}"
    return f"torch.{made}{dtype})"


def _exact(value: Tensor) -> str:
    """The numbers of a tensor, with as few digits as make the same tensor."""
    if value.dim():
        return f"[{', '.join(map(_exact, value))}]"
    number = value.item()
    if not isinstance(number, float) or number.is_integer():
        return shortened(number, 1)
    if not math.isfinite(number):
        return f"float('{number}')"
    texts = (f"{number:.{digits}g}" for digits in range(1, 18))
    return next(text for text in texts if torch.tensor(float(text), dtype=value.dtype) == value)


def shortened(value: Any, digits: int) -> str:
    """A value, its floats with at most `digits` decimals: 0.25 with one decimal is 0.2, and 2 is 2."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list):
        return "[" + ", ".join(shortened(item, digits) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shortened(item, digits)}" for name, item in value.items()) + "}"
    if isinstance(value, float) and abs(value) < 1e15:  # neither NaN nor infinity
        text = f"{value:.{digits}f}".rstrip("0")
        return "0." if text in ("-0.", "0.") else text
    return str(value)


def cut(text: str) -> str:
    """At most `WIDTH` characters of a text, ending with a whole word or number."""
    start = text[: WIDTH - 2]
    return text if len(text) <= WIDTH else (start.rpartition(" ")[0] or start) + " …"


def describe_error(seen: Outcome) -> str:
    """An error: its type, the first line of its message, and where it was raised, as far as known."""
    message = "".join(f": {cut(line)}" for line in seen.message.strip().splitlines()[:1])
    return f"raises {seen.error}{message}" + (f", at “{seen.line}”" if seen.line else "")


def describe(value: Any) -> str:
    """What came back, in words."""
    if isinstance(value, dict) and value.keys() == {"instead"}:
        return describe(value["instead"])
    if is_opaque(value):
        return value["opaque"]
    if isinstance(value, Tensor):
        return f"one tensor of shape {tuple(value.shape)}"
    if isinstance(value, list):
        is_tuple = any(isinstance(part, Tensor) for part in value)
        return f"a {'tuple' if is_tuple else 'list or array'} of {len(value)}"
    return (f"a dict with {', '.join(value) or 'no entry'}" if isinstance(value, dict) else str(value))[:60]


def wrong_kind(outputs: Any, right: Any) -> str:
    """What came back instead of the tensor or tensors asked for; "" if it is what was asked for."""
    if outputs is None:
        return "None: is there a return at the end?"
    if is_opaque(outputs):
        return outputs["opaque"]
    if isinstance(outputs, Tensor):
        return "one tensor; expected several values" if isinstance(right, list) else ""
    is_number = isinstance(outputs, int | float) and isinstance(right, Tensor) and not right.dim()
    if not isinstance(right, Tensor) or is_number:
        return ""
    is_list = isinstance(outputs, list)
    what = "a list, tuple or array" if is_list else f"a value of type {type(outputs).__name__}"
    return f"{what}; expected one tensor"
