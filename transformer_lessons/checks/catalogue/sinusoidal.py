"""The sinusoidal encoding. Width 2 hides the frequencies; sorted rows hide the order of columns."""

from typing import Any

from torch import Tensor

from transformer_lessons.checks.definitions import Call, Remark, Task, calls
from transformer_lessons.encodings import frequencies, sinusoidal


def rows(table: Tensor) -> dict[str, Any]:
    """Where positions begin, and that none is like another."""
    return {
        "the shape": list(table.shape),
        "row 0 holds zeros and ones": bool(((table[0] == 0) | (table[0].abs() == 1)).all()),
        "rows differ": len(table.unique(dim=0)) == len(table),
    }


def shape(table: Tensor) -> list[int]:
    """Alone."""
    return list(table.shape)


def lengths(table: Tensor) -> Tensor:
    """The sum of the squares of a sine and its cosine: 1."""
    return table.unflatten(-1, (-1, 2)).square().sum(-1)


def sorted_rows(table: Tensor) -> Tensor:
    """In whatever columns the numbers are, and with whatever sign."""
    return table.abs().sort(-1).values


def small(*sizes: tuple[int, int]) -> list[Call]:
    """Short tables, the smallest first; of a long one, the shape."""
    return [*calls(*sizes), *calls((5003, 2), view=shape)]


TASK = Task(
    name="sinusoidal",
    right=[frequencies, sinusoidal],
    probes={
        "positions": (
            [*calls((7, 4), (1, 6), (5, 8), view=rows), *calls((5003, 2), view=shape)],
            small((1, 2), (2, 2), (2, 4), (3, 2)),
        ),
        "pairs": (
            [*calls((7, 2), (4, 2)), *calls((6, 8), (9, 14), view=lengths)],
            small((2, 2), (2, 4), (3, 4)),
        ),
        "frequencies": (
            [*calls((9, 4), (7, 6), (5, 16), view=sorted_rows), *calls((11, 8), view=Tensor.abs)],
            small((2, 4), (2, 6), (2, 8)),
        ),
    },
    remarks=(
        Remark(
            "positions in the thousands have four right digits in yours; angles in float64 keep all.",
            Call((2003, 14), view=lambda table: table[-3:]),
        ),
    ),
)
