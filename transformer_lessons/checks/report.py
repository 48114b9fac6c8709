"""The report of a check: right or not, which requirements are met, which mistake was made, and a message."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_SCORED: ContextVar[list | None] = ContextVar("_SCORED", default=None)


@dataclass(frozen=True)
class Report:
    """The outcome of a check; printing it prints the message.

    Attributes:
        task: the task's name.
        passed: whether all requirements are met.
        requirement: the name of the first requirement that is not met.
        misconception: the name of the known mistake that was made; None if none was recognised.
        message: for the learner.
        also: further known mistakes made at the same time.
        link: the anchor of the place in the book to read.
        requirements: for each requirement, whether it is met.
        worth: for each requirement, its points.
        html: the message for a notebook.
    """

    task: str
    passed: bool
    requirement: str | None
    misconception: str | None
    message: str
    also: tuple[str, ...] = ()
    link: str | None = None
    requirements: dict[str, bool] = field(default_factory=dict)
    worth: dict[str, float] = field(default_factory=dict)
    html: str = ""

    def __str__(self) -> str:
        return self.message

    def _repr_html_(self) -> str | None:
        return self.html or None

    def score(self, total: float | None = None, **points: float) -> float:
        """Return the points earned, for partial credit: the sum over the requirements that are met.

        Args:
            total: what all requirements are worth, by default the task's own points; unused with `points`.
            points: by requirement, to count only some of them, or in other proportions.

        Raises:
            ValueError: for a requirement that the task does not have.
        """
        if unknown := points.keys() - self.requirements.keys():
            raise ValueError(f"points: expected requirements {[*self.requirements]}, got {sorted(unknown)}")
        if not points:
            share = 1 if total is None else total / sum(self.worth.values())
            points = {name: value * share for name, value in self.worth.items()}
        if (kept := _SCORED.get()) is not None:
            kept.append((self, points))
        return round(sum(value for name, value in points.items() if self.requirements[name]), 9)


@contextmanager
def scored() -> Iterator[list[tuple[Report, dict[str, float]]]]:
    """Yield a list that collects the reports scored within the block, each with its points by requirement.

    A pitfall: a report whose `score` is never called is not in the list.
    """
    kept: list = []
    token = _SCORED.set(kept)
    try:
        yield kept
    finally:
        _SCORED.reset(token)
