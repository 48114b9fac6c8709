"""Names the known mistakes that behave exactly as a candidate does."""

import itertools

from transformer_lessons.checks.adapter import Reply
from transformer_lessons.checks.old.compare import agree
from transformer_lessons.checks.old.core import Exam, Mistake, Task

__all__ = ["diagnose"]

DEPTH = 6  # at most so many mistakes at once: a first draft often leaves out all the subtle requirements
BUDGET = 24  # so many partial explanations are followed up
PAIRS = 2  # so often two mistakes that hide each other are looked for, which takes longer

Choice = tuple[Mistake, dict]


def diagnose(task: Task, exam: Exam, shown: dict[str, Reply]) -> list[Mistake]:
    """The catalogued mistakes that together show what the candidate showed.

    Probes go from basic to subtle. A mistake is a partial explanation if it agrees with the candidate further
    than what it adds to; then the next mistake is looked for at the first probe that is still unexplained.

    Returns:
        The mistakes, the one with the most basic symptom first, without those that another one would explain as
        well. Empty if no explanation covers all probes, or at least the task's essential ones.
    """
    search = _Search(task, exam, shown)
    unexplained = search.reach((), 0)
    if unexplained == len(exam):  # as the right answer in all that two answers are compared by
        return []
    reached, chosen = search.extend(unexplained, ())
    enough = _essential(task, exam)
    if not chosen or reached < (enough if unexplained < enough else len(exam)):
        return []
    if reached < len(exam):  # of what is explained in part, only what is needed
        chosen = search.needed(chosen, enough)
        reached = search.reach(chosen, 0)
    certain = [search.is_certain(number, reached, chosen) for number in range(len(chosen))]
    if not certain[0]:
        return []
    # Two ways to make one mistake, as on both sides of a product, are one mistake.
    return list(dict.fromkeys(mistake for (mistake, _), sure in zip(chosen, certain, strict=True) if sure))


def _essential(task: Task, exam: Exam) -> int:
    """How many of the first probes must be explained, if one of them is failed: all but the refusals.

    Bad arguments can be handled in more ways than a catalogue can list. Who computes something wrong is told so,
    whatever else they accept.
    """
    refused = [number for number, (probe, _) in enumerate(exam.values()) if probe.refused]
    return task.essential or min(refused, default=len(exam))


class _Search:
    """Runs combinations of mistakes on the candidate's probes, each once."""

    def __init__(self, task: Task, exam: Exam, shown: dict[str, Reply]):
        self.task, self.exam, self.shown, self.names = task, exam, shown, list(exam)
        self.budget, self.pairs = BUDGET, PAIRS

    def extend(self, reached: int, chosen: tuple[Choice, ...]) -> tuple[int, tuple[Choice, ...]]:
        """The explanation that reaches furthest, of these mistakes and as few more as possible."""
        best = reached, chosen
        if len(chosen) == DEPTH or self.budget == 0:
            return best
        self.budget -= 1
        further = self._further(reached, chosen)
        for reach, longer in sorted(further, key=lambda item: -item[0]):
            if reach < len(self.names):
                reach, longer = self.extend(reach, longer)
            best = max(best, (reach, longer), key=lambda item: item[0])
            if best[0] == len(self.names):
                break
        return best

    def needed(self, chosen: tuple[Choice, ...], enough: int) -> tuple[Choice, ...]:
        """Without the mistakes that explain no essential probe."""
        return tuple(
            one
            for number, one in enumerate(chosen)
            if self.reach(chosen[:number] + chosen[number + 1 :], 0) < enough
        )

    def is_certain(self, number: int, reached: int, chosen: tuple[Choice, ...]) -> bool:
        """Whether no other mistake could stand in the place of this one: nobody is accused of two at random."""
        if len(chosen) == 1:
            return True
        rest = chosen[:number] + chosen[number + 1 :]
        unexplained = self.reach(rest, 0)
        others = [choice for choice in self._additions(rest) if choice[0] is not chosen[number][0]]
        return not any(self.reach((*rest, choice), unexplained) >= reached for choice in others)

    def _further(self, reached: int, chosen: tuple[Choice, ...]) -> list[tuple[int, tuple[Choice, ...]]]:
        """All explanations one mistake longer that reach further; if there is none, two mistakes longer."""
        additions = self._additions(chosen)
        singles = [(*chosen, choice) for choice in additions]
        found = [(reach, longer) for longer in singles if (reach := self.reach(longer, reached)) > reached]
        if found or not self.pairs or self.shown[self.names[reached]].error:
            return found
        self.pairs -= 1
        visible = [choice for choice in additions if self._alters((*chosen, choice), chosen, reached)]
        pairs = [
            (*chosen, a, b) for a, b in itertools.combinations(visible, 2) if not a[1].keys() & b[1].keys()
        ]
        return [(reach, longer) for longer in pairs if (reach := self.reach(longer, reached)) > reached]

    def _alters(self, longer: tuple[Choice, ...], chosen: tuple[Choice, ...], number: int) -> bool:
        """Whether the last mistake makes a difference on a probe, and none on those before it."""
        name = self.names[number]
        differs = not agree(self.exam[name][0], self._observe(longer, name), self._observe(chosen, name))
        return differs and all(self._explains(longer, earlier) for earlier in range(number))

    def _explains(self, chosen: tuple[Choice, ...], number: int) -> bool:
        name = self.names[number]
        return agree(self.exam[name][0], self._observe(chosen, name), self.shown[name])

    def _observe(self, chosen: tuple[Choice, ...], name: str) -> Reply:
        """What these mistakes show on a probe; for one mistake alone, kept from one check to the next."""
        key = (name, *(id(variant) for _, variant in chosen))
        if key in self.exam.kept:
            return self.exam.kept[key]
        wrong = self.task.mistaken(*(variant for _, variant in chosen))
        reply = self.task.observe(self.task.local(wrong), self.exam[name][0])
        if len(chosen) < 2:
            self.exam.kept[key] = reply
        return reply

    def _additions(self, chosen: tuple[Choice, ...]) -> list[Choice]:
        """The mistakes that touch other steps than those made already."""
        taken = {step for _, variant in chosen for step in variant}
        return [
            (mistake, variant)
            for mistake in self.task.mistakes
            for variant in mistake.variants
            if not taken & variant.keys()
        ]

    def reach(self, chosen: tuple[Choice, ...], unexplained: int) -> int:
        """How many probes, from the first on, these mistakes explain.

        The probe that was unexplained before is asked first: most additions fail there.
        """

        if chosen and not self._explains(chosen, unexplained):
            return 0
        for number in range(len(self.names)):
            if not (chosen and number == unexplained) and not self._explains(chosen, number):
                return number
        return len(self.names)
