"""The message: what was done, the smallest case that shows it, its symptoms, and where to read about it.

It has four parts, and is written as text for a terminal and as HTML for a notebook.
"""

import html
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby, islice
from typing import Any

from torch import Tensor

from transformer_lessons.checks.answer import Answer, answer_from
from transformer_lessons.checks.definitions import Call, Given, Requirement
from transformer_lessons.checks.differences import HIDDEN, Difference, difference
from transformer_lessons.checks.engine import Verdict
from transformer_lessons.checks.seen import WEIGHTS, meets, same_value
from transformer_lessons.checks.words import cut, describe_error, literal

MOST_CASES = 250  # the most that are tried for a requirement
NOT_A_FUNCTION = "NotAFunctionError"
LOSS = "  # loss: the sum of these numbers times cos(1), cos(2), …"
SELF_EXPLAINING = (WEIGHTS, NOT_A_FUNCTION)  # errors of the check itself, whose messages need no more words


@dataclass(frozen=True)
class Message:
    """The message about an answer.

    Attributes:
        head: the first line: what was done, and the points.
        case: lines of Python that show it.
        outcome: what the last of these lines should give, and what it gives.
        notes: sentences below the case.
        read: where the book explains it, and its address.
    """

    head: str
    case: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[str, str] | None = None

    def text(self) -> str:
        """The message for a terminal; the case can be pasted into a cell."""
        lines = [self.head]
        if self.outcome:
            lines += ["", *(f"    {line}" for line in self.case), *(f"    # {line}" for line in self.outcome)]
        if self.notes or self.read:
            lines += ["", *(f"  {note}" for note in self.notes)]
        return "\n".join([*lines, *(["  Read: " + " → ".join(self.read)] if self.read else [])])

    def html(self) -> str:
        """The message for a notebook, with the numbers that differ marked."""
        parts = [f"<b>{html.escape(self.head)}</b>"]
        if self.outcome:
            code = [html.escape(line) + "\n" for line in self.case]
            parts.append(f"<pre>{''.join(code)}{'<br>'.join(_marked(self.outcome))}</pre>")
        parts += [html.escape(note) + "<br>" for note in self.notes]
        if self.read:
            where, address = map(html.escape, self.read)
            parts.append(f'<a href="{address}" target="_blank">{where}</a>')
        return "<div>" + "".join(parts) + "</div>"


def _marked(outcome: tuple[str, ...]) -> list[str]:
    """The lines of what should be and what is as HTML, with their differences marked."""
    parted = [re.fullmatch(r"(.*?should be |.*?(?:is {8}|are {7}))(.*)", line) for line in outcome]
    numbers = [re.findall(r"[-\w.]+|[^-\w.]+", found[2]) for found in parted if found]
    if len(numbers) != 2 or len(numbers[0]) != len(numbers[1]):
        return [html.escape(line) for line in outcome]
    lines = [html.escape(found[1]) for found in parted]
    for pair in zip(*numbers, strict=True):
        for n, text in enumerate(map(html.escape, pair)):
            lines[n] += text if pair[0] == pair[1] else f"<mark>{text}</mark>"
    return lines


@cache
def _places() -> dict[str, Any]:
    return json.loads((files("transformer_lessons.checks") / "places.json").read_text(encoding="utf-8"))


def place(anchor: str, book: str | None = None) -> tuple[str, str]:
    """Where an anchor is in the book, in words, and its address; ValueError if there is no such anchor.

    Args:
        anchor: its name, without #.
        book: the address of the book; by default, the one online.
    """
    known = _places()["anchors"]
    if anchor not in known:
        raise ValueError(f"anchor: expected one of the book's anchors, got {anchor!r}")
    where, page = known[anchor]
    return where, f"{_places()['book'] if book is None else book}{page}#{anchor}"


