"""The definition of a task: the right answer's text, its requirements, and the known changes of that text.

The requirements, their points and the known mistakes are in ``mistakes/NAME.toml``, a teacher's notes. A mistake
is a change of the right answer's text, such as `"/ math.sqrt(d_k)"` to nothing, so to add one takes no Python;
``[scale.no_scale]`` costs `scale`. The calls that show whether a requirement is met are in ``catalogue/NAME.py``.
"""

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from types import CodeType
from typing import Any

import torch
from torch import Tensor

Way = tuple[str, ...]  # one way to write a mistake: old text, new text, old, new, …


@dataclass(frozen=True)
class Given:
    """An argument that is an object, such as a model: built from plain values where the answer runs.

    Attributes:
        kind: a key of `given.BUILDERS`.
        args: the arguments of that builder; may contain other `Given` objects.
        expression: the Python expression that the message prints for it; every small case needs it.
    """

    kind: str
    args: list
    expression: str = ""


@dataclass(frozen=True)
class Call:
    """One call of the answer with made-up arguments, and what counts of its outcome.

    Attributes:
        args, kwargs: the arguments: plain values, and `Given` objects at the top level of `args`.
        init, options: for a class, its constructor's arguments; `init` is None if the answer is a function.
        state: the weights to load into the object; None keeps its initial ones.
        training: whether the object is in training mode.
        method: the method to call; "" calls the object itself, "state" asks for its weights and buffers.
        earlier: argument tuples for calls of the object before the one that counts.
        weights_after: positions in `args` of `Given` objects whose weights after the call count, too: the
            value is a list of what was returned and of these weights; for "state", of it and its names.
        limits: the bytes that suffice, by "saved" (for the backward pass; a gradient must flow back, too),
            "largest" (tensor made) or "peak", both forwards and backwards. The value says for each whether at
            most 1.5 times that much was used; `view` gets a list of what was returned and of this.
        edits: what counts is which arguments were changed in place, and what `view`, if given, returns.
        view: maps the value to what counts, such as its shape or whether all of it is finite; None for all.
        same_as, view_as: other arguments, and the view of their result where it is not `view`: the value is
            then whether the two results look the same through their views.
        setting: for the message, the lines of Python that put `state` into ``layer``.
        backward: judge gradients, and that arguments are unchanged, not values; set by `Requirement`.
    """

    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    init: tuple | None = None
    options: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Tensor] | None = None
    training: bool = False
    method: str = ""
    earlier: tuple[tuple, ...] = ()
    weights_after: tuple[int, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    edits: bool = False
    view: Callable[[Any], Any] | None = None
    same_as: tuple | None = None
    view_as: Callable[[Any], Any] | None = None
    setting: str = ""
    backward: bool = False


def calls(*cases: tuple, **shared: Any) -> list[Call]:
    """A `Call` for each tuple of arguments; `shared` are the fields that are the same for all."""
    return [Call(case, **shared) for case in cases]


Calls = list[Call] | Callable[["Draw"], list[Call]]
Probe = tuple[Calls, Iterable[Call]]  # `calls` and `small` of a requirement


@dataclass(frozen=True)
class Requirement:
    """Something that the task's text asks for, with its points. It is met if each of its calls shows that.

    Attributes:
        name: short and stable: results of grading refer to it.
        calls: a list, or a function that draws it at random. Best are calls on which the other requirements
            make no difference: with d_k = 1, nobody sees whether scores were scaled.
        small: calls of whole numbers, smallest first; the message prints the first that shows the fault.
        text: what is required, a clause for the message.
        points: what it is worth.
        anchor: where the book explains it.
        backward: whether gradients are judged (`Call.backward`).
        needs: a requirement without which this one does not count, as a constant meets it, e.g. "all finite".
    """

    name: str
    calls: Calls
    small: Iterable[Call]
    text: str
    points: float
    anchor: str
    backward: bool = False
    needs: str = ""

    def draw_calls(self, draw: "Draw") -> list[Call]:
        """The calls, with random numbers from `draw`."""
        return self._judged(self.calls(draw) if callable(self.calls) else self.calls)

    @cached_property
    def cases(self) -> list[Call]:
        """The small calls, made on first use: few answers need them."""
        return self._judged(self.small)

    def _judged(self, calls: Iterable[Call]) -> list[Call]:
        return [replace(call, backward=self.backward) for call in calls]


@dataclass(frozen=True)
class Remark:
    """A comment on a right answer that differs from the package's on a call; it costs nothing."""

    text: str
    call: Call


@dataclass(frozen=True)
class Mistake:
    """A mistake that people make, as a change of the right answer's text.

    Attributes:
        name: short and stable.
        you: what the learner did, "you …", and what is right instead.
        why: why people do it.
        looks: what it looks like from outside.
        costs: the names of the requirements that it costs.
        ways: the ways to write it; in each, old and new texts alternate, all replaced at once, everywhere.
        anchor: where the book explains it; if not noted, that of the first requirement that it costs.
        symptoms: the keys of `symptoms.SYMPTOMS` under which the book's page of mistakes lists it.
    """

    name: str
    you: str
    why: str
    looks: str
    costs: tuple[str, ...]
    ways: tuple[Way, ...]
    anchor: str
    symptoms: tuple[str, ...] = ("right shape, wrong numbers",)


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a check knows about one function or class that learners write.

    Attributes:
        name: the name for `checks.check`; requirements and mistakes are in ``mistakes/NAME.toml``.
        solution: the right answer, a function or class, after the parts that it is made of: mistakes change
            the text of all of these. Whatever else it uses is found in the module of the last one.
        extension: the change of the package's text where the task asks for more than the package has.
        probes: for the name of each requirement, its `calls` and its `small` ones.
        results: the names of the values returned, if there are several.
        remarks: comments on right answers.
        roles: for a class, the words that learners may use for each parameter, as in "q query queries".
        planted: names of the mistakes in the program that learners repair; any set of them is recognised.
    """

    name: str
    solution: Sequence[Callable]
    probes: dict[str, Probe]
    extension: Way = ()
    results: tuple[str, ...] = ("",)
    remarks: tuple[Remark, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)
    planted: tuple[str, ...] = ()

    @property
    def public_name(self) -> str:
        """The name under which the answer is defined."""
        return self.solution[-1].__name__

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of its positional arguments; for a class, those of `forward`."""
        named = inspect.signature(getattr(self.solution[-1], "forward", self.solution[-1])).parameters
        return tuple(p.name for p in named.values() if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self")

    @cached_property
    def source(self) -> str:
        """The right answer's text."""
        text = "\n\n".join(inspect.getsource(part) for part in self.solution)
        return changed(text, self.extension) if self.extension else text

    @cached_property
    def notes(self) -> dict[str, Any]:
        """``requirements`` and, for each of them, the mistakes that cost it, as in the TOML file."""
        path = files("transformer_lessons.checks") / "mistakes" / f"{self.name}.toml"
        return tomllib.loads(path.read_text(encoding="utf-8"))

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """The requirements, in the order to look at them; ValueError if the probes have other names."""
        noted = self.notes["requirements"]
        if noted.keys() != self.probes.keys():
            raise ValueError(f"{self.name}: expected probes for {[*noted]}, got {[*self.probes]}")
        return tuple(Requirement(name, *self.probes[name], **entry) for name, entry in noted.items())

    @cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The known mistakes; ValueError if one costs a requirement that does not exist."""
        required = self.notes["requirements"]
        noted = [(r, *pair) for r in self.notes for pair in self.notes[r].items() if r != "requirements"]
        for first, name, entry in noted:
            entry["costs"] = [first, *entry.pop("also", [])]
            if unknown := set(entry["costs"]) - required.keys():
                raise ValueError(f"{self.name}: {name} costs {sorted(unknown)}, not a requirement")
            entry.setdefault("anchor", required[first]["anchor"])
        return tuple(Mistake(name, **_tuples(entry)) for _, name, entry in noted)

    @property
    def total(self) -> float:
        """The points of all requirements."""
        return sum(requirement.points for requirement in self.requirements)

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """For each mistake's name, the right answer's text with that mistake, in each way to make it."""
        return {m.name: [changed(self.source, way) for way in m.ways] for m in self.mistakes}

    def points(self, names: Iterable[str]) -> float:
        """The points of the named requirements."""
        return sum(requirement.points for requirement in self.requirements if requirement.name in set(names))

    def define(self, source: str) -> Any:
        """Run a text with the globals of the right answer's module; return what it defines as the answer."""
        space = dict(vars(sys.modules[self.solution[-1].__module__]))
        exec(program(source), space)
        return space[self.public_name]


class Draw:
    """A source of random arguments that depend on the seed alone; floats are float32."""

    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(*shape, generator=self._generator)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers between 0 and 1."""
        return torch.rand(*shape, generator=self._generator)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Integers from low to high − 1."""
        return torch.randint(low, high, shape, generator=self._generator)

    def mask(self, *shape: int) -> Tensor:
        """A mask in which each row shows at least one key and, if it has two or more, hides at least one."""
        return self.uniform(*shape).argsort(-1) < (shape[-1] + 1) // 2


@lru_cache(maxsize=500)
def program(source: str) -> CodeType | None:
    """The compiled text; None if it is not valid Python because two changes do not go together."""
    with suppress(SyntaxError):
        return compile(source, "<changed>", "exec")


def changed(source: str, *ways: Way) -> str | None:
    """The text after one way after another; None where an old text is not found or two of them overlap.

    The changes of a way are made all at once: made one by one, the second could change what the first put in.
    """
    for way in ways:
        if any(old not in source for old in way[::2]):
            return None
        spans = [
            (found.start(), old, new)
            for old, new in zip(way[::2], way[1::2], strict=True)
            for found in re.finditer(re.escape(old), source)
        ]
        text, end = "", 0
        for start, old, new in sorted(spans):
            if start < end:
                return None
            text, end = text + source[end:start] + new, start + len(old)
        source = text + source[end:]
    return source


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
