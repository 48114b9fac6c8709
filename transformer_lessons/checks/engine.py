"""Judges an answer by what it shows on calls (`Outcome`): as right, as a known mistake, or by requirement.

An answer that shows on every call what the right answer with a known change shows *is* that mistake: it loses
what the mistake costs and nothing else. Any other answer is checked against each requirement separately.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from transformer_lessons.checks.answer import Answer
from transformer_lessons.checks.definitions import Call, Mistake, Task, changed, program
from transformer_lessons.checks.exam import Exam, exam_of
from transformer_lessons.checks.seen import Outcome, meets, same, varies
from transformer_lessons.checks.words import wrong_kind

LIKELIEST = 5  # one mistake of a pair must be among these
# Budget for texts with two mistakes: not a time, so that points depend on no machine. About two seconds.
MOST_WORK, WORK_OF_A_TEXT = 5_600, 20  # plus 1 for each parameter to be loaded
FEWEST_CALLS, SMALLEST_SHARE = 2, 0.75  # the number and share of calls that a similar mistake must fit


@dataclass(frozen=True)
class Verdict:
    """What was found out about an answer.

    Attributes:
        lost: the names of the requirements that it loses.
        mistakes: the known mistakes that it makes, in the order in which they are reported.
        similar: a known mistake that it resembles, if none was recognised.
        error: what it showed on the first call, if every call ends in an error.
        returned: what it returns on every call instead of the tensors asked for, in words.
        more: how many other mistakes it makes, to be reported when this one is repaired.
    """

    lost: tuple[str, ...]
    mistakes: tuple[Mistake, ...] = ()
    similar: Mistake | None = None
    error: Outcome | None = None
    returned: str = ""
    more: int = 0

    def anchor(self, task: Task) -> str | None:
        """The book's anchor to read about it; None for a right answer."""
        if self.mistakes:
            return self.mistakes[0].anchor
        return next((r.anchor for r in task.requirements if r.name in self.lost), None)


def judge(answer: Answer, seed: int = 0) -> Verdict:
    """Run an answer on all calls of its task, after choosing its naming, and find out what it does wrong."""
    exam = exam_of(answer.task, seed)
    for number, (_, call) in enumerate(exam.calls):
        if call.state is not None:
            answer.find_naming(call, exam.expected(number))
            break
    return Diagnosis(exam, [answer.run(call) for _, call in exam.calls]).verdict()


