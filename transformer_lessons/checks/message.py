"""The message: what was done, the smallest case that shows it, what it looks like, where to read about it.

It is built of four parts, and written as text for a terminal and as HTML for a notebook.
"""

import html
import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.answer import Answer
from transformer_lessons.checks.definitions import Call, Given, Requirement, Task
from transformer_lessons.checks.engine import Verdict
from transformer_lessons.checks.seen import EDITED, WEIGHTS, Seen, alike, meets, same_value

__all__ = ["Message", "place", "write"]

MOST_CASES = 250  # that are tried for a requirement
MOST_DIGITS, WIDTH, FEW_NUMBERS = 7, 110, 9
SAME = 99  # digits of what prints alike
NOT_A_FUNCTION = "NotAFunctionError"
SAY_ALL = (WEIGHTS, NOT_A_FUNCTION)  # errors of the check's, whose messages need no more words


@dataclass(frozen=True)
class Message:
    """What is told.

    Attributes:
        head: the first line: what was done, and the points.
        case: lines of Python that show it.
        outcome: what the last of them should give, and what it gives.
        notes: sentences below it.
        read: where the book explains it, and its address.
    """

    head: str
    case: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[str, str] | None = None

    def text(self) -> str:
        """For a terminal; the case can be pasted into a cell."""
        lines = [self.head]
        if self.outcome:
            lines += ["", *(f"    {line}" for line in self.case), *(f"    # {line}" for line in self.outcome)]
        if self.notes or self.read:
            lines += ["", *(f"  {note}" for note in self.notes)]
        return "\n".join([*lines, *(["  Read: " + " → ".join(self.read)] if self.read else [])])

    def html(self) -> str:
        """For a notebook: the numbers that differ are marked."""
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
    """The lines of what should be and what is, with what differs between them marked."""
    parted = [re.fullmatch(r"(.*?should be |.*?is {8})(.*)", line) for line in outcome]
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
    """Where the book has an anchor, in words, and its address; ValueError if it has none of that name.

    Args:
        anchor: its name, without #.
        book: where the book is; online without it.
    """
    known = _places()["anchors"]
    if anchor not in known:
        raise ValueError(f"anchor: expected one of the book's, got {anchor!r}")
    where, page = known[anchor]
    return where, f"{_places()['book'] if book is None else book}{page}#{anchor}"


def write(answer: Answer, verdict: Verdict) -> Message:
    """All that is to be told about an answer."""
    task = answer.task
    if not verdict.lost:
        right = _right(task)
        remarks = [r.text for r in task.remarks if not same_value(answer.shows(r.call), right.shows(r.call))][
            :2
        ]
        return Message(f"{task.public}: right.", notes=tuple(f"One thing more: {text}" for text in remarks))
    lost = [r for r in task.requirements if r.name in verdict.lost]
    said, notes = _told(verdict, lost)
    if verdict.mistakes:
        lost = [r for r in lost if r.name in verdict.mistakes[0].costs] or lost
    kept = task.total - task.points(verdict.lost)
    points = f"{kept:g} of {task.total:g} {'point' if task.total == 1 else 'points'}"
    is_called = not verdict.error or verdict.error.error != NOT_A_FUNCTION
    case, outcome = smallest(answer, lost) if is_called else ((), ())
    return Message(
        f"{task.public}: {said} ({points}).", case, outcome, tuple(notes), place(verdict.anchor(task))
    )


def _told(verdict: Verdict, lost: list[Requirement]) -> tuple[str, list[str]]:
    """The first line, and the sentences below the case."""
    if verdict.mistakes:
        first, *others = verdict.mistakes
        notes = [first.looks, *(f"Besides, {other.you}." for other in others)]
        notes += ["This is not the only line that is wrong."] * bool(verdict.more)
        return first.you, notes
    if verdict.error:
        error = verdict.error
        says = cut(error.message) if error.error in SAY_ALL else f"it {_raised(error)}"
        return says, []
    if verdict.returned:
        return f"it returns {verdict.returned}", []
    notes = [f"It looks like this mistake: {verdict.like.you}. {verdict.like.looks}"] if verdict.like else []
    if lost[1:]:
        others = f"; also lost: {', '.join(r.name for r in lost[2:])}" if lost[2:] else ""
        notes.append(f"After that: {lost[1].text}{others}.")
    return f"required is that {lost[0].text}", notes


def _right(task: Task) -> Answer:
    return Answer(task, task.answer(task.source))


