"""Judges an answer by what it shows: as the right one, as a known change of it, or requirement by requirement.

An answer that shows on every call what a changed right answer shows *is* that mistake: it loses what the mistake
costs and nothing else. Any other answer is held against each requirement by itself.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Mistake, Requirement, Task, changed
from transformer_lessons.checks.learner.adapter import Adapter
from transformer_lessons.checks.observe import Seen, built, observe, same_gradients, same_value, tensors
from transformer_lessons.checks.states import translations

__all__ = ["Exam", "Verdict", "exam", "explained", "judge"]

LIKELIEST = 5  # one of a pair is among these
# Of texts with two mistakes: a number, not a time, so that points depend on no machine. It holds two seconds.
MOST_WORK, WORK_OF_A_TEXT = 5_600, 20  # and 1 for each parameter to be loaded
FEWEST_CALLS, SMALLEST_SHARE = 2, 0.75  # on which a mistake must be seen, to say that it looks like it


class Exam:
    """The calls of a task for one seed, and what each text shows on them: looked at when needed, once.

    Args:
        task: of which it is the exam.
        seed: of the arguments.

    Attributes:
        calls: each with the requirement that it shows.
    """

    def __init__(self, task: Task, seed: int):
        draw = Draw(seed)
        self.task = task
        self.calls = [(r, call) for r in task.requirements for call in r.drawn(draw)]
        self._shown: dict[tuple[str, int], Seen] = {}

    def shows(self, source: str, number: int) -> Seen:
        """What a text shows on a call."""
        if (source, number) not in self._shown:
            try:
                adapter = self.task.answer(source)
            except SyntaxError as error:
                raise ValueError(f"{self.task.name}: a change makes no Python of it: {source}") from error
            self._shown[source, number] = self.look(adapter, number)
        return self._shown[source, number]

    def right(self, number: int) -> Seen:
        """What the right answer shows."""
        return self.shows(self.task.source, number)

    def look(self, adapter: Adapter, number: int, naming: int = 0) -> Seen:
        """What an answer shows on a call."""
        requirement, call = self.calls[number]
        return look(self.task, adapter, requirement, call, naming)

    def same(self, number: int, a: Seen, b: Seen) -> bool:
        """Whether two answers show the same on a call."""
        return same_value(a, b) and (not self.calls[number][0].backward or same_gradients(a, b))

    def meets(self, number: int, seen: Seen) -> bool:
        """Whether the requirement of a call is met there, whatever else is wrong."""
        return meets(self.calls[number][0], seen, self.right(number))


def look(task: Task, adapter: Adapter, requirement: Requirement, call: Call, naming: int = 0) -> Seen:
    """What an answer shows on a call: values, or gradients too; or bytes, forwards and backwards."""
    backward = requirement.backward or bool(call.limits)
    return observe(adapter, task, call, backward=backward, naming=naming)


def meets(requirement: Requirement, seen: Seen, right: Seen) -> bool:
    """Whether what is seen is what is required. Where a ValueError is, no other error will do.

    Gradients of values that are wrong already, which is another requirement's affair, need only arrive, and be
    more than NaN.
    """
    if requirement.backward and same_value(seen, right):
        return same_gradients(seen, right)
    if requirement.backward:
        theirs = _arriving(right) & seen.gradients.keys()  # they may have no biases
        return (
            not seen.error and seen.edited == right.edited and _arriving(seen) >= (theirs or _arriving(right))
        )
    return same_value(seen, right) and (right.error != "ValueError" or seen.error == "ValueError")


def _arriving(seen: Seen) -> set[str]:
    flows = seen.gradients.items()
    return {name for name, gradient in flows if gradient.any() and not gradient.isnan().all()}


@lru_cache(maxsize=64)
def exam(task: Task, seed: int) -> Exam:
    """Kept, as most checks of a session have seed 0."""
    return Exam(task, seed)


@dataclass(frozen=True)
class Verdict:
    """What was found out about an answer.

    Attributes:
        lost: the names of the requirements that are not met.
        mistakes: the known ones that it makes, the first to be told first.
        like: a known one that is seen on most calls, if none was recognised.
        error: what it showed, if it shows nothing but errors.
        naming: which of the ways to load weights under other names fits it.
        returned: what it returns on every call in place of the tensors that are asked for, in words.
        more: how many other mistakes it makes, to be told when this one is repaired.
    """

    lost: tuple[str, ...]
    mistakes: tuple[Mistake, ...] = ()
    like: Mistake | None = None
    error: Seen | None = None
    naming: int = 0
    returned: str = ""
    more: int = 0

    def anchor(self, task: Task) -> str | None:
        """Where to read about it."""
        if self.mistakes:
            return self.mistakes[0].anchor
        return next((r.anchor for r in task.requirements if r.name in self.lost), None)


def judge(task: Task, adapter: Adapter, seed: int = 0) -> Verdict:
    """Look at an answer, and find out what it does wrong."""
    this = exam(task, seed)
    naming = _naming(this, adapter)
    seen = [this.look(adapter, number, naming) for number in range(len(this.calls))]
    return replace(explained(this, seen), naming=naming)


def explained(this: Exam, seen: list[Seen]) -> Verdict:
    """What is wrong with an answer that showed this on the calls."""
    task, names = this.task, [r.name for r in this.task.requirements]
    missed = {r.name for n, (r, _) in enumerate(this.calls) if not this.meets(n, seen[n])}
    lost = tuple(r.name for r in task.requirements if r.name in missed or r.needs in missed)
    if not missed:
        return Verdict(())
    # What a new object holds does not ask its methods, which may be stubs.
    asked = [n for n, (_, call) in enumerate(this.calls) if call.method != "state"]
    if all(seen[n].error for n in asked):
        kept = {r.name for r, call in this.calls if call.method == "state"} - missed
        return Verdict(tuple(name for name in names if name not in kept), error=seen[asked[0]])
    returned = _returned(this, seen)
    mistakes = _known(this, seen) or _broken(this, seen) or (() if returned else _pair(this, seen, missed))
    if not mistakes and returned:
        return Verdict(lost, returned=returned)
    if not mistakes:
        like = _like(this, seen)
        return Verdict(lost, like=like if like and lost[0] in like.costs else _like_here(this, seen, lost[0]))
    costs = {name for mistake in mistakes for name in mistake.costs}
    # To be recognised must never cost more than not to be.
    cheaper = [names_ for names_ in (tuple(n for n in names if n in costs), lost) if names_]
    told = sorted(mistakes, key=lambda mistake: min(map(names.index, mistake.costs)))
    shown = len(told) if len(told) <= 2 else 1
    return Verdict(min(cheaper, key=task.points), tuple(told[:shown]), more=len(told) - shown)


def _returned(this: Exam, seen: list[Seen]) -> str:
    """What comes back on every call in place of what is asked for, if it is always the same."""
    found = set()
    for number, one in enumerate(seen):
        right = this.right(number).outputs
        if not one.error and right is not None and this.calls[number][1].method != "state":
            found.add(_instead(one.outputs, right))
    return found.pop() if len(found) == 1 else ""


def _instead(outputs: Any, right: Any) -> str:
    if outputs is None:
        return "None: is there a return at the end?"
    if isinstance(outputs, dict) and outputs.keys() == {"opaque"}:
        return outputs["opaque"]
    if isinstance(right, Tensor):
        return "a list or tuple; one tensor is asked for" * isinstance(outputs, list)
    return "one tensor; several things are asked for" * (
        isinstance(right, list) and isinstance(outputs, Tensor)
    )


def _naming(this: Exam, adapter: Adapter) -> int:
    """The way to load weights under other names that makes the first call right; the first if none does."""
    number = next((n for n, (_, call) in enumerate(this.calls) if call.state is not None), None)
    if number is None:
        return 0
    call = this.calls[number][1]
    made = built(adapter, this.task, call)
    own = {} if made.error else tensors(adapter.state(made.value))
    ways = list(itertools.islice(translations(own, call.state, this.task.roles), 32)) if own else []
    if len(ways) < 2:
        return 0
    right = this.right(number)
    fitting = [w for w, links in enumerate(ways) if links] or [0]
    return next((w for w in fitting if same_value(this.look(adapter, number, w), right)), fitting[0])


def _fits(this: Exam, seen: list[Seen], source: str | None, order: Sequence[int] = ()) -> bool:
    numbers = order or range(len(seen))
    return source is not None and all(this.same(n, seen[n], this.shows(source, n)) for n in numbers)


def _known(this: Exam, seen: list[Seen]) -> tuple[Mistake, ...]:
    """The cheapest mistake that shows the same on every call, as a tuple of one, or none."""
    task = this.task
    fitting = [
        m for m in task.mistakes if any(_fits(this, seen, changed(task.source, way)) for way in m.ways)
    ]
    return tuple(sorted(fitting, key=lambda mistake: task.points(mistake.costs))[:1])


def _broken(this: Exam, seen: list[Seen]) -> tuple[Mistake, ...]:
    """The mistakes that are left in the program to be repaired, the fewest that explain all calls, or none."""
    made = [mistake for mistake in this.task.mistakes if mistake.name in this.task.broken]
    for count in range(2, len(made) + 1):
        for some in itertools.combinations(made, count):
            for ways in itertools.product(*(mistake.ways for mistake in some)):
                # In one order or another: a change may take away the text that the next one looks for.
                orders = (changed(this.task.source, *order) for order in itertools.permutations(ways))
                source = next(filter(None, orders), None)
                if source and _is_python(source) and _fits(this, seen, source):
                    return some
    return ()


def _pair(this: Exam, seen: list[Seen], missed: set[str]) -> tuple[Mistake, ...]:
    """One of the likeliest mistakes together with any other, the cheapest two, or none."""
    task = this.task
    # Where two hide each other, agreement is nothing for both: those that cost what is missed come first.
    wrong = _wrong(this, seen)
    rank = {m.name: (-_agreement(this, seen, wrong, m)[0], missed.isdisjoint(m.costs)) for m in task.mistakes}
    likely = sorted(task.mistakes, key=lambda mistake: rank[mistake.name])[:LIKELIEST]
    fitting, tried = [], set()
    parameters = max(len(call.state or ()) for _, call in this.calls)
    for one, other, source, order in _pairs(this, seen, likely):
        if len(tried) == MOST_WORK // (WORK_OF_A_TEXT + parameters):
            break
        if source not in tried and _is_python(source) and _fits(this, seen, source, order):
            fitting.append((one, other))
        tried.add(source)
    return min(fitting, key=lambda two: _together(task, two), default=())


def _together(task: Task, two: tuple[Mistake, ...]) -> tuple[float, float]:
    """What they cost; of those that cost the same, first the ones that share least."""
    return task.points({c for m in two for c in m.costs}), sum(task.points(m.costs) for m in two)


def _pairs(
    this: Exam, seen: list[Seen], likely: list[Mistake]
) -> Iterator[tuple[Mistake, Mistake, str, list[int]]]:
    """Two mistakes, the text with both, and the calls, those that the first one does not explain in front."""
    right = this.task.source
    for one, a in [(mistake, way) for mistake in likely for way in mistake.ways]:
        alone = changed(right, a)
        order = sorted(range(len(seen)), key=lambda n: _fits(this, seen, alone, [n]))
        for other, b in [(mistake, way) for mistake in this.task.mistakes for way in mistake.ways]:
            for source in {changed(right, a, b), changed(right, b, a)} - {None}:
                if one is not other:
                    yield one, other, source, order


def _is_python(source: str) -> bool:
    """Two changes may be made in lines that do not go together."""
    try:
        compile(source, "<pair>", "exec")
    except SyntaxError:
        return False
    return True


def _agreement(this: Exam, seen: list[Seen], wrong: list[int], mistake: Mistake) -> tuple[int, float]:
    """How many of the wrong calls a mistake explains, and their share of those where it shows; its best way."""
    return max(_way_agreement(this, seen, wrong, changed(this.task.source, way)) for way in mistake.ways)


def _way_agreement(this: Exam, seen: list[Seen], wrong: list[int], source: str | None) -> tuple[int, float]:
    agree = source is not None and sum(this.same(n, seen[n], this.shows(source, n)) for n in wrong)
    if not agree:
        return 0, 0.0
    shows = sum(not this.same(n, this.shows(source, n), this.right(n)) for n in range(len(seen)))
    return agree, agree / max(1, shows)


def _wrong(this: Exam, seen: list[Seen]) -> list[int]:
    """The calls on which a mistake can be seen; an error tells little."""
    return [n for n, one in enumerate(seen) if not one.error and not this.same(n, one, this.right(n))]


def _like(this: Exam, seen: list[Seen]) -> Mistake | None:
    """A mistake whose effect is seen on most of the calls where it has one."""
    wrong = _wrong(this, seen)
    agreements = [(_agreement(this, seen, wrong, mistake), mistake) for mistake in this.task.mistakes]
    (calls, share), mistake = max(agreements, key=lambda pair: pair[0], default=((0, 0.0), None))
    return mistake if calls >= FEWEST_CALLS and share >= SMALLEST_SHARE else None


def _like_here(this: Exam, seen: list[Seen], name: str) -> Mistake | None:
    """The cheapest mistake that shows the same on every call of one requirement, whatever happens elsewhere."""
    here = [n for n, (r, _) in enumerate(this.calls) if r.name == name and not seen[n].error]
    if all(this.same(n, seen[n], this.right(n)) for n in here):
        return None
    fitting = [
        mistake
        for mistake in this.task.mistakes
        if name in mistake.costs
        and any(_fits(this, seen, changed(this.task.source, way), here) for way in mistake.ways)
    ]
    return min(fitting, key=lambda mistake: this.task.points(mistake.costs), default=None)