class Diagnosis:
    """The search for what is wrong with an answer.

    Args:
        exam: the calls of its task.
        seen: what the answer showed on each of them.
    """

    def __init__(self, exam: Exam, seen: list[Outcome]):
        self._exam, self._task, self._texts, self._seen = exam, exam.task, exam.task.texts, seen
        # Calls with wrong results come first: there most mistakes show something else and are soon ruled out.
        self._all = sorted(range(len(seen)), key=lambda n: self._fits_on(exam.task.source, n))

    def verdict(self) -> Verdict:
        """The verdict: mistakes that the answer makes, or else what it misses and which one it is like."""
        missed, requirements = self._missed, self._task.requirements
        if not missed:
            return Verdict(())
        lost = tuple(r.name for r in requirements if r.name in missed or r.needs in missed)
        # Asking a new object for its state does not run its methods, which may be stubs.
        called = [n for n in sorted(self._all) if self._call(n).method != "state"]
        if all(self._seen[n].error for n in called):
            kept = {r.name for r, call in self._exam.calls if call.method == "state"} - missed
            lost = tuple(r.name for r in requirements if r.name not in kept)
            return Verdict(lost, error=self._seen[called[0]])
        returned = self._returned(called)
        try_pairs = not returned and any(varies(self._seen[n].outputs) for n in self._wrong)
        if mistakes := self._find_one() or self._find_several() or (self._find_pair() if try_pairs else ()):
            return self._recognised(mistakes, lost)
        return Verdict(lost, returned=returned, similar=None if returned else self._find_similar(lost[0]))

    def _recognised(self, mistakes: tuple[Mistake, ...], lost: tuple[str, ...]) -> Verdict:
        """The verdict on known mistakes; they never cost more than the requirements that are not met."""
        names = [r.name for r in self._task.requirements]
        costs = {name for mistake in mistakes for name in mistake.costs}
        cheaper = min(tuple(n for n in names if n in costs) or lost, lost, key=self._task.points)
        ordered = sorted(mistakes, key=lambda mistake: min(map(names.index, mistake.costs)))
        reported = len(ordered) if len(ordered) <= 2 else 1
        return Verdict(cheaper, tuple(ordered[:reported]), more=len(ordered) - reported)

    @cached_property
    def _missed(self) -> set[str]:
        """The names of the requirements that are not met, without regard to known mistakes."""
        calls = enumerate(self._exam.calls)
        return {r.name for n, (r, call) in calls if not meets(call, self._seen[n], self._exam.expected(n))}

    @cached_property
    def _wrong(self) -> list[int]:
        """The calls on which a mistake can be recognised: wrong, but without an error, which tells little."""
        return [n for n in self._all if not self._seen[n].error and not self._fits_on(self._task.source, n)]

    def _call(self, number: int) -> Call:
        return self._exam.calls[number][1]

    def _fits_on(self, source: str, number: int) -> bool:
        """Whether the answer shows on a call what a text shows."""
        return same(self._call(number), self._seen[number], self._exam.outcome(source, number))

    def _fits(self, source: str, numbers: Iterable[int] | None = None) -> bool:
        """Whether the answer shows on the given calls, by default on all, what a text shows."""
        return all(self._fits_on(source, n) for n in (self._all if numbers is None else numbers))

    def _returned(self, called: list[int]) -> str:
        """What comes back on every call instead of what is asked for; "" unless it is always the same."""
        found = set()
        for number in called:
            one, right = self._seen[number], self._exam.expected(number).outputs
            if not one.error and right is not None:
                found.add(wrong_kind(one.outputs, right))
        return found.pop() if len(found) == 1 else ""

    def _cheapest(self, fitting: Iterable[tuple[Mistake, ...]]) -> tuple[Mistake, ...]:
        """The mistakes that cost least; on a tie, those whose costs overlap least; () if there are none."""

        def price(some: tuple[Mistake, ...]) -> tuple[float, float]:
            costs = {name for mistake in some for name in mistake.costs}
            return self._task.points(costs), sum(self._task.points(mistake.costs) for mistake in some)

        return min(fitting, key=price, default=())

    def _find_one(self) -> tuple[Mistake, ...]:
        """The cheapest mistake that explains every call, in a tuple; () if there is none."""
        return self._cheapest((m,) for m in self._task.mistakes if any(map(self._fits, self._texts[m.name])))

    def _find_several(self) -> tuple[Mistake, ...]:
        """The fewest `Task.planted` mistakes, at least two, that explain all calls; on a tie, all such."""
        made = [mistake for mistake in self._task.mistakes if mistake.name in self._task.planted]
        for count in range(2, len(made) + 1):
            sets = itertools.combinations(made, count)
            if found := [m for some in sets if any(map(self._fits, self._texts_with(some))) for m in some]:
                return tuple(dict.fromkeys(found))
        return ()

    def _texts_with(self, some: tuple[Mistake, ...]) -> Iterator[str]:
        """The right answer's text with all of these mistakes, in each combination of their ways."""
        for ways in itertools.product(*(mistake.ways for mistake in some)):
            # In any order that works: a change may remove the text that the next one looks for.
            orders = (changed(self._task.source, *order) for order in itertools.permutations(ways))
            source = next(filter(None, orders), None)
            if source and program(source):
                yield source

    def _find_pair(self) -> tuple[Mistake, ...]:
        """The cheapest pair, one of the likeliest mistakes and any other, that explains every call; or ()."""
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
        """Pairs, the text with both, and the calls in order: first one that the first does not explain."""
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
        """Those that explain most calls; then those that cost what is missed, as two may hide each other."""
        # One call of each requirement is enough: all calls in all ways would take seconds for a layer.
        first = {self._exam.calls[n][0].name: n for n in reversed(self._wrong)}.values()

        def rank(mistake: Mistake) -> tuple[int, bool]:
            explained = [sum(self._fits_on(text, n) for n in first) for text in self._texts[mistake.name]]
            return -max(explained, default=0), self._missed.isdisjoint(mistake.costs)

        return sorted(self._task.mistakes, key=rank)[:LIKELIEST]

    def _count_deviations(self, source: str, numbers: list[int]) -> int:
        """The number of these calls on which a text shows something else than the right answer."""
        exam = self._exam
        return sum(not same(self._call(n), exam.outcome(source, n), exam.expected(n)) for n in numbers)

    def _find_similar(self, first: str) -> Mistake | None:
        """A mistake that shows where `first` fails, and fits most calls where it shows, or all of `first`."""
        here = [n for n in self._all if self._exam.calls[n][0].name == first and not self._seen[n].error]
        wrong = [n for n in here if n in self._wrong]
        texts = {text: m for m in self._likeliest for text in self._texts[m.name]}
        texts = {text: m for text, m in texts.items() if self._count_deviations(text, wrong) == len(wrong)}
        explained = {text: sum(self._fits_on(text, n) for n in self._wrong) for text in texts}
        most = max(explained.values(), default=0)
        if most >= FEWEST_CALLS:  # so that only a few texts are run on all calls
            deviations = {t: self._count_deviations(t, self._all) for t in texts if explained[t] == most}
            text = min(deviations, key=deviations.get)
            if most >= SMALLEST_SHARE * deviations[text] and first in texts[text].costs:
                return texts[text]
        if not wrong:
            return None
        costly = [m for m in self._task.mistakes if first in m.costs]
        fitting = [(m,) for m in costly if any(self._fits(text, here) for text in self._texts[m.name])]
        return next(iter(self._cheapest(fitting)), None)
