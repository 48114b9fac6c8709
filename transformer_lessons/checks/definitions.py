"""What a task consists of: the right answer's text, what is required of it, and the known changes of that text.

What is required, for how many points, and the known mistakes stand in ``mistakes/NAME.toml``, which reads like a
teacher's notes. A mistake is no second implementation but a change of the right answer's own text,
`"/ math.sqrt(d_k)"` to nothing, say: adding one takes no Python. A requirement also has a probe in
``catalogue/NAME.py``: the calls that show whether it is met.
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

__all__ = ["Call", "Draw", "Given", "Mistake", "Remark", "Requirement", "Task", "calls", "changed"]

Way = tuple[str, ...]  # old text, new text, old, new, …


@dataclass(frozen=True)
class Given:
    """An argument that is an object, such as a model: built where the answer lives, from plain values.

    Attributes:
        kind: one of `given.BUILDERS`.
        args: what it is built from; may hold other ones.
        shown: how the message writes it, in Python; every small case needs it.
    """

    kind: str
    args: list
    shown: str = ""


@dataclass(frozen=True)
class Call:
    """One call of the answer with made-up arguments.

    Attributes:
        args, kwargs: the arguments: plain values, and `Given` objects at the top level of `args`.
        init, options: of a class, its constructor's arguments; None if the answer is a function.
        state: the weights to load into the object; None keeps those it was made with.
        training: the mode the object is in.
        method: what of the object is called, if not the object itself; "state" asks for its weights and buffers.
        earlier: calls of the object before the one that counts, each a tuple of arguments.
        weights_after: numbers of the `Given` arguments whose weights count, too, after the call: the value is a
            list of what was returned and of these.
        limits: bytes that are enough, by "saved" (for the backward pass, which there has to be), "largest" (of a
            tensor) or "peak", forwards and backwards: the value is, of each, whether no more than half as much
            again was used; a view sees a list of what was returned and of that.
        edits: what counts is which arguments were changed in place, and of the value what `view` sees.
        view: what counts of the value, if not all of it: its shape, or whether all of it is finite.
        same_as, view_as: other arguments, and what counts for them if not what `view` says: the value is then
            whether what counts of the answer is the same for both.
        setting: for the message, the line of Python that puts `state` into ``layer``.
        backward: gradients, and arguments left as they were, are judged in place of values (`Requirement`).
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
    """A call for each of these arguments; what else a `Call` has is the same for all."""
    return [Call(case, **shared) for case in cases]


Calls = list[Call] | Callable[["Draw"], list[Call]]
Probe = tuple[Calls, Iterable[Call]]  # a requirement's calls, and its small ones


@dataclass(frozen=True)
class Requirement:
    """Something that the task's text asks for, with its points. It is met if each of its calls shows it.

    Attributes:
        name: a short one, stable: results of grading refer to it.
        calls: a list, or a function that makes it of random numbers. Best where the other requirements are
            silent: with d_k = 1, nobody sees whether scores were scaled.
        small: calls of whole numbers for the message, the smallest first; the first that shows the fault is told.
        text: what is required, a clause for the message.
        points: what it is worth.
        anchor: where the book explains it.
        backward: whether gradients are judged (`Call.backward`).
        needs: a requirement that a constant meets, such as "all finite", counts only where this other one is met.
    """

    name: str
    calls: Calls
    small: Iterable[Call]
    text: str
    points: float
    anchor: str
    backward: bool = False
    needs: str = ""

    def drawn(self, draw: "Draw") -> list[Call]:
        """The calls, with these random numbers."""
        return self._judged(self.calls(draw) if callable(self.calls) else self.calls)

    @cached_property
    def cases(self) -> list[Call]:
        """The small calls, made when they are first needed: few answers need them."""
        return self._judged(self.small)

    def _judged(self, calls: Iterable[Call]) -> list[Call]:
        return [replace(call, backward=self.backward) for call in calls]


@dataclass(frozen=True)
class Remark:
    """What is worth saying to those whose answer is right and differs from the package's here; costs nothing."""

    text: str
    call: Call


