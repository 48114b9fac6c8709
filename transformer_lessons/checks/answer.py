"""An answer to a task, wherever it runs, and what it shows on a call."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Given, Task
from transformer_lessons.checks.learner.adapter import Adapter, Reply, leaves
from transformer_lessons.checks.learner.local import Local
from transformer_lessons.checks.seen import EDITED, WEIGHTS, Outcome, alike, same_value
from transformer_lessons.checks.states import Link, State, matchings

MOST_NAMINGS = 32  # the most that are tried


class Answer:
    """An answer to a task, called through an adapter.

    Args:
        task: the task that it answers.
        candidate: a function or class, or an `Adapter` to where it runs.

    Attributes:
        adapter: the adapter to where it runs.
        name: what it is called where it runs, as far as known.
        naming: the number of the way to load weights under other names that fits it; see `find_naming`.
        missing: a wanted weight of a part that it does not have, where names are not free.
    """

    def __init__(self, task: Task, candidate: Any):
        self.task, self.naming = task, 0
        name = getattr(candidate, "__qualname__", "")
        self.name, self.missing = name if name.isidentifier() else task.public_name, ""
        is_there = isinstance(candidate, Adapter)
        self.adapter = candidate if is_there else Local({task.name: candidate})

    def run(self, call: Call) -> Outcome:
        """What it shows on a call: its value, with gradients if asked for, or how much memory it used."""
        target, own, links = self.task.name, {}, []
        if call.init is not None:
            reply, own, links = self._built(call)
            if reply.error:
                return _failed(reply)
            target = reply.value
        if call.method == "state":
            state = self.adapter.state(target)
            return self._outcome(call, state, [state.parameters])
        target = f"{target}.{call.method}" if call.method else target
        args, kwargs = self._sent(call.args), self._sent(call.kwargs)
        ask = self.adapter.vjp if call.backward or call.limits else self.adapter.call
        reply = ask(target, args, kwargs, meter=bool(call.limits))
        if reply.error:
            return _failed(reply)
        if call.same_as:
            return _compare(call, reply, self.adapter.call(target, self._sent(call.same_as), kwargs))
        weights = [self.adapter.state(args[n]["handle"]).value for n in call.weights_after]
        outcome = self._outcome(call, reply, weights)
        if not call.backward:
            return outcome
        names = {wanted: name for link in links for wanted, name in link.names().items()}
        return replace(outcome, gradients=self._gradients(call, reply, own, links), names=names)

    def find_naming(self, call: Call, right: Outcome) -> None:
        """Choose the first way to load weights under other names that makes a call right, else the first."""
        made = self._new(call)
        state = made if made.error else self.adapter.state(made.value)
        if not state.error and not self.task.roles:
            parts = {name.split(".")[0] for name in state.value}
            self.missing = next((name for name in call.state if name.split(".")[0] not in parts), "")
        ways = list(itertools.islice(self._matchings(state, call), MOST_NAMINGS))
        if len(ways) < 2:
            return

        def is_right(naming: int) -> bool:
            self.naming = naming
            return same_value(self.run(call), right)

        fitting = [number for number, links in enumerate(ways) if links] or [0]
        self.naming = next(filter(is_right, fitting), fitting[0])

    def _matchings(self, state: Reply, call: Call) -> Iterator[list[Link]]:
        return matchings(_tensors(state), call.state, self.task.roles, state.parameters)

    def _new(self, call: Call) -> Reply:
        """A new object of the answer's class; the reply's value is its handle."""
        return self.adapter.build(self.task.name, self._sent(call.init), self._sent(call.options))

    def _built(self, call: Call) -> tuple[Reply, State, list[Link]]:
        """An object with the call's weights, or an error; its initial weights; and the links between both."""
        made, own, links = self._new(call), {}, []
        if made.error:
            return made, own, links
        replies = []
        if call.state is not None:
            state = self.adapter.state(made.value)
            if state.error:  # the object is not a module
                return state, own, links
            own, ways = _tensors(state), self._matchings(state, call)
            links = next(itertools.islice(ways, self.naming, None), [])
            loaded = {name: part for link in links for name, part in link.load(own, call.state).items()}
            loading = self.adapter.load_state(made.value, loaded) if links else None
            replies.append(loading or _mismatch(own, call.state))
        replies.append(self.adapter.train(made.value, call.training))
        replies += [self.adapter.call(made.value, list(args), {}) for args in call.earlier]
        return next((reply for reply in replies if reply.error), made), own, links

    def _sent(self, arg: Any) -> Any:
        """What is sent for an argument: plain values, or the handle of an object that was made for it."""
        if isinstance(arg, list | tuple):
            return [self._sent(item) for item in arg]
        if isinstance(arg, dict):
            return {str(name): self._sent(item) for name, item in arg.items()}
        if not isinstance(arg, Given):
            return arg
        reply = self.adapter.build(f"given.{arg.kind}", [self._sent(inner) for inner in arg.args], {})
        if reply.error:
            raise RuntimeError(f"given.{arg.kind}: {reply.error['message']}")
        return {"handle": reply.value}

    def _outcome(self, call: Call, reply: Reply, weights: Sequence[State] = ()) -> Outcome:
        if reply.error:
            return _failed(reply)
        if call.limits:
            return _check_memory(call, reply)
        edited = tuple(map(self._name, reply.mutated))
        viewed = _apply_view(call.view, [reply.value, *weights] if call.weights_after else reply.value)
        if call.edits:
            viewed = {EDITED: list(edited), "value": viewed if call.view else None}
        return Outcome(viewed, edited=edited, outputs=reply.value)

    def _gradients(self, call: Call, reply: Reply, own: State, links: list[Link]) -> dict[str, Tensor]:
        """Gradients of arguments and wanted parameters: zero where none arrives, {} if no result has any."""
        if not any(reply.attached):
            return {}
        given = {**leaves(list(call.args)), **leaves(call.kwargs)}
        gradients = {
            self._name(path): torch.zeros_like(given[path]) if gradient is None else gradient
            for path, gradient in reply.gradients.items()
        }
        flows = {name: torch.zeros_like(tensor) for name, tensor in own.items()}  # a buffer keeps its zeros
        flows |= {name: g for name, g in reply.parameters.items() if g is not None}
        for link in links:
            gradients |= link.gradients(flows, call.state)
        return gradients

    def _name(self, path: str) -> str:
        """The path of an argument, with its name for its number: “0.1” is a part of the first argument."""
        first, *rest = path.split(".")
        names = dict(zip(map(str, itertools.count()), self.task.arguments, strict=False))
        return ".".join([names.get(first, first), *rest])


