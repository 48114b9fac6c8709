"""Names the known mistakes that behave exactly as a candidate does."""

from transformer_lessons.checks.adapter import Reply
from transformer_lessons.checks.core import Mistake, Probe, Task
from transformer_lessons.checks.judge import agree

__all__ = ["diagnose"]

DEPTH = 4  # at most so many mistakes at once: leaving out the four subtle requirements is common
BREADTH = 4  # so many partial explanations are followed up

Choice = tuple[Mistake, dict]
Exam = dict[str, tuple[Probe, Reply]]


def diagnose(task: Task, exam: Exam, shown: dict[str, Reply]) -> list[Mistake]:
    """The fewest catalogued mistakes that together show what the candidate showed, on every probe.

    Probes go from basic to subtle. A mistake is a partial explanation if it agrees with the candidate further
    than what it adds to; then the next mistake is looked for at the first probe that is still unexplained.

    Returns:
        The mistakes, the one with the most basic symptom first; empty if there is no complete explanation.
    """
    search = _Search(task, exam, shown)
    frontier: list[tuple[int, tuple[Choice, ...]]] = [(search.reach((), 0), ())]
    for _ in range(DEPTH):
        further = []
        for reached, chosen in frontier:
            for choice in search.additions(chosen):
                longer = (*chosen, choice)
                reach = search.reach(longer, reached)
                if reach == len(search.names):
                    return [mistake for mistake, _ in longer]
                if reach > reached:
                    further.append((reach, longer))
        frontier = sorted(further, key=lambda item: -item[0])[:BREADTH]
    return []


class _Search:
    """Runs combinations of mistakes on the candidate's probes, each once."""

    def __init__(self, task: Task, exam: Exam, shown: dict[str, Reply]):
        self.task, self.exam, self.shown, self.names = task, exam, shown, list(exam)

    def additions(self, chosen: tuple[Choice, ...]) -> list[Choice]:
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
        adapter = self.task.local(self.task.mistaken(*(variant for _, variant in chosen)))

        def explained(number: int) -> bool:
            name = self.names[number]
            probe = self.exam[name][0]
            return agree(probe, self.task.observe(adapter, probe), self.shown[name])

        if chosen and not explained(unexplained):
            return 0
        for number in range(len(self.names)):
            if not (chosen and number == unexplained) and not explained(number):
                return number
        return len(self.names)
