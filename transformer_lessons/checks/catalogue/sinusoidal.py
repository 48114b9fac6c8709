"""The sinusoidal encoding. Width 2 hides the frequencies; sorted rows hide the order of columns."""

from typing import Any

from torch import Tensor

from transformer_lessons.checks.definitions import Call, Task, calls
from transformer_lessons.encodings import frequencies, sinusoidal


def rows(table: Tensor) -> dict[str, Any]:
    """Where positions begin, and that none is like another."""
    return {
        "the shape": list(table.shape),
        "row 0 holds zeros and ones": bool(((table[0] == 0) | (table[0].abs() == 1)).all()),
        "rows differ": len(table.unique(dim=0)) == len(table),
    }


def circles(table: Tensor) -> dict[str, Tensor]:
    """Of whatever angles: a sine and its cosine begin at 0 and 1, and the sum of their squares is 1."""
    pairs = table.unflatten(-1, (-1, 2))
    return {"row 0": pairs[0], "sines rise": pairs[1, :, 0] > 0, "sums of squares": pairs.square().sum(-1)}


# In whatever columns the numbers are, and with whatever sign.
SORTED = {"view": lambda table: table.abs().sort(-1).values}


def small(*sizes: tuple[int, int]) -> list[Call]:
    """Short tables, the smallest first, and a long one."""
    return calls(*sizes, (5003, 2))


TASK = Task(
    name="sinusoidal",
    right=[frequencies, sinusoidal],
    probes={
        "positions": (
            [
                *calls((7, 4), (1, 6), (5, 8), view=rows),
                *calls((5003, 2), view=lambda table: list(table.shape)),
            ],
            small((1, 2), (2, 2), (2, 4), (3, 2)),
        ),
        "pairs": (calls((7, 2), (4, 2), (6, 8), (9, 14), view=circles), small((2, 2), (2, 4), (3, 4))),
        "frequencies": (
            [*calls((9, 4), (7, 6), (5, 16), **SORTED), *calls((11, 8), view=Tensor.abs)],
            small((2, 4), (2, 6), (2, 8)),
        ),
    },
)
