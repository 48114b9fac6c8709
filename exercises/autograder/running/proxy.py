"""Stand-ins that a test cell sees for the learner's functions and objects, which live in another process.

They are called like the originals, or passed to `checks.check`. Gradients reach the tensor arguments: the
backward pass calls once more in the other process, with the same seed. Callables, generators and similar
objects cannot be arguments; of attributes only methods exist; only a check sees the gradients of parameters.
"""

import builtins
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from exercises.autograder.running.remote import REPLY_TYPES, Connection, reply_of
from exercises.autograder.running.wire import WireError
from transformer_lessons.checks.learner.adapter import Reply, is_opaque, items, leaves
from transformer_lessons.checks.learner.transfer import mapped


class LearnerError(Exception):
    """An error of the learner's code whose type is not Python's own, or cannot be raised here."""


def _remote_method(verb: str) -> Callable[..., Reply]:
    """An adapter method that has the other process's adapter do the work."""

    def ask(self: "Name", target: str, *args: Any, **kwargs: Any) -> Reply:
        return self._connection.reply(verb, self._remote_name(target), *args, **kwargs)

    return ask


class Name:
    """A stand-in for one of the learner's names: an `Adapter` for the checks, and callable like the original.

    The name is that in the learner's process; the name that a check uses does not matter.
    """

    build, call, vjp = map(_remote_method, ("build", "call", "vjp"))
    load_state, state, train = map(_remote_method, ("load_state", "state", "train"))

    def __init__(self, connection: Connection, name: str, is_class: bool = False):
        self._connection, self._name, self._is_class = connection, name, is_class

    def _remote_name(self, target: str) -> str:
        """The target's name over there: handles and given objects keep theirs, others get the learner's."""
        if "#" in target or target.startswith("given."):
            return target
        return ".".join([self._name, *target.split(".")[1:]])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the learner's function returns; raise the error that it raises."""
        if self._is_class:
            reply = self.build(self._name, _adapter_args(args), kwargs)
            return Object(self._connection, _unwrap(self._connection, self._name, reply))
        return _call(self._connection, self._name, args, kwargs)

    def __repr__(self) -> str:
        return "?"  # no letters, as a test may search the text for some

    def __getattr__(self, attribute: str) -> "Object":
        return getattr(Object(self._connection, self._name), attribute)


class Object:
    """A stand-in for an object of one of the learner's classes, or an attribute; a test can only call it."""

    def __init__(self, connection: Connection, target: str):
        if type(target) is not str:
            raise WireError("reply: expected a handle")
        self._connection, self.target = connection, target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the object or method."""
        return _call(self._connection, self.target, args, kwargs)

    def __getattr__(self, attribute: str) -> "Object":
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return Object(self._connection, f"{self.target}.{attribute}")

    def __bool__(self) -> bool:
        what = self.target.rpartition(".")[2]
        raise TypeError(f"{what}: a test can call the learner's objects, not read their values")

    def train(self, mode: bool = True) -> "Object":
        """Put a module into training mode."""
        _unwrap(self._connection, self.target, self._connection.reply("train", self.target, mode))
        return self

    def eval(self) -> "Object":
        """Put a module into evaluation mode."""
        return self.train(False)


def _call(connection: Connection, target: str, args: tuple, kwargs: dict) -> Any:
    """Call, with a backward pass if gradients are needed."""
    sent = _adapter_args(args)
    inputs = {path: x for path, x in {**leaves(sent), **leaves(kwargs)}.items() if x.requires_grad}
    if not inputs or not torch.is_grad_enabled():
        return _apply(connection, target, sent, kwargs)
    plain = [mapped(given, lambda _, tensor: tensor.detach().clone(), "") for given in (sent, kwargs)]

    def request_vjp(cotangents: list[Tensor]) -> Reply:
        reply = connection.reply("vjp", target, *plain, cotangents)
        _unwrap(connection, target, reply)
        return reply

    reply = request_vjp([])
    flat = iter(_RemoteGraph.apply(reply, request_vjp, list(inputs), *inputs.values()))
    return _as(reply.kind, mapped(reply.value, lambda *_: next(flat), ""))


class _RemoteGraph(torch.autograd.Function):
    """The node of the autograd graph here that represents the graph in the other process."""

    @staticmethod
    def forward(ctx, reply, request_vjp, paths, *inputs):
        """Return the tensors that arrived; mark those through which no gradient flows back."""
        found = list(leaves(reply.value).values())
        if len(reply.attached) != len(found):
            raise WireError("reply: expected to know of each output whether it is attached")
        ctx.request_vjp, ctx.paths = request_vjp, paths
        ctx.mark_non_differentiable(*(x for x, flows in zip(found, reply.attached, strict=True) if not flows))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx, *cotangents):
        """Ask the other process for the gradients."""
        arrived = ctx.request_vjp(list(cotangents)).gradients
        return None, None, None, *(arrived.get(path) for path in ctx.paths)


def _apply(connection: Connection, target: str, args: list, kwargs: dict) -> Any:
    """Call, and repeat here what the learner's code changed in place."""
    answer = unwrap_answer(connection, target, connection.ask("apply", [target, args, kwargs], {}))
    if type(answer) is not dict or answer.keys() != {"reply", "after"}:
        raise WireError("reply: expected the fields reply and after")
    reply = reply_of(answer["reply"])
    _copy_changes([args, kwargs], answer["after"])
    return _as(reply.kind, _unwrap(connection, target, reply))


