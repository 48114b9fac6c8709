"""What should be and what is, on two lines, with as few decimals as show that they differ."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from transformer_lessons.checks.definitions import Call
from transformer_lessons.checks.seen import EDITED, WEIGHTS, Outcome, alike
from transformer_lessons.checks.words import FEW_NUMBERS, WIDTH, cut, describe, describe_error, shortened

MOST_DIGITS = 7
PLURAL = re.compile(r"(different )?[a-z]*[^as]s( of .*)? ")  # weights, rows of zeros; not bias, not loss


class Difference(NamedTuple):
    """The number of decimals that shows a difference, and the lines that say what should be and what is."""

    digits: int
    lines: tuple[str, ...] = ()


HIDDEN = Difference(99)  # both print the same
CUT_OFF = Difference(0, ("gradients should flow back, but the result is cut off from its inputs",))


def difference(results: tuple[str, ...], call: Call, seen: Outcome, right: Outcome) -> Difference:
    """The difference between what a call showed and what is right; `results` are names of returned values."""
    if seen.error == WEIGHTS:
        return Difference(0, (seen.message,))
    if seen.error or right.error:
        first = right.value[0] if len(results) > 1 and isinstance(right.value, list) else right.value
        wanted = f"{results[0]} should be ".lstrip() + cut(shortened(first, 3))
        wanted = f"{right.error} should be raised" if right.error else wanted
        return Difference(0, (wanted, describe_error(seen) if seen.error else "nothing is raised"))
    if isinstance(seen.value, dict) and seen.value.get("gradients") is False:
        return CUT_OFF
    if seen.memory:
        return Difference(0, _bytes(seen))
    is_of_edits = isinstance(right.value, dict) and EDITED in right.value
    if seen.edited != right.edited and (call.backward or is_of_edits):
        are = "is" if len(seen.edited) == 1 else "are"
        return Difference(0, (f"{', '.join(seen.edited)} should stay as given, but {are} changed in place",))
    if not call.backward:
        return _values(results, seen.value, right.value)
    if bool(seen.gradients) != bool(right.gradients):
        return CUT_OFF
    both = [name for name in right.gradients if name in seen.gradients]
    named = {name: f"gradient of {seen.names.get(name, name)}" for name in both}
    return _plainest(_values((named[n],), seen.gradients[n], right.gradients[n]) for n in both)


def _plainest(found: Iterable[Difference]) -> Difference:
    return min(found, default=HIDDEN, key=lambda one: one.digits)


def _bytes(seen: Outcome) -> tuple[str, str]:
    """The lines on the first limit exceeded: bytes allowed, and bytes used."""
    kind, (most, used) = next(iter(seen.memory.items()))
    words = {"saved": "what is kept for the backward pass", "largest": "the largest tensor made"}
    what = words.get(kind, "everything held in memory at once, forwards or backwards,")
    return f"{what} should take at most {most:,} bytes", f"takes {used:,}"


def _values(names: tuple[str, ...], seen: Any, right: Any) -> Difference:
    """The difference of two values; for several results, the plainest of theirs; for a dict, the first."""
    if alike(seen, right):
        return HIDDEN
    if isinstance(right, list) and len(names) > 1:
        if not isinstance(seen, list) or len(seen) != len(right):
            return _two("", f"a tuple of {len(right)}: {', '.join(names)}", describe(seen))
        return _plainest(_values((n,), s, r) for n, s, r in zip(names, seen, right, strict=False))
    name = f"{names[0]} " if names[0] and len(names) == 1 else ""
    if isinstance(right, dict) and isinstance(seen, dict) and right.keys() == seen.keys():
        found = (_values((f"{name}{key}",), seen[key], right[key]) for key in right)
        return next((one for one in found if one != HIDDEN), HIDDEN)
    if forms := _forms(seen, right):
        return _two(name, *forms)
    for digits in range(3 if isinstance(right, float) else 1, MOST_DIGITS + 1):  # by hand, 0.125 is not 0.1
        should, has = (shortened(x, digits).replace("float('nan')", "nan") for x in (right, seen))
        if should != has and len(should) <= WIDTH:
            return _two(name, should, has, digits + _is_near(seen, right))
    return HIDDEN


def _forms(seen: Any, right: Any) -> tuple[str, str] | None:
    """What should be and what is, if they differ in shape, dtype or kind; None otherwise."""
    if isinstance(seen, Tensor) and isinstance(right, Tensor):
        if seen.shape != right.shape:
            is_short = max(seen.numel(), right.numel()) <= FEW_NUMBERS
            numbers = [f"{shortened(x, 2)}, " * is_short for x in (right, seen)]
            return tuple(f"{n}of shape {tuple(x.shape)}" for n, x in zip(numbers, (right, seen), strict=True))
        floating = seen.is_floating_point() and right.is_floating_point()
        return None if seen.dtype == right.dtype or floating else (str(right.dtype), str(seen.dtype))
    if isinstance(seen, Tensor | dict) or isinstance(right, Tensor) or seen is None:
        return cut(shortened(right, 3)), describe(seen)
    return None


def _is_near(seen: Any, right: Any) -> bool:
    """Whether two tensors differ by so little that another case may show more."""
    both = isinstance(seen, Tensor) and isinstance(right, Tensor) and seen.is_floating_point()
    return both and bool((seen.double() - right.double()).abs().max() < 0.15)


def _two(name: str, should: str, has: str, digits: int = 0) -> Difference:
    verb = "are" if PLURAL.fullmatch(name) else "is"
    return Difference(digits, (f"{name}should be {should}", f"{name}{verb:<10}{has}"))
