"""What becomes of a file that was handed in, and which of several by one student counts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nbformat import NotebookNode

from exercises.autograder.intake.cells import bare
from exercises.autograder.intake.contents import shown
from exercises.autograder.intake.names import Sender

__all__ = ["Arrival", "Quarantined", "Received", "one_of_each"]

MOST_PATHS = 5  # that a sentence lists


@dataclass(frozen=True)
class Received:
    """A submission ready to be graded.

    Attributes:
        student: an id that can be the name of a folder.
        assignment: its name.
        path: where it came from, for people.
        notebook: of format 4.5, repaired.
        repairs: what was mended or guessed, one sentence each, for the student.
        timestamp: what nbgrader's `timestamp.txt` beside it says, if there is one.
        late: whether Canvas marks it as handed in late.
    """

    student: str
    assignment: str
    path: str
    notebook: NotebookNode
    repairs: tuple[str, ...] = ()
    timestamp: str | None = None
    late: bool = False


@dataclass(frozen=True)
class Quarantined:
    """A file that is not graded before somebody has looked at it.

    Attributes:
        path: where it came from, for people.
        student, assignment: whose and of what, as far as that is known.
        reason: what is wrong and what to do about it.
    """

    path: str
    student: str | None
    assignment: str | None
    reason: str


@dataclass(frozen=True, eq=False)
class Arrival:
    """A file, what its path says, and what became of it."""

    parts: tuple[str, ...]
    sender: Sender
    outcome: Received | Quarantined

    def put_aside(self, reason: str) -> "Arrival":
        """The same file, not to be graded."""
        known = self.outcome
        outcome = Quarantined(known.path, known.student, known.assignment, reason)
        return replace(self, outcome=outcome)


def one_of_each(arrivals: list[Arrival], assignments: dict[str, NotebookNode]) -> Iterator[Arrival]:
    """The same files in the same order, but of one student's notebooks of one assignment only one to be graded.

    A pitfall: only files that come together are compared; what was taken in before is not known here.
    """
    arrivals = list(_apart(arrivals))
    groups: dict[tuple[str, str], list[Arrival]] = {}
    for arrival in arrivals:
        if isinstance(arrival.outcome, Received):
            groups.setdefault((arrival.outcome.student, arrival.outcome.assignment), []).append(arrival)
    settled = {
        before: after
        for (_, assignment), group in groups.items()
        for before, after in zip(group, _settled(group, assignments[assignment]), strict=True)
    }
    for arrival in arrivals:
        yield settled.get(arrival, arrival)


def _apart(arrivals: list[Arrival]) -> Iterator[Arrival]:
    """Put aside whoever would get somebody else's id; not all systems tell capitals from small letters."""
    owners: dict[str, str] = {}
    for arrival in arrivals:
        raw, student = arrival.sender.raw, arrival.outcome.student
        owner = owners.setdefault(student.casefold(), raw) if isinstance(arrival.outcome, Received) else raw
        if owner == raw:
            yield arrival
        else:
            both = f"“{shown(raw)}” and “{shown(owner)}” would both be called “{student}” by the grader"
            yield arrival.put_aside(f"{both}. Give this student's file another name.")


def _settled(group: list[Arrival], released: NotebookNode) -> list[Arrival]:
    """Of one student's notebooks of one assignment the one that counts; none if that cannot be known."""
    if len(group) == 1:
        return group
    chosen, why = _chosen(group, released)
    if chosen:
        return [
            _counts(one, len(group), why) if one is chosen else _superseded(one, chosen, why) for one in group
        ]
    paths = [arrival.outcome.path for arrival in group]
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    which = f"Nothing tells which is the newest: {', '.join(paths[:MOST_PATHS])}{more}."
    reason = f"{which} Hand in only one. Different students need different names."
    return [arrival.put_aside(reason) for arrival in group]


def _chosen(group: list[Arrival], released: NotebookNode) -> tuple[Arrival | None, str]:
    """The one that counts, and why."""
    filled = [one for one in group if _is_filled(one.outcome.notebook, released)] or group
    if len(filled) == 1:
        return filled[0], "the others are not answered"
    if all(_texts(one) == _texts(filled[0]) for one in filled):
        return filled[0], "they say the same"
    return _newest(filled), "it is the newest"


def _newest(group: list[Arrival]) -> Arrival | None:
    orders = [arrival.sender.order for arrival in group]
    if None in orders or orders.count(max(orders)) > 1:
        return None
    return group[orders.index(max(orders))]


def _counts(arrival: Arrival, number: int, why: str) -> Arrival:
    said = f"There were {number} notebooks; {arrival.outcome.path} counts, because {why}."
    return replace(arrival, outcome=replace(arrival.outcome, repairs=(*arrival.outcome.repairs, said)))


def _superseded(arrival: Arrival, newest: Arrival, why: str) -> Arrival:
    return arrival.put_aside(f"Superseded: {newest.outcome.path} counts instead, because {why}.")


def _texts(arrival: Arrival) -> list[tuple[str, str]]:
    return [(cell.cell_type, bare(cell.source)) for cell in arrival.outcome.notebook.cells]


def _is_filled(notebook: NotebookNode, released: NotebookNode) -> bool:
    """Whether there is anything in it that was not handed out."""
    texts = {bare(cell.source) for cell in released.cells} | {""}
    return any(bare(cell.source) not in texts for cell in notebook.cells)
