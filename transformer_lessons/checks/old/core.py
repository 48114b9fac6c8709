"""What a task consists of: requirements, the calls that probe them, a reference and known mistakes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.local import Local
from transformer_lessons.checks.old.probe import Build, Given, Probe, ask

__all__ = [
    "Build",
    "Draw",
    "Exam",
    "Given",
    "Mistake",
    "Probe",
    "Requirement",
    "Task",
    "exam",
    "small_exam",
]

Sizes = dict[str, int]


@dataclass(frozen=True)
class Requirement:
    """Something a right answer does. It is met if all of its probes show it.

    Attributes:
        id: a short name.
        sentence: what is required, for the learner.
        probes: the names of the probes that show it.
        anchor: where the book explains it.
        aspects: what is compared: "structure" alone, or by default values, and with them "gradients" (of the
            arguments), "parameters" (gradients of a module's), "dtype", "inputs" (left unchanged), "random"
            (generator not seeded), "saved", "largest" and "peak" (bytes, at most 1.5 times what is `enough`: the
            right answer's, unless the probe says otherwise).
    """

    id: str
    sentence: str
    probes: tuple[str, ...]
    anchor: str
    aspects: tuple[str, ...] = ("values",)


@dataclass(frozen=True, eq=False)
class Mistake:
    """A known wrong answer: the right one with some of its steps replaced.

    Attributes:
        id: a short name.
        name: one line to the learner: "you …".
        why: why people write it.
        symptom: what it looks like from outside.
        anchor: where the book explains it.
        variants: ways to write it; each maps names of steps to what stands there instead, mostly functions.
    """

    id: str
    name: str
    why: str
    symptom: str
    anchor: str
    variants: tuple[dict[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Everything a check needs to know about one public name.

    Attributes:
        name: the name, and what the learner's function is called.
        signature: how it is called, for messages.
        arguments: the names of its positional arguments.
        returns: the names of what it returns; several come as a tuple.
        reference: the right answer, in the package's own words.
        requirements: from basic to subtle.
        sizes: of the seed, the sizes of a probe; distinct primes.
        small: sizes to try for a counterexample, smallest first.
        probes: of sizes and random draws, all probes by name.
        steps: the parts of the right answer that mistakes replace.
        assemble: puts steps together to a function.
        mistakes: the catalogue.
        essential: a diagnosis must explain at least so many of the first probes; all of them unless given.
    """

    name: str
    signature: str
    arguments: tuple[str, ...]
    returns: tuple[str, ...]
    reference: Callable
    requirements: tuple[Requirement, ...]
    sizes: Callable[[int], Sizes]
    small: tuple[Sizes, ...]
    probes: Callable[[Sizes, "Draw"], dict[str, Probe]]
    steps: Any
    assemble: Callable[[Any], Callable]
    mistakes: tuple[Mistake, ...]
    essential: int | None = None

    def mistaken(self, *variants: dict[str, Any]) -> Callable:
        """The wrong implementation that makes these mistakes at once."""
        return self.assemble(
            replace(self.steps, **{k: v for variant in variants for k, v in variant.items()})
        )

    def local(self, candidate: Any) -> Local:
        """An adapter for a candidate in this process."""
        return Local({self.name: candidate})

    def observe(self, adapter: Adapter, probe: Probe) -> Reply:
        """Ask once."""
        reply = ask(adapter, self.name, probe)
        if probe.view is None or reply.error:
            return reply
        try:
            return replace(reply, value=probe.view(reply.value))
        except Exception:  # not the tensors that the view expects: compared, and refused, as they are
            # But a dict may be made up to look like what a view shows.
            return replace(reply, value={"opaque": "a dict"}) if isinstance(reply.value, dict) else reply

    def expect(self, probe: Probe) -> Reply:
        """What the right answer shows."""
        if probe.refused:
            return Reply(error={"type": "ValueError", "message": probe.refused, "line": ""})
        return self.observe(self.local(self.reference), probe)


class Draw:
    """Random arguments that depend on the seed alone; two decimals, so that they can be read in a message."""

    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Normally distributed."""
        return (
            torch.randn(*shape, generator=self._generator, dtype=torch.float64)
            .mul(100)
            .round()
            .div(100)
            .to(dtype)
        )

    def bias(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Likewise, but no products of the others add up to its negative: rounding would decide a ReLU there."""
        return (self.normal(*shape) + 5e-5).to(dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high − 1."""
        return torch.randint(low, high, shape, generator=self._generator)

    def mask(self, *shape: int) -> Tensor:
        """A mask in which each row shows one key at least and hides one, if it has two."""
        order = torch.rand(*shape, generator=self._generator).argsort(-1)
        shown = (shape[-1] + 1) // 2
        return order < shown


class Exam(dict[str, tuple[Probe, Reply]]):
    """The probes of a task by name, each with what the right answer shows.

    Attributes:
        kept: what known mistakes showed so far, by mistake and probe: most diagnoses ask the same again.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.kept: dict[tuple, Reply] = {}


@lru_cache(maxsize=128)
def exam(task: Task, seed: int) -> Exam:
    """All probes of a task for a seed, with what the right answer shows; kept, as many check with seed 0."""
    return Exam(_expected(task, task.sizes(seed), seed))


@lru_cache(maxsize=256)
def small_exam(task: Task, number: int) -> dict[str, tuple[Probe, Reply]]:
    """The probes of one of a task's small sizes, for counterexamples; kept, as most wrong answers need them."""
    return _expected(task, task.small[number], seed=0)


def _expected(task: Task, sizes: Sizes, seed: int) -> dict[str, tuple[Probe, Reply]]:
    """All probes of a task for given sizes, with what the right answer shows."""
    probes = task.probes(sizes, Draw(seed))
    return {name: _with_limits(task, name, probe, task.expect(probe)) for name, probe in probes.items()}


def _with_limits(task: Task, name: str, probe: Probe, want: Reply) -> tuple[Probe, Reply]:
    """Probe and reply both with the bytes that are enough, of what the requirements judge."""
    if not probe.meter:
        return probe, want
    judged = {aspect for r in task.requirements if name in r.probes for aspect in r.aspects}
    enough = {kind: probe.enough.get(kind, size) for kind, size in want.memory.items() if kind in judged}
    return replace(probe, enough=enough), replace(want, memory=enough)
