"""Compares what a candidate showed with what the right answer shows, one requirement at a time."""

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.adapter import Reply, is_opaque
from transformer_lessons.checks.core import Probe, Requirement, Task

__all__ = ["Finding", "agree", "deviation", "find"]

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True)
class Finding:
    """How a candidate missed a requirement.

    Attributes:
        text: what happened, one sentence.
        where: the output or argument, with the index of the largest deviation.
        deviation: the largest deviation; infinite for NaN.
        output: the number of the output to print in a counterexample.
        example: whether a counterexample helps.
    """

    text: str
    where: str | None = None
    deviation: float | None = None
    output: int | None = None
    example: bool = True


def find(task: Task, requirement: Requirement, probe: Probe, got: Reply, want: Reply) -> Finding | None:
    """The first thing wrong on one probe; None if the requirement is met there."""
    if probe.refused:
        return _not_refused(probe, got)
    finding = _error(task, got) or _structure(task, got, want)
    if finding or requirement.aspects == ("structure",):
        return finding
    for aspect in ("values", *requirement.aspects):
        finding = ASPECTS[aspect](task, got, want)
        if finding:
            return finding
    return None


def deviation(got: Tensor, want: Tensor) -> tuple[float, tuple[int, ...]] | None:
    """The largest deviation and its index, or None where all agree to the precision of the coarser dtype."""
    if not want.numel():
        return None
    tolerance = max(TOLERANCE.get(got.dtype, 0.0), TOLERANCE.get(want.dtype, 0.0))
    a, b = got.to(torch.float64), want.to(torch.float64)
    largest, scale = (a - b).abs().max().item(), b.abs().max().item()
    if largest <= tolerance * max(1.0, scale) < math.inf:
        return None
    return _deviation_in_full(a, b, tolerance)


def _deviation_in_full(a: Tensor, b: Tensor, tolerance: float) -> tuple[float, tuple[int, ...]] | None:
    """The same where NaN and infinity may be among the numbers: they deviate from all but themselves."""
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs()).nan_to_num(math.inf, math.inf)
    largest, finite = gap.max().item(), b[b.isfinite()].abs()
    if largest <= tolerance * max(1.0, finite.max().item() if finite.numel() else 1.0):
        return None
    place, index = int(gap.argmax()), []
    for size in reversed(gap.shape):  # torch.unravel_index would import sympy, which takes seconds
        place, last = divmod(place, size)
        index.append(last)
    return largest, tuple(reversed(index))


def agree(probe: Probe, a: Reply, b: Reply) -> bool:
    """Whether two candidates showed the same thing, wrong or right: how a mistake is recognised."""
    if probe.refused:
        return _outcome(a) == _outcome(b)
    if a.error or b.error:
        return _signature(a) == _signature(b)
    same = (a.kind, a.mutated, a.reseeded, a.attached) == (b.kind, b.mutated, b.reseeded, b.attached)
    return same and _alike(a.value, b.value) and _alike(a.gradients, b.gradients)


def _outcome(reply: Reply) -> str:
    return "accepted" if not reply.error else "refused" if reply.error["type"] == "ValueError" else "crashed"


def _signature(reply: Reply) -> tuple[str, str] | None:
    """Two errors are the same one if type and message are, whatever the function's name."""
    if reply.error is None:
        return None
    return reply.error["type"], re.sub(r"^[\w.<>]+\(\)", "f()", reply.error["message"])


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and deviation(a, b) is None
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    return type(a) is type(b) and not isinstance(a, Tensor) and a == b


def _not_refused(probe: Probe, got: Reply) -> Finding | None:
    outcome = _outcome(got)
    if outcome == "refused":
        return None
    did = "was accepted" if outcome == "accepted" else f"raised {got.error['type']}"
    return Finding(f"{probe.refused}: this must raise ValueError with a helpful message, but it {did}.")


def _error(task: Task, got: Reply) -> Finding | None:
    if got.error is None:
        return None
    kind, message, line = got.error["type"], got.error["message"], got.error["line"]
    if kind == "NotImplementedError":
        return Finding(f"there is no answer yet: `{task.name}` raises NotImplementedError.", example=False)
    if kind == "NotAFunctionError":
        is_ = "None" if message == "NoneType" else f"of type {message}"
        return Finding(f"`{task.name}` should be a function, but is {is_}.", example=False)
    said = f": {message.splitlines()[0]}" if message else ""
    at = f" in the line `{line}`" if line else ""
    call = f" It is called as {task.signature}." if kind == "TypeError" else ""
    return Finding(f"it raised {kind}{said}{at}.{call}".replace("..", "."), example=kind != "TypeError")


def _outputs(task: Task, reply: Reply) -> list:
    return reply.value if len(task.returns) > 1 else [reply.value]


