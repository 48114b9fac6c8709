"""The sinusoidal encoding. Width 2 hides the frequencies; sorted rows hide the order of columns."""

from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Task, calls
from transformer_lessons.encodings import frequencies, sinusoidal


def rows(table: Tensor) -> dict[str, Any]:
    """The shape, whether row 0 can be that of position 0 (NaN can), and whether no two rows are alike."""
    first = table[0].abs()
    return {
        "the shape": list(table.shape),
        "row 0 holds zeros and ones": not ((first > 1e-6) & ((first - 1).abs() > 1e-6)).any(),
        "rows differ": len(table.unique(dim=0)) == len(table),
    }


def circles(table: Tensor) -> dict[str, Any]:
    """Whether sines start at 0 and rise, cosines at 1, and each step turns as the first did, by any angle."""
    sine, cosine = table.unflatten(-1, (-1, 2)).unbind(-1)
    at = torch.complex(cosine, sine)
    turns = (at[1:] - at[:-1] * at[1]).abs().amax() < 1e-4
    rise = (sine[1] >= 0) & (sine[1, 0] > 0)
    return {"row 0": table[0], "sines rise": rise, "lengths": at.abs(), "rows turn alike": turns}


LONG = 5003, 2
TASK = Task(
    name="sinusoidal",
    solution=[frequencies, sinusoidal],
    probes={
        "positions": (
            [*calls((7, 4), (1, 6), (5, 8), view=rows), *calls(LONG, view=lambda table: list(table.shape))],
            calls((1, 2), (2, 2), (2, 4), (3, 2), LONG),
        ),
        "pairs": (calls((7, 2), (4, 2), (6, 8), (9, 14), view=circles), calls((2, 2), (2, 4), (3, 4), LONG)),
        "frequencies": (
            [  # in any columns and with any signs; row 0 is judged elsewhere
                *calls((9, 4), (7, 6), (5, 16), view=lambda table: table[1:].abs().sort(-1).values),
                *calls((11, 8), view=lambda table: table[1:].abs()),
            ],
            calls((2, 4), (2, 6), (2, 8), LONG),
        ),
    },
)
