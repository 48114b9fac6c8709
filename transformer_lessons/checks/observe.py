"""What is seen of an answer on one call, and when two answers show the same."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Given, Task
from transformer_lessons.checks.learner.adapter import Adapter, Reply, leaves
from transformer_lessons.checks.states import Link, translations

__all__ = [
    "EDITED",
    "WEIGHTS",
    "Seen",
    "alike",
    "built",
    "observe",
    "same_gradients",
    "same_value",
    "tensors",
]

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
EDITED = "changed in place"
WEIGHTS = "WeightsError"  # those of the answer are none of the wanted ones
# Which function of a library notices is chance; so is a learner's assert.
SHAPES = dict.fromkeys(
    ["RuntimeError", "ValueError", "IndexError", "AssertionError", "EinopsError"], "shapes"
)


@dataclass(frozen=True)
class Seen:
    """What one call showed.

    Attributes:
        value: what came back, as `Call.view` sees it.
        error, message, line: of the exception, if one came instead, and the line of the answer.
        gradients: by the names of arguments and parameters; empty if nothing can be differentiated.
        edited: the arguments that were changed in place.
        memory: where bytes are counted, those allowed and those used, if these are more.
        outputs: what came back, without view.
    """

    value: Any = None
    error: str = ""
    message: str = ""
    line: str = ""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    outputs: Any = None


def observe(adapter: Adapter, task: Task, call: Call, *, backward: bool = False, naming: int = 0) -> Seen:
    """Make one call.

    Args:
        adapter: to the answer.
        task: of which it is an answer.
        call: what to ask.
        backward: whether gradients are asked for, too.
        naming: which of the ways to load weights under other names.
    """
    target, own, links = task.name, {}, []
    if call.init is not None:
        reply, own, links = _built(adapter, task, call, naming)
        if reply.error:
            return _failed(reply)
        target = reply.value
    if call.method == "state":
        return _seen(task, call, adapter.state(target))
    target = f"{target}.{call.method}" if call.method else target
    args, kwargs = _made(adapter, call.args), _made(adapter, call.kwargs)
    ask = adapter.vjp if backward else adapter.call
    reply = ask(target, args, kwargs, meter=bool(call.limits))
    if call.same_as and not reply.error:
        other = adapter.call(target, _made(adapter, call.same_as), kwargs)
        one, two = (_viewed(call, value) for value in (reply.value, other.value))
        same = {"the same": not other.error and alike(one, two)}
        return Seen(one if isinstance(one, dict) and "instead" in one else same, outputs=reply.value)
    weights = [adapter.state(args[n]["handle"]).value for n in call.weights_after] if not reply.error else []
    seen = _seen(task, call, reply, weights)
    if not backward or seen.error:
        return seen
    return replace(seen, gradients=_gradients(task, call, reply, own, links))


def _built(adapter: Adapter, task: Task, call: Call, naming: int) -> tuple[Reply, dict, list[Link]]:
    """An object of the answer's class with the call's weights; its own ones, and which of these are which."""
    made, own, links = built(adapter, task, call), {}, []
    replies = [made]
    if call.state is not None and not made.error:
        state = adapter.state(made.value)
        if state.error:  # of a class that is no module
            return state, own, links
        own = tensors(state)
        links = next(itertools.islice(translations(own, call.state, task.roles), naming, None), [])
        loaded = {name: part for link in links for name, part in link.load(own, call.state).items()}
        replies.append(
            _unlike(own, call.state) if not links else adapter.load_state(made.value, {**own, **loaded})
        )
    if not made.error:
        replies.append(adapter.train(made.value, call.training))
        replies += [adapter.call(made.value, list(args), {}) for args in call.earlier]
    return next((reply for reply in replies if reply.error), made), own, links


def _unlike(own: dict, wanted: dict) -> Reply:
    """Complains of matrices that are none of the wanted ones; an answer without any may have its reasons."""
    for name in wanted:
        if name in own and own[name].shape != wanted[name].shape:
            message = f"{name} has shape {tuple(own[name].shape)}; expected is {tuple(wanted[name].shape)}"
            return Reply(error={"type": WEIGHTS, "message": message, "line": ""})
    counts = [Counter(tuple(t.shape) for t in s.values() if t.dim() > 1) for s in (own, wanted)]
    shapes = [" and ".join(f"{n} of {shape}" for shape, n in count.items()) for count in counts]
    told = f"it has {shapes[0]}, and {shapes[1]} are expected"
    if counts[0] == counts[1]:  # it is a vector that does not fit
        known = {tensor.shape for tensor in wanted.values()}
        spare = [f"{name} of shape {tuple(t.shape)}" for name, t in own.items() if t.shape not in known]
        more = f"it has {len(own)} parameters, and {len(wanted)} are expected"
        told = f"nothing is expected like its {' and '.join(spare)}" if spare else more
    message = f"weights cannot be loaded into it: {told}"
    return Reply(error={"type": WEIGHTS, "message": message, "line": ""} if shapes[0] else None)


def built(adapter: Adapter, task: Task, call: Call) -> Reply:
    """A new object of the answer's class; the reply's value is its handle."""
    return adapter.build(task.name, _made(adapter, call.init), _made(adapter, call.options))


def tensors(state: Reply) -> dict[str, Tensor]:
    """The weights and buffers that came; none of what is no module."""
    return {} if state.error else {n: t for n, t in state.value.items() if isinstance(t, Tensor)}


def _made(adapter: Adapter, arg: Any) -> Any:
    """What is sent for an argument: plain values, or the handle of an object that was made for it."""
    if isinstance(arg, list | tuple):
        return [_made(adapter, item) for item in arg]
    if isinstance(arg, dict):
        return {str(name): _made(adapter, item) for name, item in arg.items()}
    if not isinstance(arg, Given):
        return arg
    reply = adapter.build(f"given.{arg.kind}", [_made(adapter, inner) for inner in arg.args], {})
    if reply.error:
        raise RuntimeError(f"given.{arg.kind}: {reply.error['message']}")
    return {"handle": reply.value}


def _failed(reply: Reply) -> Seen:
    return Seen(error=reply.error["type"], message=reply.error["message"], line=reply.error["line"])


def _seen(task: Task, call: Call, reply: Reply, weights: Sequence = ()) -> Seen:
    if reply.error:
        return _failed(reply)
    edited = tuple(_name(task, path) for path in reply.mutated)
    value = [reply.value, *weights] if call.weights_after else reply.value
    if call.limits:
        used = {kind: (3 * most // 2, reply.memory[kind]) for kind, most in call.limits.items()}
        over = {kind: both for kind, both in used.items() if both[1] > both[0]}
        arrive = {"gradients": any(reply.attached)} if "saved" in call.limits else {}
        value = {**arrive, **{kind: kind not in over for kind in call.limits}}
        viewed = _viewed(call, [reply.value, value]) if call.view else value
        return Seen(viewed, memory=over, outputs=reply.value)
    viewed = _viewed(call, value)
    if call.edits:
        viewed = {EDITED: list(edited), "value": viewed if call.view else None}
    return Seen(viewed, edited=edited, outputs=reply.value)


def _viewed(call: Call, value: Any) -> Any:
    """What counts of a value, or the value, as “instead”, where the view expects others."""
    try:
        return call.view(value) if call.view else value
    except Exception:
        return {"instead": value}


def _gradients(task: Task, call: Call, reply: Reply, own: dict, links: list[Link]) -> dict[str, Tensor]:
    """Of arguments and of the wanted parameters: zero where none arrives, none at all if no result has any."""
    if not any(reply.attached):
        return {}
    given = {**leaves(list(call.args)), **leaves(call.kwargs)}
    gradients = {
        _name(task, path): torch.zeros_like(given[path]) if gradient is None else gradient
        for path, gradient in reply.gradients.items()
    }
    flows = {n: torch.zeros_like(own[n]) if g is None else g for n, g in reply.parameters.items() if n in own}
    for link in links:
        if flows.keys() >= set(link.own):  # a buffer has none
            gradients |= link.back(flows, call.state)
    return gradients


def _name(task: Task, path: str) -> str:
    """“0.1” is a part of the first argument."""
    first, *rest = path.split(".")
    known = int(first) < len(task.arguments) if first.isdigit() else False
    return ".".join([task.arguments[int(first)] if known else first, *rest])


def same_value(a: Seen, b: Seen) -> bool:
    """The same result, or both fail in the same way, whatever the words."""
    if a.error or b.error:
        return SHAPES.get(a.error, a.error) == SHAPES.get(b.error, b.error)
    return alike(a.value, b.value)


def same_gradients(a: Seen, b: Seen) -> bool:
    """The same gradients, and the same arguments changed; parameters of only one of the two are not compared."""
    both = a.gradients.keys() & b.gradients.keys()
    same = bool(a.gradients) == bool(b.gradients) and a.edited == b.edited
    return same and all(alike(a.gradients[name], b.gradients[name]) for name in both)


def alike(a: Any, b: Any) -> bool:
    """Whether two values are the same to the precision of the coarser; NaN and infinity equal only themselves.

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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_close(a: float, b: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7)
    except OverflowError:  # an integer beyond all floats
        return False


def _alike_tensors(a: Tensor, b: Tensor) -> bool:
    floating = a.is_floating_point() and b.is_floating_point()
    if a.shape != b.shape or (a.dtype != b.dtype and not floating):
        return False
    if a.dtype == b.dtype and torch.equal(a, b):
        return True
    if not floating:
        return False
    tolerance = max(TOLERANCE.get(a.dtype, 1e-1), TOLERANCE.get(b.dtype, 1e-1))
    a, b = a.double(), b.double()
    finite = b.isfinite()
    if not torch.equal(a.isfinite(), finite) or not torch.equal(
        a[~finite].nan_to_num(), b[~finite].nan_to_num()
    ):
        return False
    scale = b[finite].abs().max().clamp(min=1).item() if finite.any() else 1.0
    return bool(((a - b)[finite].abs() <= tolerance * scale).all())
