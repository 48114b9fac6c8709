"""The sliding window. Rows whose window is full, rows with a shorter past, and more keys than queries."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.causal_mask import form, matrix
from transformer_lessons.checks.definitions import Call, Task, calls


def local_window_mask(queries, keys, window):
    """True for a query's own key and the window − 1 before it."""
    query = torch.arange(keys - queries, keys)[:, None]
    key = torch.arange(keys)
    return ((key <= query) & (key > query - window))[None, None]


def rows(start: int | None, end: int | None = None) -> Callable[[Tensor], Tensor]:
    """A view of the mask's rows from `start` to `end`."""
    return lambda mask: matrix(mask)[start:end]


masks = partial(calls, view=matrix)


def square(*windows: int, length: int) -> list[Call]:
    """Calls with as many keys as queries, judged by the rows whose window is full."""
    return [Call((length, length, w), view=rows(w - 1)) for w in windows]


# Judged by the rows whose past is shorter than the window.
EARLY = [Call((7, 7, w), view=rows(0, w - 1)) for w in (2, 3, 5)]


TASK = Task(
    name="local_window_mask",
    solution=[local_window_mask],
    probes={
        "values": (
            [*square(1, 2, 3, length=7), *square(2, 4, length=6)],
            masks((2, 2, 1), (2, 2, 2), (3, 3, 1), (3, 3, 2), (4, 4, 2), (4, 4, 3)),
        ),
        "wide": (
            [*EARLY, *masks((5, 5, 5), (4, 4, 9), (1, 1, 3))],
            masks((1, 1, 2), (2, 2, 2), (2, 2, 3), (3, 3, 2), (3, 3, 3), (3, 3, 4)),
        ),
        "more_keys": (
            masks((2, 7, 3), (1, 5, 2), (3, 4, 2), (4, 9, 3), (2, 5, 9)),
            masks((1, 2, 1), (1, 3, 2), (2, 3, 1), (2, 4, 2), (2, 3, 9)),
        ),
        "boolean": (calls((3, 3, 2), (2, 5, 2), view=form), calls((2, 2, 1), view=form)),
    },
)
