"""What a test cell sees in place of the learner's functions and objects, which live in another process.

Called like themselves, or handed to `checks.check`. Gradients reach inputs and parameters, so that
`torch.autograd.gradcheck` works: going backwards calls once more in the other process, with the same seed (so
running statistics move twice). Callables, generators and the like cannot be passed as arguments; of attributes,
only methods are there.
"""

import builtins
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from exercises.autograder.running.remote import Connection, Remote, reply_of
from exercises.autograder.running.wire import WireError
from transformer_lessons.checks.adapter import Reply, leaves
from transformer_lessons.checks.plain import mapped

__all__ = ["LearnerError", "Name", "Object", "answered"]


class LearnerError(Exception):
    """An error of the learner's code, of a type that is not Python's own."""


class Name(Remote):
    """One of the learner's names: an `Adapter` for the checks, and called like what it stands for.

    Args:
        connection: to the process in which it is defined.
        name: what it is called there.
        is_class: whether calling it makes an object.
    """

    def __init__(self, connection: Connection, name: str, is_class: bool = False):
        super().__init__(connection, name)
        self._is_class = is_class

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the learner's function returns; raises the error that it raises."""
        if self._is_class:
            return Object(self._connection, _shown(self.build(self._name, _sent(args), kwargs)))
        return _call(self._connection, self._name, args, kwargs, {})

    def __repr__(self) -> str:
        return "?"  # a test may look for letters in it

    def __getattr__(self, attribute: str) -> "Name":
        return Name(self._connection, f"{self._name}.{_public(attribute)}")