def smallest(answer: Answer, lost: list[Requirement]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The first small case of a lost requirement whose difference is seen at one decimal, else the plainest."""
    reference = _right(answer.task)
    best = SAME, (), ("no small case shows it; larger ones do",)
    for requirement in lost:
        for call in requirement.cases[:MOST_CASES]:
            right, seen = reference.shows(call), answer.shows(call)
            if right.error in ("", "ValueError") and not meets(call, seen, right):
                digits, outcome = difference(answer.task.results, call, seen, right)
                if digits < best[0]:
                    if seen.error == WEIGHTS:  # that they do not fit shows where they are looked at
                        call = replace(call, args=(), kwargs={}, earlier=(), setting="", method="state")
                    best = digits, pasted(answer.task, call), outcome
                if digits <= 1:
                    return best[1:]
        if best[0] < SAME:
            break
    return best[1:]


def pasted(task: Task, call: Call) -> tuple[str, ...]:
    """A call as lines for a cell."""
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
        return (*lines, f"{task.public}({', '.join(given)})")
    options = [f"{name}={literal(value)}" for name, value in call.options.items()]
    made = f"layer = {task.public}({', '.join([*map(literal, call.init), *options])})"
    made += "" if call.training else ".eval()"
    method = {"": "layer", "state": "layer.state_dict"}.get(call.method, f"layer.{call.method}")
    earlier = [f"layer({', '.join(map(literal, args))})" for args in call.earlier]
    return made, *call.setting.splitlines(), *earlier, *lines, f"{method}({', '.join(given)})"


def literal(value: Any) -> str:
    """A value in Python."""
    if isinstance(value, Given):
        return value.shown
    if isinstance(value, list | tuple):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    if not isinstance(value, Tensor):
        return repr(value)
    usual = value.dtype in (torch.float32, torch.int64, torch.bool)
    shape, dtype = ", ".join(map(str, value.shape)), "" if usual else f", dtype={value.dtype}"
    if not value.numel():
        return f"torch.zeros({shape}{dtype})"
    if value.numel() > FEW_NUMBERS and (value == value.flatten()[0]).all():
        number = _exact(value.flatten()[0])
        made = f"ones({shape}" if number == "1." else f"full({tuple(value.shape)}, {number}"
    else:
        made = f"tensor({_exact(value)}"
    return f"torch.{made}{dtype})"


def _exact(value: Tensor) -> str:
    """Its numbers with as few digits as make the same tensor."""
    if value.dim():
        return f"[{', '.join(map(_exact, value))}]"
    number = value.item()
    if not isinstance(number, float) or number.is_integer():
        return shortened(number, 1)
    if not math.isfinite(number):
        return f"float('{number}')"
    texts = (f"{number:.{digits}g}" for digits in range(1, 18))
    return next(text for text in texts if torch.tensor(float(text), dtype=value.dtype) == value)


def shortened(value: Any, digits: int) -> str:
    """Nested lists of numbers with so many decimals at most: 0.25 with one is 0.2, and 2 is 2."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list):
        return "[" + ", ".join(shortened(item, digits) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shortened(item, digits)}" for name, item in value.items()) + "}"
    if isinstance(value, float) and abs(value) < 1e15:  # neither NaN nor infinity
        text = f"{value:.{digits}f}".rstrip("0")
        return "0." if text in ("-0.", "0.") else text
    return str(value)


def difference(results: tuple[str, ...], call: Call, seen: Seen, right: Seen) -> tuple[int, tuple[str, ...]]:
    """With how many decimals it is seen, and the lines that tell what should be and what is."""
    if seen.error == WEIGHTS:
        return 0, (seen.message,)
    if seen.error or right.error:
        first = right.value[0] if len(results) > 1 and isinstance(right.value, list) else right.value
        wanted = f"{results[0]} should be ".lstrip() + cut(shortened(first, 2))
        raised = _raised(seen) if seen.error else "nothing is raised"
        return 0, (f"{right.error} should be raised" if right.error else wanted, raised)
    if isinstance(seen.value, dict) and seen.value.get("gradients") is False:
        return 0, ("gradients should flow back, but the result is cut off from its inputs",)
    if seen.memory:
        return 0, bytes_used(seen)
    is_of_edits = isinstance(right.value, dict) and EDITED in right.value
    if seen.edited != right.edited and (call.backward or is_of_edits):
        are = "is" if len(seen.edited) == 1 else "are"
        return 0, (f"{', '.join(seen.edited)} should stay as given, but {are} changed in place",)
    if not call.backward:
        return values(results, seen.value, right.value)
    if bool(seen.gradients) != bool(right.gradients):
        return 0, ("gradients should flow back, but the result is cut off from its inputs",)
    names = [name for name in right.gradients if name in seen.gradients]
    found = [values((f"gradient of {name}",), seen.gradients[name], right.gradients[name]) for name in names]
    return min(found, default=(SAME, ()), key=lambda pair: pair[0])