def write(answer: Answer, verdict: Verdict) -> Message:
    """The message about an answer and its verdict."""
    task = answer.task
    if not verdict.lost:
        right = answer_from(task, task.source)
        unlike = (r for r in task.remarks if not same_value(answer.run(r.call), right.run(r.call)))
        notes = tuple(f"One thing more: {remark.text}" for remark in islice(unlike, 2))
        return Message(f"{task.public_name}: right.", notes=notes)
    lost = [r for r in task.requirements if r.name in verdict.lost]
    head, notes = _head_and_notes(verdict, lost)
    if verdict.mistakes:
        lost = [r for r in lost if r.name in verdict.mistakes[0].costs] or lost
    kept = task.total - task.points(verdict.lost)
    points = f"{kept:g} of {task.total:g} {'point' if task.total == 1 else 'points'}"
    is_called = not verdict.error or verdict.error.error != NOT_A_FUNCTION
    if answer.missing and not (verdict.mistakes or verdict.error or verdict.returned):
        head, notes, is_called = f"weights are loaded by name; it has none called {answer.missing}", [], False
    case, outcome = find_case(answer, lost) if is_called else ((), ())
    head = f"{task.public_name}: {head} ({points})."
    return Message(head, case, outcome, tuple(notes), place(verdict.anchor(task)))


def _head_and_notes(verdict: Verdict, lost: list[Requirement]) -> tuple[str, list[str]]:
    """The first line without the points, and the notes."""
    if verdict.mistakes:
        first, *others = verdict.mistakes
        notes = [first.looks, *(f"Besides, {other.you}." for other in others)]
        notes += ["This is not the only line that is wrong."] * bool(verdict.more)
        return first.you, notes
    if error := verdict.error:
        return cut(error.message) if error.error in SELF_EXPLAINING else f"it {describe_error(error)}", []
    if verdict.returned:
        return f"it returns {verdict.returned}", []
    notes = [f"It looks like this mistake: {like.you}. {like.looks}"] if (like := verdict.similar) else []
    missed = [r for r in lost if r.needs not in verdict.lost]
    notes += [f"Also required: {r.text}." for r in missed[1:]]
    notes += ["Further requirements count only once this is met."] * (len(missed) < len(lost))
    return f"it is required that {missed[0].text}", notes


def find_case(answer: Answer, lost: list[Requirement]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The first small case of a lost requirement that differs at one decimal, else the plainest."""
    task, best, shown = answer.task, HIDDEN, None
    reference = answer_from(task, task.source)
    for requirement in lost:
        for call in requirement.cases[:MOST_CASES]:
            right, seen = reference.run(call), answer.run(call)
            if right.error not in ("", "ValueError") or meets(call, seen, right):
                continue
            found = difference(task.results, call, seen, right)
            if call.backward and seen.error and not answer.run(replace(call, backward=False)).error:
                found = Difference(0, ("gradients should flow back", f"backward {found.lines[-1]}"))
            if found.digits < best.digits:
                best, shown = found, call
                if seen.error == WEIGHTS:  # show the weights, to see that they do not fit
                    shown = replace(call, args=(), kwargs={}, earlier=(), setting="", method="state")
            if best.digits <= 1:
                break
        if shown:
            *given, last = as_code(answer, shown)
            return (*given, last + LOSS * ("gradient of" in best.lines[0])), best.lines
    return (), ("no small example shows it, but the check's larger ones do",)


def as_code(answer: Answer, call: Call) -> tuple[str, ...]:
    """A call as lines of Python to paste into a cell."""
    task = answer.task
    names = [*task.arguments, *(f"x{n}" for n in range(len(call.args) - len(task.arguments)))]
    objects = {
        name: arg
        for name, arg in zip(names, call.args, strict=False)
        if isinstance(arg, Tensor | Given) or "tensor(" in literal(arg)
    }
    lines = [
        f"{' = '.join(n for n, arg in group)} = {literal(group[0][1])}"
        for group in (list(found) for _, found in groupby(objects.items(), key=lambda entry: id(entry[1])))
    ]
    given = [n if n in objects else literal(arg) for n, arg in zip(names, call.args, strict=False)]
    given += [f"{name}={literal(value)}" for name, value in call.kwargs.items()]
    if call.init is None:
        return (*lines, f"{answer.name}({', '.join(given)})")
    options = [f"{name}={literal(value)}" for name, value in call.options.items()]
    made = f"layer = {answer.name}({', '.join([*map(literal, call.init), *options])})"
    made += "" if call.training else ".eval()"
    method = {"": "layer", "state": "layer.state_dict"}.get(call.method, f"layer.{call.method}")
    earlier = [f"layer({', '.join(map(literal, args))})" for args in call.earlier]
    return made, *call.setting.splitlines(), *earlier, *lines, f"{method}({', '.join(given)})"
