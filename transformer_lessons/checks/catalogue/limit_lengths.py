"""Sentences that are too long: refused, or cut."""

from collections.abc import Callable, Iterator
from typing import Any

from transformer_lessons.checks.definitions import Call, Requirement, Task, draws
from transformer_lessons.data.lengths import _cut, limit_lengths

CUT = {"too_long": "truncate"}


def lists(result: Any) -> Any:
    """Tuples are as good."""
    return [list(map(list, result[0])), list(result[1])]


def calls(*all_given: tuple[list, int], **options: str) -> list[Call]:
    """A call for sentences and a length."""
    return [Call(given, options, view=lists) for given in all_given]


def small(*all_given: tuple[list, int], **options: str) -> Callable[[], Iterator[Call]]:
    """The same, for the message."""
    return lambda: iter(calls(*all_given, **options))


TASK = Task(
    name="limit_lengths",
    right=[_cut, limit_lengths],
    arguments=("sentences", "max_length"),
    results=("kept", "cut"),
    requirements=(
        Requirement(
            "truncate",
            'with too_long="truncate", the first max_length ids stay, and the numbers of what was cut are told',
            points=1.5,
            calls=draws(
                *calls(
                    ([[5, 6, 7, 8], [9], [4, 5, 6]], 2),
                    ([[8, 7], [6, 5, 4], [6, 5, 4]], 2),
                    ([[7, 8]], 1),
                    **CUT,
                )
            ),
            small=small(([[5, 6, 7]], 2), ([[5], [6, 7, 8]], 2), **CUT),
            anchor="masks-lengths",
        ),
        Requirement(
            "end",
            "a cut sentence that ended with the end mark, 2, still does, within max_length ids",
            points=0.5,
            calls=draws(*calls(([[5, 6, 7, 2], [9, 8, 7]], 3), ([[2, 6, 7], [9, 8, 2, 2]], 2), **CUT)),
            small=small(([[5, 6, 7, 2]], 3), ([[5, 6, 7]], 2), ([[2, 6, 7]], 2), **CUT),
            anchor="masks-lengths",
        ),
        Requirement(
            "fitting",
            "sentences that fit stay as they are, either way",
            points=0.5,
            calls=draws(*calls(([[5, 6, 2], [9], []], 3)), *calls(([[5, 6, 2], [9], []], 3), ([], 3), **CUT)),
            small=lambda: iter([*calls(([[5, 6]], 2)), *calls(([[5, 6]], 2), ([[5]], 2), **CUT)]),
            anchor="masks-lengths",
        ),
        Requirement(
            "refuse",
            'with too_long="refuse", and without too_long, a ValueError refuses sentences that are too long',
            points=0.5,
            calls=draws(
                *calls(([[5], [6, 7, 8]], 2), ([[6, 7, 8], [5]], 2)),
                *calls(([[5], [6, 7, 8]], 2), ([[5, 6, 7, 2]], 3), too_long="refuse"),
            ),
            small=small(([[5, 6, 7]], 2)),
            anchor="masks-lengths",
        ),
    ),
)
