"""What a test cell sees in place of the learner's functions and objects, which live in another process.

Called like themselves, or handed to `checks.check`. Gradients reach the tensors that were given: going backwards
calls once more in the other process, with the same seed. Callables, generators and the like cannot be passed as
arguments; of attributes, only methods are there; and what a module's parameters get, only a check sees.
"""

import builtins
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from exercises.autograder.running.remote import KINDS, Connection, reply_of
from exercises.autograder.running.wire import WireError
from transformer_lessons.checks.learner.adapter import Reply, items, leaves
from transformer_lessons.checks.learner.transfer import mapped


class LearnerError(Exception):
    """An error of the learner's code, of a type that is not Python's own."""


def _asks(verb: str) -> Callable[..., Reply]:
    """A method of an adapter that has the other process's adapter do it."""

    def ask(self: "Name", target: str, *args: Any, **kwargs: Any) -> Reply:
        return self._connection.reply(verb, self._known(target), *args, **kwargs)

    return ask


class Name:
    """One of the learner's names: an `Adapter` for the checks, and called like what it stands for.

    Args:
        connection: to the process in which it is defined.
        name: what it is called there; what a check calls it does not matter.
        is_class: whether calling it makes an object.
    """

    build, call, vjp = map(_asks, ("build", "call", "vjp"))
    load_state, state, train = map(_asks, ("load_state", "state", "train"))

    def __init__(self, connection: Connection, name: str, is_class: bool = False):
        self._connection, self._name, self._is_class = connection, name, is_class

    def _known(self, target: str) -> str:
        """Handles and given objects keep their names; anything else is what the check calls the learner's."""
        if "#" in target or target.startswith("given."):
            return target
        return ".".join([self._name, *target.split(".")[1:]])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the learner's function returns; raises the error that it raises."""
        if self._is_class:
            return Object(self._connection, _shown(self.build(self._name, _sent(args), kwargs)))
        return _called(self._connection, self._name, args, kwargs)

    def __repr__(self) -> str:
        return "?"  # a test may look for letters in it

    def __getattr__(self, attribute: str) -> "Object":
        return getattr(Object(self._connection, self._name), attribute)


class Object:
    """An object of one of the learner's classes, or an attribute of something, which a test can only call.

    Args:
        connection: to the process in which it lives.
        target: what it is called there.
    """

    def __init__(self, connection: Connection, target: str):
        if type(target) is not str:
            raise WireError("reply: no handle")
        self._connection, self.target = connection, target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The object, called."""
        return _called(self._connection, self.target, args, kwargs)

    def __getattr__(self, attribute: str) -> "Object":
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return Object(self._connection, f"{self.target}.{attribute}")

    def __bool__(self) -> bool:
        what = self.target.rpartition(".")[2]
        raise TypeError(f"{what}: a test can call what is the learner's, not look at its value")

    def train(self, mode: bool = True) -> "Object":
        """A module into training mode."""
        _shown(self._connection.reply("train", self.target, mode))
        return self

    def eval(self) -> "Object":
        """A module into evaluation mode."""
        return self.train(False)


def _called(connection: Connection, target: str, args: tuple, kwargs: dict) -> Any:
    """Call, with a way back for gradients if any are asked for."""
    sent = _sent(args)
    inputs = {path: x for path, x in {**leaves(sent), **leaves(kwargs)}.items() if x.requires_grad}
    if not inputs or not torch.is_grad_enabled():
        return _applied(connection, target, sent, kwargs)
    plain = [mapped(given, lambda _, tensor: tensor.detach().clone(), "") for given in (sent, kwargs)]

    def asked(cotangents: list[Tensor]) -> Reply:
        reply = connection.reply("vjp", target, *plain, cotangents)
        _shown(reply)
        return reply

    reply = asked([])
    flat = iter(_Attached.apply(reply, asked, list(inputs), *inputs.values()))
    return _as(reply.kind, mapped(reply.value, lambda *_: next(flat), ""))


class _Attached(torch.autograd.Function):
    """The node of the graph here that stands for the graph there."""

    @staticmethod
    def forward(ctx, reply, asked, paths, *inputs):
        """The tensors that came; some of them no gradient can flow back from."""
        found = list(leaves(reply.value).values())
        if len(reply.attached) != len(found):
            raise WireError("reply: attached to other outputs")
        ctx.asked, ctx.paths = asked, paths
        ctx.mark_non_differentiable(*(x for x, flows in zip(found, reply.attached, strict=True) if not flows))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx, *cotangents):
        """Ask for the gradients."""
        arrived = ctx.asked(list(cotangents)).gradients
        return None, None, None, *(arrived.get(path) for path in ctx.paths)


def _applied(connection: Connection, target: str, args: list, kwargs: dict) -> Any:
    """Call; what the learner's code changed in place is changed here as well."""
    answer = answered(connection.ask("apply", [target, args, kwargs], {}))
    if type(answer) is not dict or answer.keys() != {"reply", "after"}:
        raise WireError("reply: other fields")
    reply = reply_of(answer["reply"])
    _take_over([args, kwargs], answer["after"])
    return _as(reply.kind, _shown(reply))


def _take_over(mine: Any, theirs: Any) -> None:
    """Put into lists and tensors what they hold there, as far as it has the same form."""
    if isinstance(mine, Tensor):
        is_alike = isinstance(theirs, Tensor) and (theirs.shape, theirs.dtype) == (mine.shape, mine.dtype)
        if is_alike and not torch.equal(mine, theirs):
            with torch.no_grad():
                mine.copy_(theirs)
        return
    others = dict(items(theirs))
    for name, item in items(mine):
        _take_over(item, others.get(name))
    if isinstance(mine, list) and isinstance(theirs, list):
        scalars = [not isinstance(item, Tensor | list | dict) for item in mine]
        if len(mine) != len(theirs) or any(scalars):
            mine[:] = theirs


def _sent(args: tuple) -> list:
    """Arguments as the adapter takes them."""
    return [{"handle": arg.target} if isinstance(arg, Object) else arg for arg in args]


def answered(value: Any) -> Any:
    """What was asked for, unless a `Reply` came instead: then there was an error, which is raised here."""
    if type(value) is dict and value.keys() == KINDS.keys():
        _shown(reply_of(value))
        raise WireError("reply: no answer")
    return value


def _shown(reply: Reply) -> Any:
    """The value, or the learner's error, raised here."""
    if not reply.error:
        return reply.value
    told = LearnerError(f"{reply.error['type']}: {reply.error['message']}")
    type_ = getattr(builtins, reply.error["type"], None)
    if not (isinstance(type_, type) and issubclass(type_, Exception)) or issubclass(type_, StopIteration):
        raise told  # to stop an iteration of the test's would leave out what it looks at
    try:
        error = type_(reply.error["message"])
    except TypeError:  # of the few that want more than a message
        error = told
    raise error


def _as(kind: str, value: Any) -> Any:
    return tuple(value) if kind == "tuple" and isinstance(value, list) else value