def _structure(task: Task, got: Reply, want: Reply) -> Finding | None:
    """The right number of tensors of the right shapes."""
    promised = f"a tuple ({', '.join(task.returns)})" if len(task.returns) > 1 else "one tensor"
    if got.kind != want.kind:
        return Finding(f"it should return {promised}, but returned {_in_words(got)}.", example=False)
    if isinstance(want.value, dict):  # seen through a view
        return None if isinstance(got.value, dict) else Finding(f"it should return {promised}.")
    outputs, wanted = _outputs(task, got), _outputs(task, want)
    if len(outputs) != len(wanted):
        return Finding(f"it should return {promised}, but returned {len(outputs)} values.", example=False)
    for number, (name, a, b) in enumerate(zip(task.returns, outputs, wanted, strict=True)):
        finding = _not_a_tensor(name, a, b) or _shape(name, a, b, number)
        if finding:
            return finding
    return None


def _in_words(got: Reply) -> str:
    if got.kind == "NoneType":
        return "None (is a `return` missing?)"
    if isinstance(got.value, list):
        return f"a {got.kind} of {len(got.value)} values"
    return f"a single {got.kind}"


def _not_a_tensor(name: str, got: Any, want: Any) -> Finding | None:
    if is_opaque(got) or is_opaque(want):
        return (
            None if got == want else Finding(f"{name} should be {_thing(want)}, but is {_thing(got)}.", name)
        )
    return (
        None
        if isinstance(got, Tensor)
        else Finding(f"{name} should be a tensor, but is {_thing(got)}.", name)
    )


def _thing(value: Any) -> str:
    if is_opaque(value):
        return value["opaque"]
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)} on cpu"
    return "None" if value is None else f"a {type(value).__name__}"


def _shape(name: str, got: Any, want: Any, number: int) -> Finding | None:
    if is_opaque(want):
        return None
    if got.is_complex():
        return Finding(f"{name} should hold real numbers, but holds complex ones.", name)
    if got.shape == want.shape:
        return None
    text = f"{name} should have shape {tuple(want.shape)}, but has {tuple(got.shape)}."
    return Finding(text, name, output=number)


def _values(task: Task, got: Reply, want: Reply) -> Finding | None:
    if isinstance(want.value, dict):
        return _viewed(got.value, want.value)
    for number, (name, a, b) in enumerate(
        zip(task.returns, _outputs(task, got), _outputs(task, want), strict=True)
    ):
        if is_opaque(b):
            continue
        if b.dtype is torch.bool and a.dtype is not torch.bool:
            text = (
                f"{name} should hold booleans (torch.bool), but holds {str(a.dtype).removeprefix('torch.')}."
            )
            return Finding(text, name, output=number)
        apart = deviation(a, b)
        if apart:
            return _apart(name, a, apart, number)
    return None


def _apart(name: str, got: Tensor, apart: tuple[float, tuple[int, ...]], number: int | None) -> Finding:
    largest, index = apart
    where = f"{name}[{', '.join(map(str, index))}]"
    if got.is_floating_point() and not got.isfinite().all():
        bad = "NaN" if got.isnan().any() else "an infinite number"
        return Finding(f"{name} contains {bad}, first seen around {where}.", where, float("inf"), number)
    if got.dtype is torch.bool:
        text = f"{where} is {bool(got[index])}, but should be {not got[index]}."
        return Finding(text, where, 1.0, number)
    return Finding(f"{name} is off by up to {largest:.2g}, at {where}.", where, largest, number)


def _viewed(got: dict, want: dict) -> Finding | None:
    for sentence in want:
        if not _alike(got.get(sentence), want[sentence]):
            return Finding(f"{sentence}.")
    return None


def _gradients(task: Task, got: Reply, want: Reply) -> Finding | None:
    for name, attached in zip(task.returns, got.attached, strict=False):
        if not attached:
            return Finding(f"no gradient flows back from {name}: it was detached on the way.", name)
    for path, gradient in want.gradients.items():
        name = f"gradient of {_argument(task, path)}"
        if gradient is None:
            continue
        mine = got.gradients.get(path)
        if mine is None:
            return Finding(f"no gradient arrives at {_argument(task, path)}.", name)
        apart = deviation(mine, gradient)
        if apart:
            return _apart(f"the {name}", mine, apart, None)
    return None


def _argument(task: Task, path: str) -> str:
    head, *rest = path.split(".")
    name = task.arguments[int(head)] if head.isdigit() and int(head) < len(task.arguments) else head
    return ".".join([name, *rest])


def _dtype(task: Task, got: Reply, want: Reply) -> Finding | None:
    for name, a, b in zip(task.returns, _outputs(task, got), _outputs(task, want), strict=True):
        if isinstance(b, Tensor) and a.dtype != b.dtype:
            is_, should = (str(t.dtype).removeprefix("torch.") for t in (a, b))
            return Finding(f"{name} should be {should}, as the inputs are, but is {is_}.", name)
    return None


def _inputs(task: Task, got: Reply, want: Reply) -> Finding | None:
    changed = [_argument(task, path) for path in got.mutated]
    if not changed:
        return None
    return Finding(f"it changed its caller's {' and '.join(changed)} in place.", changed[0])


def _random(task: Task, got: Reply, want: Reply) -> Finding | None:
    if not got.reseeded:
        return None
    return Finding("it seeds torch's global random generator, which belongs to the caller.")


ASPECTS = {
    "values": _values,
    "gradients": _gradients,
    "dtype": _dtype,
    "inputs": _inputs,
    "random": _random,
}
