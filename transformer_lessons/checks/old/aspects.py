"""What is compared of two replies: values, gradients, dtypes, side effects, memory; one function for each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.adapter import Reply, is_opaque
from transformer_lessons.checks.old.compare import alike, deviation, too_much
from transformer_lessons.checks.old.core import Task

__all__ = ["ASPECTS", "Finding", "outputs"]


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


def outputs(task: Task, reply: Reply) -> list:
    """What was returned, as a list."""
    return reply.value if len(task.returns) > 1 else [reply.value]


def _values(task: Task, got: Reply, want: Reply) -> Finding | None:
    if isinstance(want.value, dict):
        return _viewed(got.value, want.value)
    for number, (name, a, b) in enumerate(
        zip(task.returns, outputs(task, got), outputs(task, want), strict=True)
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
            return _apart(name, a, apart, number, has_infinite=bool(b.isinf().any()))
    return None


def _apart(
    name: str,
    got: Tensor,
    apart: tuple[float, tuple[int, ...]],
    number: int | None,
    has_infinite: bool = False,  # the right answer: then an infinite number is nothing to complain about
) -> Finding:
    largest, index = apart
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    if got.isnan().any() or (got.isinf().any() and not has_infinite):
        bad = "NaN" if got.isnan().any() else "an infinite number"
        return Finding(f"{name} contains {bad}, first seen around {where}.", where, float("inf"), number)
    if got.dtype is torch.bool:
        text = f"{where} is {bool(got[index])}, but should be {not got[index]}."
        return Finding(text, where, 1.0, number)
    at = f"up to {largest:.2g}, at {where}" if index else f"{largest:.2g}"
    return Finding(f"{name} is off by {at}.", where, largest, number)


def _viewed(got: dict, want: dict) -> Finding | None:
    for sentence in want:
        if not alike(got.get(sentence), want[sentence]):
            return Finding(f"{sentence}.")
    return None


def _gradients(task: Task, got: Reply, want: Reply) -> Finding | None:
    for name, attached, needed in zip(task.returns, got.attached, want.attached, strict=False):
        if needed and not attached:
            return Finding(f"no gradient flows back from {name}: it was detached on the way.", name)
    for path, gradient in want.gradients.items():
        name = f"gradient of {_argument(task, path)}"
        if gradient is None:
            continue
        mine = got.gradients.get(path)
        if mine is None:
            return Finding(f"no gradient arrives at {_argument(task, path)}.", name)
        if finding := _off(f"the {name}", mine, gradient):
            return finding
    return None


def _parameters(task: Task, got: Reply, want: Reply) -> Finding | None:
    for name, gradient in want.parameters.items():
        if gradient is None:
            continue
        mine = got.parameters.get(name)
        if mine is None:
            return Finding(f"no gradient arrives at the parameter {name}.", f"gradient of {name}")
        if finding := _off(f"the gradient of {name}", mine, gradient):
            return finding
    return None


def _off(name: str, got: Tensor, want: Tensor) -> Finding | None:
    """Of gradients. Torch makes none of another shape, but a reply from elsewhere might hold one."""
    if got.shape != want.shape:
        return Finding(f"{name} has shape {tuple(got.shape)}, not {tuple(want.shape)}.", name)
    apart = deviation(got, want)
    return _apart(name, got, apart, None) if apart else None


def _memory(what: str, words: str) -> Callable:
    """At most one and a half times the bytes that are enough."""

    def judge(task: Task, got: Reply, want: Reply) -> Finding | None:
        if not too_much(what, got, want.memory):
            return None
        shape = f", of shape {tuple(got.memory['shape'])}," if what == "largest" else ""
        bytes_ = f"{got.memory[what]:,} bytes; {want.memory[what]:,} are enough"
        return Finding(words.format(shape=shape, bytes=bytes_), what, example=False)

    return judge


def _argument(task: Task, path: str) -> str:
    head, *rest = path.split(".")
    name = task.arguments[int(head)] if head.isdigit() and int(head) < len(task.arguments) else head
    return ".".join([name, *rest])


def _dtype(task: Task, got: Reply, want: Reply) -> Finding | None:
    for name, a, b in zip(task.returns, outputs(task, got), outputs(task, want), strict=True):
        if isinstance(b, Tensor) and a.dtype != b.dtype:
            is_, should = (str(t.dtype).removeprefix("torch.") for t in (a, b))
            return Finding(f"{name} should be {should}, as the inputs are, but is {is_}.", name)
    return None


def _inputs(task: Task, got: Reply, want: Reply) -> Finding | None:
    changed = [_argument(task, path) for path in got.mutated]
    if not changed:
        return None
    named = changed if len(changed) < 4 else [*changed[:2], f"{len(changed) - 2} others"]
    return Finding(f"it changed its caller's {' and '.join(named)} in place.", changed[0])


def _random(task: Task, got: Reply, want: Reply) -> Finding | None:
    if not got.reseeded:
        return None
    return Finding("it seeds torch's global random generator, which belongs to the caller.")


ASPECTS = {
    "values": _values,
    "gradients": _gradients,
    "parameters": _parameters,
    "saved": _memory("saved", "when it returns, it keeps {bytes} (arguments and result not counted)."),
    "largest": _memory("largest", "its largest tensor{shape} has {bytes}."),
    "peak": _memory("peak", "at its peak, all tensors that it made hold {bytes}."),
    "dtype": _dtype,
    "inputs": _inputs,
    "random": _random,
}