@lru_cache(maxsize=100)  # each keeps the modules that it built
def answer_from(task: Task, source: str) -> Answer:
    """The answer that a text defines."""
    return Answer(task, task.define(source))


def _failed(reply: Reply) -> Outcome:
    return Outcome(error=reply.error["type"], message=reply.error["message"], line=reply.error["line"])


def _tensors(state: Reply) -> State:
    """The weights and buffers in a reply; none for an error, as from an object that is not a module."""
    return {} if state.error else {n: t for n, t in state.value.items() if isinstance(t, Tensor)}


def _compare(call: Call, reply: Reply, other: Reply) -> Outcome:
    """Whether what counts is the same for the call's other arguments (`Call.same_as`)."""
    one, two = _apply_view(call.view, reply.value), _apply_view(call.view_as or call.view, other.value)
    same = {"the same": not other.error and alike(one, two)}
    return Outcome(one if isinstance(one, dict) and "instead" in one else same, outputs=reply.value)


def _check_memory(call: Call, reply: Reply) -> Outcome:
    """Whether 1.5 times the limits were enough and, if "saved" is limited, whether a gradient flows back."""
    used = {kind: (3 * most // 2, reply.memory[kind]) for kind, most in call.limits.items()}
    over = {kind: both for kind, both in used.items() if both[1] > both[0]}
    arrive = {"gradients": any(reply.attached)} if "saved" in call.limits else {}
    value = {**arrive, **{kind: kind not in over for kind in call.limits}}
    viewed = _apply_view(call.view, [reply.value, value]) if call.view else value
    return Outcome(viewed, memory=over, outputs=reply.value)


def _apply_view(view: Callable[[Any], Any] | None, value: Any) -> Any:
    """What a view makes of a value; where it fails, the value as “instead”."""
    try:
        return view(value) if view else value
    except Exception:
        return {"instead": value}


def _mismatch(own: State, wanted: State) -> Reply:
    """A reply that says which weights do not match; no error if there are no matrices, perhaps on purpose."""
    for name in wanted:
        if name in own and own[name].shape != wanted[name].shape:
            message = f"{name} has shape {tuple(own[name].shape)}; expected {tuple(wanted[name].shape)}"
            return Reply(error={"type": WEIGHTS, "message": message, "line": ""})
    has, need = (Counter((*tensor.shape,) for tensor in state.values()) for state in (own, wanted))
    spare = [f"{n} of shape {(*x.shape,)}" for n, x in own.items() if not need[x.shape] + need[x.shape[::-1]]]
    unlike = [shape for shape in has | need if has[shape] != need[shape]]
    shapes = (" and ".join(f"{n[shape]} of shape {shape}" for shape in unlike or n) for n in (has, need))
    no_place = f"no expected weight fits its {' and '.join(spare)}"
    message = no_place if spare else f"it has {'; expected '.join(shapes)}"
    error = {"type": WEIGHTS, "message": f"weights cannot be loaded into it: {message}", "line": ""}
    return Reply(error=error if any(tensor.dim() > 1 for tensor in own.values()) else None)
