"""Compares what a candidate showed with what the right answer shows, one requirement at a time."""

from typing import Any

from torch import Tensor

from transformer_lessons.checks.adapter import Reply, is_opaque
from transformer_lessons.checks.old.aspects import ASPECTS, Finding, outputs
from transformer_lessons.checks.old.compare import outcome
from transformer_lessons.checks.old.core import Probe, Requirement, Task

__all__ = ["Finding", "find"]


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
    if kind == "ParametersError":
        return Finding(f"its parameters have other names or shapes than expected: {message}.", example=False)
    said = f": {message.splitlines()[0].removesuffix('.')}" if message else ""
    at = f" in the line `{line}`" if line else ""
    call = f" It is called as {task.signature}." if kind == "TypeError" else ""
    return Finding(f"it raised {kind}{said}{at}.{call}", example=kind != "TypeError")


def _structure(task: Task, got: Reply, want: Reply) -> Finding | None:
    """The right number of tensors of the right shapes."""
    promised = _promised(task, want)
    if isinstance(want.value, dict) and isinstance(got.value, dict):  # seen through a view, which says more
        return None
    if got.kind != want.kind or (isinstance(want.value, dict) and not is_opaque(want.value)):
        return Finding(f"it should return {promised}, but returned {_in_words(got)}.", example=False)
    found, wanted = outputs(task, got), outputs(task, want)
    if len(found) != len(wanted):
        return Finding(f"it should return {promised}, but returned {len(found)} values.", example=False)
    for number, (name, a, b) in enumerate(zip(task.returns, found, wanted, strict=True)):
        finding = _not_a_tensor(name, a, b) or _shape(name, a, b, number)
        if finding:
            return finding
    return None


def _promised(task: Task, want: Reply) -> str:
    if len(task.returns) > 1:
        return f"a tuple ({', '.join(task.returns)})"
    return "None" if want.kind == "NoneType" else f"one {want.kind.lower()}"


def _in_words(got: Reply) -> str:
    if got.kind == "NoneType":
        return "None (is a `return` missing?)"
    if got.kind in ("list", "tuple"):
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
