"""The only interface between a check and a learner's code.

A check never touches a learner's object. It sends an adapter a few comprehensive requests, and gets for each
a `Reply` of plain values: tensors, numbers, booleans, None, strings, lists, and string-keyed dicts of them.
So the same check runs on a function in the same notebook (`local.Local`) and on one in another process.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True)
class Reply:
    """The reply to one request, in plain values only.

    Attributes:
        value: what was returned; tuples arrive as lists, anything unsendable as ``{"opaque": description}``.
        kind: the type of what was returned, in words: "tuple", "Tensor", "numpy.ndarray".
        error: None, or ``{"type", "message", "line"}`` of the exception (`line`: of the learner's source).
        attached: for each tensor returned, whether a gradient can flow back from it.
        gradients: for each floating-point argument (see `leaves`), its gradient; None if none arrives.
        parameters: likewise for each parameter of a module, under each of its names.
        mutated: the paths of the arguments that were changed in place.
        memory: if asked for, bytes: "saved" for the backward pass, of the "largest" tensor made (and its
            "shape"), and "peak", the most held at once, including the backward pass if there is one.
    """

    value: Any = None
    kind: str = "NoneType"
    error: dict[str, str] | None = None
    attached: list[bool] = field(default_factory=list)
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    parameters: dict[str, Tensor | None] = field(default_factory=dict)
    mutated: list[str] = field(default_factory=list)
    memory: dict[str, int | list[int]] = field(default_factory=dict)


@runtime_checkable
class Adapter(Protocol):
    """What a check may ask of a learner's code, wherever it runs.

    A `target` is a name that the learner defined, or a handle returned by `build`, optionally followed by
    ``.method``. An argument ``{"handle": HANDLE}`` stands for that object. `build` also makes what is in
    `given.BUILDERS`, as ``given.KIND``. Errors of the learner's code are never raised: they are in the reply.
    """

    def build(self, target: str, args: list, kwargs: dict) -> Reply:
        """Make an object, for example a module; the reply's value is its handle."""
        ...

    def call(self, target: str, args: list, kwargs: dict, *, meter: bool = False) -> Reply:
        """Call, with copies of the arguments, after seeding the random generator."""
        ...

    def vjp(
        self, target: str, args: list, kwargs: dict, cotangents: list | None = None, *, meter: bool = False
    ) -> Reply:
        """Call and go backwards in one request: gradients of the sum of outputs times cotangents.

        Without cotangents, each output is multiplied by numbers that all differ.
        """
        ...

    def load_state(self, handle: str, state: dict[str, Tensor]) -> Reply:
        """Load weights into a module; weights that are not named stay."""
        ...

    def state(self, handle: str) -> Reply:
        """The weights and buffers of a module, by name; `parameters` has each weight's name once."""
        ...

    def train(self, handle: str, mode: bool = True) -> Reply:
        """Put a module into training mode or, if `mode` is False, into evaluation mode."""
        ...


def leaves(value: Any, path: str = "") -> dict[str, Tensor]:
    """The tensors in lists and dicts, by path: the first argument is "0", a keyword "mask", nested "0.1"."""
    if isinstance(value, Tensor):
        return {path: value}
    found = {}
    for name, item in items(value):
        found.update(leaves(item, f"{path}.{name}" if path else name))
    return found


def is_handle(value: Any) -> bool:
    """Whether a value stands for an object that was built."""
    return isinstance(value, dict) and value.keys() == {"handle"}


def is_opaque(value: Any) -> bool:
    """Whether a value stands for something that cannot be sent."""
    return isinstance(value, dict) and value.keys() == {"opaque"}


def items(value: Any) -> Iterator[tuple[str, Any]]:
    """The items of a list or dict, by index or key as a string; nothing for any other value."""
    if isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(name), item) for name, item in value.items())
