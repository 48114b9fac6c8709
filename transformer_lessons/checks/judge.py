"""Compares what a candidate showed with what the right answer shows, one requirement at a time."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.adapter import Reply, is_opaque
from transformer_lessons.checks.compare import alike, deviation, outcome
from transformer_lessons.checks.core import Probe, Requirement, Task

__all__ = ["Finding", "find"]


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


def _not_refused(probe: Probe, got: Reply) -> Finding | None:
    ended = outcome(got)
    if ended == "refused":
        return None
    did = "was accepted" if ended == "accepted" else f"raised {got.error['type']}"
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
        if not alike(got.get(sentence), want[sentence]):
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