class Object:
    """An object of one of the learner's classes; of a module also parameters, modes and weights.

    Args:
        connection: to the process in which it lives.
        handle: what it is called there.
    """

    def __init__(self, connection: Connection, handle: str):
        if type(handle) is not str:
            raise WireError("reply: no handle")
        self._connection, self.handle = connection, handle
        self._adapter = Remote(connection, handle)
        self._leaves: dict[str, Tensor] | None = (
            None  # the parameters here, and what they were when last sent
        )
        self._versions: dict[str, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The object, called."""
        return self._call("", args, kwargs)

    def __getattr__(self, attribute: str) -> Any:
        name = _public(attribute)
        return lambda *args, **kwargs: self._call(f".{name}", args, kwargs)

    def _call(self, method: str, args: tuple, kwargs: dict) -> Any:
        parameters = self._leaves or {}
        if not all(torch.equal(leaf, self._sent[name]) for name, leaf in parameters.items()):
            self.load_state_dict(self.state_dict() | {n: leaf.detach() for n, leaf in parameters.items()})
        return _call(self._connection, self.handle + method, args, kwargs, parameters)

    def state_dict(self) -> dict[str, Tensor]:
        """Weights and buffers, as they are there."""
        state = _shown(self._adapter.state(self.handle))
        if type(state) is not dict or not all(isinstance(value, Tensor) for value in state.values()):
            raise WireError("reply: no state")
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load all weights and buffers."""
        _shown(self._adapter.load_state(self.handle, dict(state)))
        self._leaves = None if self._leaves is None else self._updated(state)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Leaves of the graph here: gradients arrive in them, and changing them changes the module's."""
        if self._leaves is None:
            names = answered(self._connection.ask("names", [self.handle], {}))
            if type(names) is not list or not all(type(name) is str for name in names):
                raise WireError("reply: no names")
            state = self.state_dict()
            self._leaves = {name: state[name].requires_grad_() for name in names if name in state}
            self._remember()
        yield from self._leaves.items()

    def parameters(self) -> Iterator[Tensor]:
        """The same without names."""
        yield from (leaf for _, leaf in self.named_parameters())

    def train(self, mode: bool = True) -> "Object":
        """Into training mode."""
        _shown(self._adapter.train(self.handle, mode))
        return self

    def eval(self) -> "Object":
        """Into evaluation mode."""
        return self.train(False)

    def to(self, where: str | torch.dtype) -> "Object":
        """To a dtype or a device."""
        _shown(self._adapter.to(self.handle, str(where).removeprefix("torch.")))
        self._leaves = None
        return self

    def double(self) -> "Object":
        """To float64."""
        return self.to("float64")

    def _updated(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            for name, leaf in self._leaves.items():
                leaf.copy_(state[name])
        self._remember()
        return self._leaves

    def _remember(self) -> None:
        # Compared by value: gradcheck changes leaves without their version counting it.
        self._sent = {name: leaf.detach().clone() for name, leaf in self._leaves.items()}


def _call(
    connection: Connection, target: str, args: tuple, kwargs: dict, parameters: dict[str, Tensor]
) -> Any:
    """Call, with gradients if any are asked for."""
    sent = _sent(args)
    inputs = {path: x for path, x in {**leaves(sent), **leaves(kwargs)}.items() if x.requires_grad}
    if not torch.is_grad_enabled() or not (inputs or parameters):
        return _applied(connection, target, sent, kwargs)
    request = _Request(connection, target, sent, kwargs, list(inputs), list(parameters))
    flat = iter(_Attached.apply(request, *inputs.values(), *parameters.values()))
    return _as(request.reply.kind, mapped(request.reply.value, lambda *_: next(flat), ""))


def _applied(connection: Connection, target: str, args: list, kwargs: dict) -> Any:
    """Call; what the learner's code changed in place is changed here as well."""
    answer = answered(connection.ask("apply", [target, args, kwargs], {}))
    if type(answer) is not dict or answer.keys() != {"reply", "after"}:
        raise WireError("reply: other fields")
    reply = reply_of(answer["reply"])
    if type(answer["after"]) is list and len(answer["after"]) == 2:
        _take_over(args, answer["after"][0])
        _take_over(kwargs, answer["after"][1])
    return _as(reply.kind, _shown(reply))


def _take_over(mine: Any, theirs: Any) -> None:
    """Put into lists, dicts and tensors what they hold there, as far as it has the same form."""
    if isinstance(mine, Tensor):
        if isinstance(theirs, Tensor) and theirs.shape == mine.shape and theirs.dtype == mine.dtype:
            with torch.no_grad():
                _ = None if torch.equal(mine, theirs) else mine.copy_(theirs)
    elif isinstance(mine, dict) and isinstance(theirs, dict):
        for name in mine.keys() & theirs.keys():
            _take_over(mine[name], theirs[name])
    elif isinstance(mine, list) and isinstance(theirs, list):
        for one, other in zip(mine, theirs, strict=False):
            _take_over(one, other)
        scalars = [not isinstance(item, Tensor | list | dict) for item in mine]
        if len(mine) != len(theirs) or any(scalars):
            mine[:] = theirs


class _Request:
    """One call of which a gradient may be wanted later.

    Args:
        connection, target, args, kwargs: as of the call.
        inputs: the paths of the arguments that want gradients.
        parameters: the names of the parameters that do.
    """

    def __init__(self, connection, target, args, kwargs, inputs, parameters):
        self._adapter = Remote(connection, target.partition(".")[0])
        self._call = target, _detached(args), _detached(kwargs)
        self._inputs, self._parameters = inputs, parameters
        self.reply: Reply

    def forward(self) -> tuple[list[Tensor], list[bool]]:
        """The tensors returned, and which of them a gradient can flow back from."""
        self.reply = self._adapter.vjp(*self._call, [])
        _shown(self.reply)
        found = list(leaves(self.reply.value).values())
        if len(self.reply.attached) != len(found):
            raise WireError("reply: attached to other outputs")
        return found, self.reply.attached

    def backward(self, cotangents: list[Tensor], shapes: list[torch.Size]) -> list[Tensor | None]:
        """Gradients of inputs and parameters."""
        reply = self._adapter.vjp(*self._call, cotangents)
        _shown(reply)
        found = [reply.gradients.get(path) for path in self._inputs]
        found += [reply.parameters.get(name) for name in self._parameters]
        if any(g is not None and g.shape != shape for g, shape in zip(found, shapes, strict=True)):
            raise LearnerError("a gradient has another shape than what it is of")
        return found


class _Attached(torch.autograd.Function):
    """The node of the graph here that stands for the graph there."""

    @staticmethod
    def forward(ctx, request, *tensors):
        """Ask for the outputs."""
        found, attached = request.forward()
        ctx.request, ctx.shapes = request, [tensor.shape for tensor in tensors]
        ctx.mark_non_differentiable(*(x for x, flows in zip(found, attached, strict=True) if not flows))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx, *cotangents):
        """Ask for the gradients."""
        return None, *ctx.request.backward(list(cotangents), ctx.shapes)


def _detached(value: Any) -> Any:
    return mapped(value, lambda _, tensor: tensor.detach().clone(), "")


def _sent(args: tuple) -> list:
    """Arguments as the adapter takes them; tuples arrive as lists."""
    return [{"handle": arg.handle} if isinstance(arg, Object) else _lists(arg) for arg in args]


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def answered(value: Any) -> Any:
    """What was asked for, unless a `Reply` came instead: then there was an error, which is raised here."""
    if type(value) is dict and value.keys() == {field.name for field in fields(Reply)}:
        _shown(reply_of(value))
        raise WireError("reply: no answer")
    return value


def _shown(reply: Reply) -> Any:
    """The value, or the learner's error, raised here."""
    if not reply.error:
        return reply.value
    type_ = getattr(builtins, reply.error["type"], None)
    if not (isinstance(type_, type) and issubclass(type_, Exception)):
        raise LearnerError(f"{reply.error['type']}: {reply.error['message']}")
    try:
        error = type_(reply.error["message"])
    except TypeError:  # of the few that want more than a message
        error = LearnerError(f"{reply.error['type']}: {reply.error['message']}")
    raise error


def _as(kind: str, value: Any) -> Any:
    return tuple(value) if kind == "tuple" and isinstance(value, list) else value


def _public(attribute: str) -> str:
    if attribute.startswith("_"):
        raise AttributeError(attribute)
    return attribute
