"""Symptoms of mistakes, in the words in which a learner would search for them."""

import difflib

from transformer_lessons import checks
from transformer_lessons.checks.definitions import Mistake, Task, changed
from transformer_lessons.checks.message import place

SYMPTOMS = {
    "loss is NaN": "The loss, or some of the output, becomes NaN.",
    "loss does not fall": "The loss stays where it is.",
    "loss falls slowly": "The loss falls, but more slowly than it should.",
    "too good to be true": "The loss falls to almost nothing, but what is generated is poor.",
    "padding changes the answer": "A sentence's output depends on how much padding comes after it.",
    "batch-mates change it": "A sentence's output depends on the other sentences in its batch.",
    "decoding repeats itself": "What is generated repeats itself, stops too early or never stops.",
    "weights of a row do not sum to one": "Attention weights, or probabilities, do not sum to one.",
    "right shape, wrong numbers": "All shapes fit, but the numbers are wrong.",
    "slow or out of memory": "The result is right, but it takes too long or too much memory.",
    "error": "It raises an error, at least for some inputs.",
}


def mistakes_by_symptom(word: str = "") -> dict[str, list[tuple[Task, Mistake]]]:
    """For each symptom that contains a word, or all of several, the mistakes that show it.

    Args:
        word: parts of the symptom's name or description, in any case; by default, all symptoms are meant.

    Raises:
        ValueError: if no symptom contains them.
    """
    words, texts = word.lower().split(), {name: f"{name} {about}".lower() for name, about in SYMPTOMS.items()}
    named = [name for name in SYMPTOMS if all(one.removesuffix("s") in texts[name] for one in words)]
    if not named:
        raise ValueError(f"symptom: expected a word from {', '.join(SYMPTOMS)}, got {word!r}")
    tasks = [checks.task(name) for name in checks.tasks()]
    return {name: [(t, m) for t in tasks for m in t.mistakes if name in m.symptoms] for name in named}


def repair_patch(task: Task, mistake: Mistake) -> str:
    """The patch that repairs a mistake, in the first way to write it: its lines, then the right answer's."""
    before, after = (text.splitlines() for text in (changed(task.source, mistake.ways[0]), task.source))
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def listing(word: str) -> str:
    """The mistakes of each symptom that contains a word, in lines for a terminal."""
    lines = []
    for name, entries in mistakes_by_symptom(word).items():
        lines += [f"{name}: {SYMPTOMS[name]}"]
        lines += [f"  {task.public_name}: {m.you}. {m.looks} ({place(m.anchor)[0]})" for task, m in entries]
    return "\n".join(lines)
