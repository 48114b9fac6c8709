"""What a check tells: passed or not, which requirement, which mistake, and a message to read."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor

from transformer_lessons.checks.adapter import Reply
from transformer_lessons.checks.old.core import Given, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.judge import Finding

__all__ = ["Report", "counterexample", "scored", "write"]

WIDTH = 100
_SCORED: ContextVar[list | None] = ContextVar("_SCORED", default=None)


@dataclass(frozen=True)
class Report:
    """The outcome of a check; printing it prints the message.

    Attributes:
        task: the task's name.
        passed: whether all requirements are met.
        requirement: the id of the first requirement that is not met.
        misconception: the id of the known mistake that explains it, if one does.
        message: for the learner.
        also: further known mistakes made at the same time.
        deviation: the largest deviation from the right answer.
        where: the output or argument that deviates, with the index.
        counterexample: the smallest arguments found for which the answer is wrong, printed.
        link: the place in the book to read, an anchor.
        requirements: for each requirement, from basic to subtle, whether it is met.
    """

    task: str
    passed: bool
    requirement: str | None
    misconception: str | None
    message: str
    also: tuple[str, ...] = ()
    deviation: float | None = None
    where: str | None = None
    counterexample: str | None = None
    link: str | None = None
    requirements: dict[str, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def score(self, **points: float | int) -> float | int:
        """Points for partial credit: the sum of those whose requirement is met.

        Args:
            points: by requirement.

        Raises:
            ValueError: for a requirement that the task does not have.
        """
        unknown = points.keys() - self.requirements.keys()
        if unknown:
            raise ValueError(
                f"points: expected requirements {list(self.requirements)}, got {sorted(unknown)}"
            )
        if (kept := _SCORED.get()) is not None:
            kept.append((self, points))
        return sum(value for name, value in points.items() if self.requirements[name])


@contextmanager
def scored() -> Iterator[list[tuple[Report, dict[str, float]]]]:
    """Yields a list that fills with the reports that are scored within, each with the points it was asked for.

    A pitfall: a report that nobody scores is not among them.
    """
    kept: list = []
    token = _SCORED.set(kept)
    try:
        yield kept
    finally:
        _SCORED.reset(token)


def write(
    task: Task, requirement: Requirement, finding: Finding, mistakes: list[Mistake], example: str | None
) -> str:
    """The message: what is required, what happened, which mistake that is, and where to read."""
    parts = [
        f"{task.name}: not there yet.",
        _wrap("Required: " + requirement.sentence),
        _wrap("What happened: " + finding.text),
    ]
    for mistake in mistakes[:1]:
        parts.append(_wrap(f"Known mistake: {mistake.name}. {mistake.symptom}"))
    for mistake in mistakes[1:]:
        parts.append(_wrap(f"After that: {mistake.name}."))
    if example:
        parts.append("Smallest case found:\n" + textwrap.indent(example, "  "))
    anchor = mistakes[0].anchor if mistakes else requirement.anchor
    parts.append(f"Read: chapter {int(anchor[3:5])}, {anchor}")
    return "\n".join(parts)


def counterexample(task: Task, probe: Probe, got: Reply, want: Reply, finding: Finding) -> str:
    """A call with its arguments, and the output that went wrong beside the one expected."""
    lines = [f"{name} = {show(value)}" for name, value in _named(task, probe)]
    if finding.output is None or got.error:
        return "\n".join(lines)
    pick = (
        (lambda reply: reply.value[finding.output]) if len(task.returns) > 1 else (lambda reply: reply.value)
    )
    name = task.returns[finding.output]
    return "\n".join([*lines, f"{name}: expected {show(pick(want))}", f"{name}: got {show(pick(got))}"])


def show(value: object) -> str:
    """A value in one line: small tensors as nested lists with their shape, large ones by their shape."""
    if isinstance(value, Given):
        return f"a {value.kind}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if not isinstance(value, Tensor):
        return str(value)
    if value.numel() > 12:
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return f"{_numbers(value.tolist())}  {tuple(value.shape)}"


def _numbers(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_numbers(item) for item in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _named(task: Task, probe: Probe) -> list[tuple[str, object]]:
    given = list(zip(task.arguments, probe.args, strict=False)) + list(probe.kwargs.items())
    if probe.build is not None:
        options = [f"{name}={value!r}" for name, value in probe.build.kwargs.items()]
        made = ", ".join([*map(repr, probe.build.args), *options])
        given = [("module", f"{task.signature.partition('(')[0]}({made})"), *given]
    return [(name, value) for name, value in given if value is not None]


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
