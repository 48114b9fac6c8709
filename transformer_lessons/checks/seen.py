"""What one call of an answer shows, when two answers show the same, and when that is what is required."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call

EDITED = "changed in place"
WEIGHTS = "WeightsError"  # the answer's weights do not match the wanted ones
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
# Wrong shapes raise one or another of these, depending on the library function or a learner's assert.
SHAPES = dict.fromkeys("RuntimeError ValueError IndexError AssertionError EinopsError".split(), "shapes")


@dataclass(frozen=True)
class Outcome:
    """What one call showed.

    Attributes:
        value: what came back, as `Call.view` sees it.
        error, message, line: the exception, if one was raised instead: type, message, and line of the answer.
        gradients: by names of arguments and parameters; empty if nothing can be differentiated.
        names: the answer's own names for parameters, by the wanted names.
        edited: the arguments that were changed in place.
        memory: for each limit that was exceeded, the bytes allowed and the bytes used.
        outputs: what came back, without the view.
    """

    value: Any = None
    error: str = ""
    message: str = ""
    line: str = ""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    outputs: Any = None


def same(call: Call, a: Outcome, b: Outcome) -> bool:
    """Whether two answers show the same on a call."""
    return same_value(a, b) and (not call.backward or same_gradients(a, b))


def meets(call: Call, seen: Outcome, right: Outcome) -> bool:
    """Whether what is seen is what is required. Where a ValueError is required, no other error will do.

    If values are wrong already, which other requirements judge, each gradient only needs to arrive: it may
    not be all zero or all NaN.
    """
    if not call.backward:
        return same_value(seen, right) and (right.error != "ValueError" or seen.error == "ValueError")
    if same_value(seen, right):
        return same_gradients(seen, right)
    wanted = _arriving_gradients(right)
    wanted = wanted & seen.gradients.keys() or wanted  # the answer may have no biases
    return not seen.error and seen.edited == right.edited and _arriving_gradients(seen) >= wanted


def _arriving_gradients(seen: Outcome) -> set[str]:
    flows = seen.gradients.items()
    return {name for name, gradient in flows if gradient.any() and not gradient.isnan().all()}


def same_value(a: Outcome, b: Outcome) -> bool:
    """Whether the results are the same, or both fail in the same way, whatever the messages say."""
    if a.error or b.error:
        return SHAPES.get(a.error, a.error) == SHAPES.get(b.error, b.error)
    return alike(a.value, b.value)


def same_gradients(a: Outcome, b: Outcome) -> bool:
    """Whether gradients and edited arguments are the same; parameters that only one has are ignored."""
    both = a.gradients.keys() & b.gradients.keys()
    same = bool(a.gradients) == bool(b.gradients) and a.edited == b.edited
    return same and all(alike(a.gradients[name], b.gradients[name]) for name in both)


def alike(a: Any, b: Any) -> bool:
    """Whether a is b, to the precision of b or float32; NaN and infinity equal only themselves.

    A number may come as a tensor without axes, and a float of another width is as good.
    """
    if isinstance(a, Tensor) != isinstance(b, Tensor) and (_is_number(a) or _is_number(b)):
        a, b = (x.item() if isinstance(x, Tensor) and not x.dim() else x for x in (a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _alike_tensors(a, b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if _is_number(a) and _is_number(b):
        return a == b or _is_close(a, b) or (a != a and b != b)
    return type(a) is type(b) and not isinstance(a, Tensor) and a == b


def varies(value: Any) -> bool:
    """Whether a value is more than tensors of one repeated number, as if the input were ignored."""
    if isinstance(value, list | tuple):
        return any(map(varies, value))
    return not isinstance(value, Tensor) or not value.dim() or bool((value != value.flatten()[:1]).any())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_close(a: float, b: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7)
    except OverflowError:  # an integer too large for a float
        return False


def _alike_tensors(a: Tensor, b: Tensor) -> bool:
    floating = a.is_floating_point() and b.is_floating_point()
    if a.shape != b.shape or (a.dtype != b.dtype and not floating):
        return False
    if a.dtype == b.dtype and torch.equal(a, b):
        return True
    if not floating:
        return False
    tolerance = max(TOLERANCE.get(b.dtype, 1e-1), min(TOLERANCE.get(a.dtype, 1e-1), 1e-5))
    a, b = a.double().numpy(), b.double().numpy()  # NumPy is faster on a few numbers
    scale = np.abs(b).max(initial=1.0, where=np.isfinite(b))
    with np.errstate(all="ignore"):  # infinity minus infinity
        is_close = np.abs(a - b) <= tolerance * scale
    return bool((is_close | (a == b) | (np.isnan(a) & np.isnan(b))).all())
