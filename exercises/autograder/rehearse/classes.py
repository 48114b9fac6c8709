"""A class of made-up students: each with a skill, a program, and some with trouble."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbformat import NotebookNode

from exercises.autograder.rehearse.answers import Answerer
from exercises.autograder.rehearse.renaming import renamed

__all__ = ["ABSENT", "COPIED", "ENDLESS", "TWICE", "UNREADABLE", "Student", "students"]

ABSENT, COPIED, TWICE, UNREADABLE = "hands in nothing", "copied", "handed in twice", "cut off"
ENDLESS = "an endless loop"
# The share of the class with each trouble; at least one, as far as there are students for all.
SHARES = {
    UNREADABLE: 0.02,
    "a test is deleted": 0.04,
    COPIED: 0.04,
    ABSENT: 0.06,
    TWICE: 0.04,
    "a cell cannot be parsed": 0.04,
    "a cell of their own": 0.06,
}
HOSTILE = {ENDLESS: 0.02}
LATE = 0.15
PROGRAMS = {"JupyterLab": 5, "Colab": 3, "VS Code": 2}  # how many of ten use it


@dataclass(frozen=True)
class Student:
    """A made-up student.

    Attributes:
        student: the id, "student-001" and so on.
        notebook: what they hand in, before their program saves it; None if they hand in nothing.
        program: that saves it.
        trouble: with the file, or ""; see `SHARES`.
        is_late: whether it comes after the deadline.
        kinds: of each answer whether it is "right", "typical" (a known mistake), "mistaken" (a small one),
            "short" or "untouched".
        copied_from: the student whose answers these are, a little disguised, or "".
        draft: what they had handed in before, if that was twice.
    """

    student: str
    notebook: NotebookNode | None
    program: str = "JupyterLab"
    trouble: str = ""
    is_late: bool = False
    kinds: dict[str, str] = field(default_factory=dict)
    copied_from: str = ""
    draft: NotebookNode | None = None


def students(number: int, assignment: str, seed: int = 0, *, hostile: bool = False) -> Iterator[Student]:
    """A class; the same arguments give the same.

    Args:
        number: of students.
        assignment: its name.
        seed: another one gives another class.
        hostile: whether some code runs forever.

    Raises:
        ValueError: for a number below 1, or an assignment that is not there.
    """
    if number < 1:
        raise ValueError(f"number: expected at least 1, got {number}")
    return _class(number, Answerer(assignment), f"{seed} {assignment} {number}", hostile)


def _class(number: int, answerer: Answerer, seed: str, hostile: bool) -> Iterator[Student]:
    chance = random.Random(seed)
    troubles = _troubles(number, chance, hostile)
    late = set(chance.sample(range(number), max(round(LATE * number), int(number > 4))))
    copied = _copied(number, troubles, chance, seed)
    for n in range(number):
        trouble = troubles.get(n, "")
        if trouble == ABSENT:
            yield Student(_id(n), None, "", ABSENT)
            continue
        chance = random.Random(f"{seed} {n}")
        program = chance.choices(list(PROGRAMS), list(PROGRAMS.values()))[0]
        skill, answers = _skill(seed, copied.get(n, n))
        notebook, kinds = answerer.notebook(answers, skill)
        draft = answerer.notebook(chance, 0.0)[0] if trouble == TWICE else None
        if trouble == COPIED:
            _disguise(notebook, kinds, chance)
        source = _id(copied[n]) if n in copied else ""
        yield Student(_id(n), notebook, program, trouble, n in late, kinds, source, draft)


def _skill(seed: str, n: int) -> tuple[float, random.Random]:
    """Of a student, and where their answers are drawn from."""
    chance = random.Random(f"{seed} {n} answers")
    return chance.random(), chance


def _id(n: int) -> str:
    return f"student-{n + 1:03}"


def _troubles(number: int, chance: random.Random, hostile: bool) -> dict[int, str]:
    """Who has which trouble, of two thirds of the class at most; one of each before there are more of any."""
    shares = HOSTILE | SHARES if hostile else SHARES
    more = [trouble for trouble, share in shares.items() for _ in range(round(share * number) - 1)]
    order = chance.sample(range(number), number)
    return dict(zip(order[: number * 2 // 3], [*shares, *more], strict=False))


def _copied(number: int, troubles: dict[int, str], chance: random.Random, seed: str) -> dict[int, int]:
    """Who copies from whom; the best quarter is asked."""
    others = sorted(set(range(number)) - troubles.keys(), key=lambda n: _skill(seed, n)[0])
    return {n: chance.choice(others[-number // 4 :]) for n in sorted(troubles) if troubles[n] == COPIED}


def _disguise(notebook: NotebookNode, kinds: dict[str, str], chance: random.Random) -> None:
    """A comment in every answer in code, and other names in some."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and kinds.get(cell.id, "untouched") != "untouched":
            text = renamed(cell.source, chance) if chance.random() < 0.3 else cell.source
            cell.source = f"# {chance.choice(('my solution', 'checked, works', 'done'))}\n{text}"