def _copy_changes(mine: Any, theirs: Any) -> None:
    """Copy what lists and tensors hold there into those here, as far as they have the same form."""
    if isinstance(mine, Tensor):
        is_alike = isinstance(theirs, Tensor) and (theirs.shape, theirs.dtype) == (mine.shape, mine.dtype)
        if is_alike and not torch.equal(mine, theirs):
            with torch.no_grad():
                mine.copy_(theirs)
        return
    others = dict(items(theirs))
    for name, item in items(mine):
        _copy_changes(item, others.get(name))
    if isinstance(mine, list) and isinstance(theirs, list):
        scalars = [not isinstance(item, Tensor | list | dict) for item in mine]
        if len(mine) != len(theirs) or any(scalars):
            mine[:] = theirs


def _adapter_args(args: tuple) -> list:
    """The arguments in the form that the adapter takes."""
    return [{"handle": arg.target} if isinstance(arg, Object) else arg for arg in args]


def unwrap_answer(connection: Connection, target: str, value: Any) -> Any:
    """The value asked for; if a `Reply` came instead, there was an error, which is raised here."""
    if type(value) is dict and value.keys() == REPLY_TYPES.keys():
        _unwrap(connection, target, reply_of(value))
        raise WireError("reply: expected a value, got none")
    return value


def _unwrap(connection: Connection, target: str, reply: Reply) -> Any:
    """The reply's value; if it has an error of the learner's, that is raised here.

    What is wrong is noted as well: a test that catches every error says nothing of it.
    """
    name = target.partition("#")[0]
    if not reply.error:
        parts = (part for part in (reply.value, *dict(items(reply.value)).values()) if is_opaque(part))
        connection.noted += (f"{name}: no test can use what this returns, {part['opaque']}" for part in parts)
        return reply.value
    fallback = LearnerError(f"{reply.error['type']}: {reply.error['message']}")
    connection.noted.append(f"{name}: {fallback}")
    type_ = getattr(builtins, reply.error["type"], None)
    if not (isinstance(type_, type) and issubclass(type_, Exception)) or issubclass(type_, StopIteration):
        raise fallback  # StopIteration would end a test's loop early, so that it skips checks
    try:
        error = type_(reply.error["message"])
    except TypeError:  # a few types need more than a message
        error = fallback
    raise error


def _as(kind: str, value: Any) -> Any:
    return tuple(value) if kind == "tuple" and isinstance(value, list) else value
