"""One question to a candidate: what is built, what is called with what, and how that is asked of an adapter."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from transformer_lessons.checks.adapter import Adapter, Reply

__all__ = ["Build", "Given", "Probe", "ask"]


@dataclass(frozen=True)
class Given:
    """An argument that is an object of the package, such as a model: built where the candidate lives.

    Attributes:
        kind: one of `given.BUILDERS`.
        args: what it is built from; may hold other ones.
    """

    kind: str
    args: list


@dataclass(frozen=True)
class Build:
    """The candidate is a class; an object of it is made and prepared before it is asked.

    Attributes:
        args, kwargs: for the constructor.
        dtype: what it is moved to.
        state: the weights that are loaded, all of them.
        training: into which mode it is put; None leaves it as it was made.
        earlier: calls before the one that counts: (method or "", args, kwargs).
    """

    args: list
    kwargs: dict = field(default_factory=dict)
    dtype: str = ""
    state: dict[str, Tensor] | None = None
    training: bool | None = None
    earlier: tuple[tuple[str, list, dict], ...] = ()


@dataclass(frozen=True)
class Probe:
    """One call with made-up arguments.

    Attributes:
        args, kwargs: the arguments: plain values, and `Given` objects at the top level of `args`.
        cotangents: if given, one per output, gradients are asked for in the same call.
        refused: if given, the call must raise ValueError, and this says what is wrong with its arguments.
        view: turns what came back into what is compared, where chance forbids comparing it directly, or where a
            sentence says more than a name: a dict, whose keys are the sentences a learner reads if it differs.
        note: what is special about the call, for messages.
        build: for a class: how an object is made that is then called.
        method: what of the object is called, if not the object itself; "state" asks for its weights and buffers.
        look: numbers of the arguments, `Given` ones, whose weights are looked at afterwards; what came back is
            then the list of what was returned and of these.
        meter: count the bytes that are kept for the way back, of the largest tensor made, and at the peak.
        enough: by "saved", "largest" or "peak": bytes that are enough, where the right answer's are too few to
            ask of others. In an exam, those of all that is judged.
    """

    args: list
    kwargs: dict = field(default_factory=dict)
    cotangents: list | None = None
    refused: str = ""
    view: Callable[[Any], Any] | None = None
    note: str = ""
    build: Build | None = None
    method: str = ""
    look: tuple[int, ...] = ()
    meter: bool = False
    enough: dict[str, int] = field(default_factory=dict)


def ask(adapter: Adapter, name: str, probe: Probe) -> Reply:
    """All requests of one probe; the reply to the first that fails, or to the last."""
    target = name
    if probe.build is not None:
        reply = _built(adapter, name, probe.build)
        if reply.error:
            return reply
        target = reply.value
    if probe.method == "state":
        return adapter.state(target)
    args = [_made(adapter, arg) for arg in probe.args]
    target = f"{target}.{probe.method}" if probe.method else target
    if probe.cotangents is None:
        reply = adapter.call(target, args, probe.kwargs, meter=probe.meter)
    else:
        reply = adapter.vjp(target, args, probe.kwargs, probe.cotangents, meter=probe.meter)
    if reply.error or not probe.look:
        return reply
    return replace(reply, value=[reply.value, *(adapter.state(args[n]["handle"]).value for n in probe.look)])


def _built(adapter: Adapter, name: str, build: Build) -> Reply:
    """An object of the candidate's class, prepared; the reply's value is its handle."""
    made = adapter.build(name, build.args, build.kwargs)
    if made.error:
        return made
    if build.dtype and (reply := adapter.to(made.value, build.dtype)).error:
        return reply
    if build.state is not None and (reply := _loaded(adapter, made.value, build.state)).error:
        return reply
    if build.training is not None and (reply := adapter.train(made.value, build.training)).error:
        return reply
    for method, args, kwargs in build.earlier:
        reply = adapter.call(f"{made.value}.{method}" if method else made.value, args, kwargs)
        if reply.error:
            return reply
    return made


def _loaded(adapter: Adapter, handle: str, state: dict[str, Tensor]) -> Reply:
    """Weights loaded; an error that says which parameters were expected, if others are there."""
    loaded = adapter.load_state(handle, state)
    if not loaded.error:
        return loaded
    own = adapter.state(handle).value
    if not isinstance(own, dict):
        return loaded
    sizes = {name: tuple(t.shape) if isinstance(t, Tensor) else None for name, t in own.items()}
    wanted = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if sizes == wanted:
        return loaded
    return replace(loaded, error={"type": "ParametersError", "message": _apart(sizes, wanted), "line": ""})


def _apart(got: dict, want: dict) -> str:
    """Which names are missing, of another shape, or too many."""
    parts = [f"{name} {shape} is missing" for name, shape in want.items() if name not in got]
    parts += [
        f"{name} should have shape {shape}, but has {got[name]}"
        for name, shape in want.items()
        if name in got and got[name] != shape
    ]
    parts += [f"{name} {shape} is not expected" for name, shape in got.items() if name not in want]
    return "; ".join(parts)


def _made(adapter: Adapter, arg: Any) -> Any:
    """What is sent for an argument: itself, or the handle of an object that was made for it."""
    if not isinstance(arg, Given):
        return arg
    reply = adapter.build(f"given.{arg.kind}", [_made(adapter, inner) for inner in arg.args], {})
    if reply.error:
        raise RuntimeError(f"given.{arg.kind}: {reply.error['message']}")
    return {"handle": reply.value}
