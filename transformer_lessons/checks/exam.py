"""The calls of a task, and what each text shows on them."""

from functools import lru_cache

from transformer_lessons.checks.answer import answer_from
from transformer_lessons.checks.definitions import Draw, Task, program
from transformer_lessons.checks.seen import Outcome


class Exam:
    """The calls of a task for one seed, and what each text shows on them, computed once, when needed.

    Args:
        task: the task.
        seed: the seed of the arguments.

    Attributes:
        calls: pairs of a requirement and one of its calls.
    """

    def __init__(self, task: Task, seed: int):
        draw = Draw(seed)
        self.task = task
        self.calls = [(r, call) for r in task.requirements for call in r.draw_calls(draw)]
        self._outcomes: dict[tuple[str, int], Outcome] = {}

    def outcome(self, source: str, number: int) -> Outcome:
        """What a text shows on the call of this number."""
        if (source, number) not in self._outcomes:
            if not program(source):
                raise ValueError(f"{self.task.name}: a change leaves invalid Python: {source}")
            self._outcomes[source, number] = answer_from(self.task, source).run(self.calls[number][1])
        return self._outcomes[source, number]

    def expected(self, number: int) -> Outcome:
        """What the right answer shows on the call of this number."""
        return self.outcome(self.task.source, number)


@lru_cache(maxsize=128)
def exam_of(task: Task, seed: int) -> Exam:
    """The exam of a task; cached, as most checks of a session use seed 0."""
    return Exam(task, seed)