@dataclass(frozen=True)
class Mistake:
    """A change of the right answer's text that people make.

    Attributes:
        name: a short one, stable.
        you: what was done, "you …", and what belongs there.
        why: why people do it.
        looks: what it looks like from outside.
        costs: the requirements that it costs.
        ways: to write it; in each, old and new texts in turn, all changed at once, wherever an old text stands.
        anchor: where the book explains it: without one, where it explains the first requirement that it costs.
        symptoms: under which of `symptoms.SYMPTOMS` the page lists it.
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
    """Everything that a check knows about one thing to be written.

    Attributes:
        name: as `checks.check` knows it; requirements and mistakes are in ``mistakes/NAME.toml``.
        right: the right answer, a function or class, after the parts that it is made of: their text is what
            mistakes change. What else it uses is found in the module of the last one.
        beyond: where the task asks for more than the package has, the change of its text that does it.
        probes: for each requirement, by its name, its `calls` and its `small` ones.
        results: the names of what it returns, if several.
        remarks: for right answers.
        roles: of a class, for each parameter the words that others have for it, as in "q query queries".
        broken: names of the mistakes in the program that learners repair; of these, any number is known together.
    """

    name: str
    right: Sequence[Callable]
    probes: dict[str, Probe]
    beyond: Way = ()
    results: tuple[str, ...] = ("",)
    remarks: tuple[Remark, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def public(self) -> str:
        """What the answer is called in its text."""
        return self.right[-1].__name__

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of its positional arguments, those of `forward` for a class."""
        named = inspect.signature(getattr(self.right[-1], "forward", self.right[-1])).parameters.values()
        return tuple(p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self")

    @cached_property
    def source(self) -> str:
        """The right answer's text."""
        text = "\n\n".join(inspect.getsource(part) for part in self.right)
        return changed(text, self.beyond) if self.beyond else text

    @cached_property
    def notes(self) -> dict[str, Any]:
        """``requirements`` and each mistake, as the teacher has them."""
        path = files("transformer_lessons.checks") / "mistakes" / f"{self.name}.toml"
        return tomllib.loads(path.read_text(encoding="utf-8"))

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """In the order in which a learner should look at them; ValueError if others are probed."""
        noted = self.notes["requirements"]
        if noted.keys() != self.probes.keys():
            raise ValueError(f"{self.name}: probes expected for {[*noted]}, got {[*self.probes]}")
        return tuple(Requirement(name, *self.probes[name], **entry) for name, entry in noted.items())

    @cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The known ones; ValueError if one costs a requirement that there is not."""
        required = self.notes["requirements"]
        noted = {name: entry for name, entry in self.notes.items() if name != "requirements"}
        for name, entry in noted.items():
            if unknown := set(entry["costs"]) - required.keys():
                raise ValueError(f"{self.name}: {name} costs {sorted(unknown)}, which is not required")
            entry.setdefault("anchor", required[entry["costs"][0]]["anchor"])
        return tuple(Mistake(name, **_tuples(entry)) for name, entry in noted.items())

    @property
    def total(self) -> float:
        """The points of all requirements."""
        return sum(requirement.points for requirement in self.requirements)

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """The right answer's text with each mistake, by its name, in each way to make it."""
        return {m.name: [changed(self.source, way) for way in m.ways] for m in self.mistakes}

    def points(self, names: Iterable[str]) -> float:
        """Those of some requirements."""
        return sum(requirement.points for requirement in self.requirements if requirement.name in set(names))

    def define(self, source: str) -> Any:
        """What a text defines, where the right answer's module defines the rest."""
        space = dict(vars(sys.modules[self.right[-1].__module__]))
        exec(program(source), space)
        return space[self.public]


class Draw:
    """Random arguments that depend on the seed alone, in float32."""

    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Normally distributed."""
        return torch.randn(*shape, generator=self._generator)

    def uniform(self, *shape: int) -> Tensor:
        """Between 0 and 1."""
        return torch.rand(*shape, generator=self._generator)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high − 1."""
        return torch.randint(low, high, shape, generator=self._generator)

    def mask(self, *shape: int) -> Tensor:
        """A mask in which each row shows a key at least, and hides one if it has two."""
        return self.uniform(*shape).argsort(-1) < (shape[-1] + 1) // 2


@lru_cache(maxsize=500)
def program(source: str) -> CodeType | None:
    """What Python makes of a text; None where two changes were made in lines that do not go together."""
    with suppress(SyntaxError):
        return compile(source, "<changed>", "exec")


def changed(source: str, *ways: Way) -> str | None:
    """The text after each way in turn, or None where an old text is not found or two of them overlap.

    A way's changes are made all at once: one after the other, the second could hit what the first has put in.
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
