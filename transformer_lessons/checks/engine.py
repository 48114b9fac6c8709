"""Judges an answer by what it shows: as the right one, as a known change of it, or requirement by requirement.

An answer that shows on every call what a changed right answer shows *is* that mistake: it loses what the mistake
costs and nothing else. Any other answer is held against each requirement by itself.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from transformer_lessons.checks.answer import Answer
from transformer_lessons.checks.definitions import Call, Mistake, Task, changed, program
from transformer_lessons.checks.exam import Exam, exam_of
from transformer_lessons.checks.seen import Seen, meets, same, varies
from transformer_lessons.checks.words import instead

__all__ = ["Diagnosis", "Verdict", "judge"]

LIKELIEST = 5  # one of a pair is among these
# Of texts with two mistakes: a number, not a time, so that points depend on no machine. It holds two seconds.
MOST_WORK, WORK_OF_A_TEXT = 5_600, 20  # and 1 for each parameter to be loaded
FEWEST_CALLS, SMALLEST_SHARE = 2, 0.75  # on which a mistake must be seen, to say that it looks like it


@dataclass(frozen=True)
class Verdict:
    """What was found out about an answer.

    Attributes:
        lost: the names of the requirements that are not met.
        mistakes: the known ones that it makes, the first to be told first.
        like: a known one that is seen on most calls, if none was recognised.
        error: what it showed, if it shows nothing but errors.
        returned: what it returns on every call in place of the tensors that are asked for, in words.
        more: how many other mistakes it makes, to be told when this one is repaired.
    """

    lost: tuple[str, ...]
    mistakes: tuple[Mistake, ...] = ()
    like: Mistake | None = None
    error: Seen | None = None
    returned: str = ""
    more: int = 0

    def anchor(self, task: Task) -> str | None:
        """Where to read about it."""
        if self.mistakes:
            return self.mistakes[0].anchor
        return next((r.anchor for r in task.requirements if r.name in self.lost), None)


def judge(answer: Answer, seed: int = 0) -> Verdict:
    """Look at an answer, which finds its naming, and find out what it does wrong."""
    exam = exam_of(answer.task, seed)
    for number, (_, call) in enumerate(exam.calls):
        if call.state is not None:
            answer.find_naming(call, exam.right(number))
            break
    return Diagnosis(exam, [answer.shows(call) for _, call in exam.calls]).verdict()


class Diagnosis:
    """What is wrong with an answer.

    Args:
        exam: of its task.
        seen: what it showed on each of the calls.
    """

    def __init__(self, exam: Exam, seen: list[Seen]):
        self._exam, self._task, self._texts, self._seen = exam, exam.task, exam.task.texts, seen
        # Where the answer is wrong comes first: there most mistakes show something else, and are soon ruled out.
        self._all = sorted(range(len(seen)), key=lambda n: self._fits_on(exam.task.source, n))

    def verdict(self) -> Verdict:
        """The mistakes that it is, what they are worth, or what it is like."""
        missed, requirements = self._missed, self._task.requirements
        if not missed:
            return Verdict(())
        lost = tuple(r.name for r in requirements if r.name in missed or r.needs in missed)
        # What a new object holds does not ask its methods, which may be stubs.
        asked = [n for n in sorted(self._all) if self._call(n).method != "state"]
        if all(self._seen[n].error for n in asked):
            kept = {r.name for r, call in self._exam.calls if call.method == "state"} - missed
            return Verdict(
                tuple(r.name for r in requirements if r.name not in kept), error=self._seen[asked[0]]
            )
        returned = self._returned(asked)
        tells_two = not returned and any(varies(self._seen[n].outputs) for n in self._wrong)
        if mistakes := self._one() or self._several() or (self._pair() if tells_two else ()):
            return self._recognised(mistakes, lost)
        return Verdict(lost, returned=returned, like=None if returned else self._like(lost[0]))

    def _recognised(self, mistakes: tuple[Mistake, ...], lost: tuple[str, ...]) -> Verdict:
        """What the mistakes cost, which must never be more than without them."""
        names = [r.name for r in self._task.requirements]
        costs = {name for mistake in mistakes for name in mistake.costs}
        cheaper = min(tuple(n for n in names if n in costs) or lost, lost, key=self._task.points)
        told = sorted(mistakes, key=lambda mistake: min(map(names.index, mistake.costs)))
        shown = len(told) if len(told) <= 2 else 1
        return Verdict(cheaper, tuple(told[:shown]), more=len(told) - shown)

    @cached_property
    def _missed(self) -> set[str]:
        """The requirements that are not met by themselves."""
        calls = enumerate(self._exam.calls)
        return {r.name for n, (r, call) in calls if not meets(call, self._seen[n], self._exam.right(n))}

    @cached_property
    def _wrong(self) -> list[int]:
        """The calls on which a mistake can be seen; an error tells little."""
        return [n for n in self._all if not self._seen[n].error and not self._fits_on(self._task.source, n)]

    def _call(self, number: int) -> Call:
        return self._exam.calls[number][1]

    def _fits_on(self, source: str, number: int) -> bool:
        """Whether the answer shows on a call what a text does."""
        return same(self._call(number), self._seen[number], self._exam.shows(source, number))

    def _fits(self, source: str, numbers: Iterable[int] | None = None) -> bool:
        """Whether it shows on some calls, or on all, what a text does."""
        return all(self._fits_on(source, n) for n in (self._all if numbers is None else numbers))

    def _returned(self, asked: list[int]) -> str:
        """What comes back on every call in place of what is asked for, if it is always the same."""
        found = set()
        for number in asked:
            one, right = self._seen[number], self._exam.right(number).outputs
            if not one.error and right is not None:
                found.add(instead(one.outputs, right))
        return found.pop() if len(found) == 1 else ""

    def _cheapest(self, fitting: Iterable[tuple[Mistake, ...]]) -> tuple[Mistake, ...]:
        """By what they cost; of those that cost the same, the ones that share least. Of none, none."""

        def price(some: tuple[Mistake, ...]) -> tuple[float, float]:
            costs = {name for mistake in some for name in mistake.costs}
            return self._task.points(costs), sum(self._task.points(mistake.costs) for mistake in some)

        return min(fitting, key=price, default=())

    def _one(self) -> tuple[Mistake, ...]:
        """The mistake that shows the same on every call, as a tuple of one, or none."""
        return self._cheapest((m,) for m in self._task.mistakes if any(map(self._fits, self._texts[m.name])))

    def _several(self) -> tuple[Mistake, ...]:
        """Of the mistakes in the program to be repaired, the fewest that explain all calls: any that may."""
        made = [mistake for mistake in self._task.mistakes if mistake.name in self._task.broken]
        for count in range(2, len(made) + 1):
            sets = itertools.combinations(made, count)
            if found := [m for some in sets if any(map(self._fits, self._together(some))) for m in some]:
                return tuple(dict.fromkeys(found))
        return ()

    def _together(self, some: tuple[Mistake, ...]) -> Iterator[str]:
        """The right answer's text with all of these mistakes, in each of their ways."""
        for ways in itertools.product(*(mistake.ways for mistake in some)):
            # In one order or another: a change may take away the text that the next one looks for.
            orders = (changed(self._task.source, *order) for order in itertools.permutations(ways))
            source = next(filter(None, orders), None)
            if source and program(source):
                yield source

    def _pair(self) -> tuple[Mistake, ...]:
        """One of the likeliest mistakes together with any other, or none."""
        fitting, tried = [], set()
        parameters = max(len(call.state or ()) for _, call in self._exam.calls)
        for pair, source, order in self._pairs():
            if len(tried) == MOST_WORK // (WORK_OF_A_TEXT + parameters):
                break
            if source not in tried and program(source) and self._fits(source, order):
                fitting.append(pair)
            tried.add(source)
        return self._cheapest(fitting)

    def _pairs(self) -> Iterator[tuple[tuple[Mistake, Mistake], str, list[int]]]:
        """Two mistakes, the text with both, and the calls; in front, one that the first does not explain."""
        made = [(mistake, way) for mistake in self._task.mistakes for way in mistake.ways]
        alone = {way: changed(self._task.source, way) for _, way in made}
        for one, a in [(mistake, way) for mistake in self._likeliest for way in mistake.ways]:
            order = [next(n for n in self._all if not self._fits_on(alone[a], n)), *self._all]
            for other, b in [(mistake, way) for mistake, way in made if mistake is not one]:
                for source in dict.fromkeys([changed(alone[a], b), changed(alone[b], a)]):
                    if source:
                        yield (one, other), source, order

    @cached_property
    def _likeliest(self) -> list[Mistake]:
        """Those that explain most; then, as two may hide each other, those that cost what is missed."""
        # One call of each requirement tells: on all of them, in all ways, a layer takes seconds.
        first = {self._exam.calls[n][0].name: n for n in reversed(self._wrong)}.values()

        def rank(mistake: Mistake) -> tuple[int, bool]:
            explained = [sum(self._fits_on(text, n) for n in first) for text in self._texts[mistake.name]]
            return -max(explained, default=0), self._missed.isdisjoint(mistake.costs)

        return sorted(self._task.mistakes, key=rank)[:LIKELIEST]

    def _shows(self, source: str) -> int:
        """On how many calls a text shows something else than the right one."""
        exam = self._exam
        return sum(not same(self._call(n), exam.shows(source, n), exam.right(n)) for n in self._all)

    def _like(self, first: str) -> Mistake | None:
        """The mistake that is seen on most calls where it shows, or on all of the first lost requirement's."""
        texts = {text: m for m in self._likeliest for text in self._texts[m.name]}
        explained = {text: sum(self._fits_on(text, n) for n in self._wrong) for text in texts}
        most = max(explained.values(), default=0)
        if most >= FEWEST_CALLS:  # few texts need be looked at on all calls
            text = min((text for text in texts if explained[text] == most), key=self._shows)
            if most >= SMALLEST_SHARE * self._shows(text) and first in texts[text].costs:
                return texts[text]
        here = [n for n in self._all if self._exam.calls[n][0].name == first and not self._seen[n].error]
        if self._fits(self._task.source, here):
            return None
        costly = [m for m in self._task.mistakes if first in m.costs]
        fitting = [(m,) for m in costly if any(self._fits(text, here) for text in self._texts[m.name])]
        return next(iter(self._cheapest(fitting)), None)