def _raised(seen: Seen) -> str:
    """An error: its type, the first line of its message, and where it was raised, as far as there are any."""
    message = "".join(f": {cut(line)}" for line in seen.message.strip().splitlines()[:1])
    return f"raises {seen.error}{message}" + (f", at “{seen.line}”" if seen.line else "")


def bytes_used(seen: Seen) -> tuple[str, str]:
    """How many there should be, and how many there are."""
    kind, (most, used) = next(iter(seen.memory.items()))
    words = {"saved": "what is kept for the backward pass", "largest": "the largest tensor made"}
    what = words.get(kind, "all that is there at once, forwards or backwards,")
    return f"{what} should take at most {most:,} bytes", f"takes {used:,}"


def cut(text: str) -> str:
    """At most `WIDTH` characters, ending with a whole word or number."""
    start = text[: WIDTH - 2]
    return text if len(text) <= WIDTH else (start.rpartition(" ")[0] or start) + " …"


def values(names: tuple[str, ...], seen: Any, right: Any) -> tuple[int, tuple[str, ...]]:
    """The first of the results that differs, with as few decimals as show it."""
    if alike(seen, right):
        return SAME, ()
    if isinstance(right, list) and len(names) > 1:
        if not isinstance(seen, list) or len(seen) != len(right):
            return 0, _lines("", f"{' and '.join(names)}, a tuple of {len(right)}", kind(seen))
        found = [values((n,), s, r) for n, s, r in zip(names, seen, right, strict=False)]
        return min(found, key=lambda pair: pair[0])
    name = f"{names[0]} " if names[0] and len(names) == 1 else ""
    if isinstance(right, dict) and isinstance(seen, dict) and right.keys() == seen.keys():
        return next(f for f in (values((f"{name}{k}",), seen[k], right[k]) for k in right) if f[0] < SAME)
    if isinstance(seen, Tensor) and isinstance(right, Tensor):
        if seen.shape != right.shape and max(seen.numel(), right.numel()) > FEW_NUMBERS:
            return 0, _lines(name, *(f"of shape {tuple(x.shape)}" for x in (right, seen)))
        if seen.shape != right.shape:
            shown = [f"{shortened(x, 2)}, of shape {tuple(x.shape)}" for x in (right, seen)]
            return 0, _lines(name, *shown)
        if seen.dtype != right.dtype and not (seen.is_floating_point() and right.is_floating_point()):
            return 0, _lines(name, right.dtype, seen.dtype)
    elif isinstance(seen, Tensor | dict) or isinstance(right, Tensor) or seen is None:
        return 0, _lines(name, cut(shortened(right, 2)), kind(seen))
    for digits in range(1, MOST_DIGITS + 1):
        should, has = (shortened(x, digits).replace("float('nan')", "nan") for x in (right, seen))
        if should != has and len(should) <= WIDTH:
            return digits + _nearly(seen, right), _lines(name, should, has)
    return SAME, ()


def _nearly(seen: Any, right: Any) -> bool:
    """Whether two tensors differ by so little that another case may show more."""
    both = isinstance(seen, Tensor) and isinstance(right, Tensor) and seen.is_floating_point()
    return both and bool((seen.double() - right.double()).abs().max() < 0.15)


def _lines(name: str, should: object, has: object) -> tuple[str, str]:
    """One below the other."""
    return f"{name}should be {should}", f"{name}is        {has}"


def kind(value: Any) -> str:
    """What came back, in words."""
    if isinstance(value, dict) and value.keys() == {"instead"}:
        return kind(value["instead"])
    if isinstance(value, dict) and value.keys() == {"opaque"}:
        return value["opaque"]
    if isinstance(value, Tensor):
        return f"one tensor of shape {tuple(value.shape)}"
    if isinstance(value, list):
        return f"a {'tuple' if any(isinstance(part, Tensor) for part in value) else 'list'} of {len(value)}"
    return str(value)[:60]
