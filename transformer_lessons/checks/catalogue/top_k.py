"""The k likeliest tokens. Distinct logits hide what happens to ties; a single row hides the axis."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task


def top_k(logits, k):
    """Probabilities of the k likeliest tokens, zero for the others."""
    best = logits.topk(min(k, logits.size(-1)), dim=-1)
    kept = torch.full_like(logits, -math.inf).scatter(-1, best.indices, best.values)
    return kept.softmax(-1)


def rows(*ks: float) -> Callable[[Draw], list[Call]]:
    """Calls with one row without a batch axis; last, the shape for a row of one token, with one."""
    one = Call((torch.zeros(1, 1), ks[-1]), view=lambda y: list(y.shape))
    return lambda draw: [*(Call((2 * draw.normal(7), k)) for k in ks), one]


def axes(k: float) -> Callable[[Draw], list[Call]]:
    """A row, which must get what it gets alone; the others are even or not, and far below it or above."""
    others = ((4, 7), 0, 0.02, -9), ((5, 5), -1, 0.02, 9), ((3, 5), 1, 2.0, 0), ((2, 3, 5), 3, 20.0, 0)

    def drawn(draw: Draw) -> list[Call]:
        calls = []
        for size, n, spread, level in others:
            x, row = spread * draw.normal(*size) + level, 2 * draw.normal(size[-1])
            x.view(-1, size[-1])[n] = row
            calls.append(Call((x, k), view=partial(apart, n), same_as=(row, k), view_as=partial(apart, 0)))
        return [*calls, Call((x, k), view=lambda y: list(y.shape))]

    return drawn


def apart(n: int, probabilities: Tensor) -> Tensor | object:
    """Row n; a row of equal numbers is unequal to everything."""
    row = probabilities.reshape(-1, probabilities.size(-1))[n]
    return row if row.amax() > row.amin() else object()


def how_many(probabilities: Tensor) -> dict[str, Tensor]:
    """The number of tokens above the least likely one; all tokens if none is."""
    more = (probabilities > probabilities.amin(-1, keepdim=True)).sum(-1)
    return {"the number of tokens that stay": torch.where(more == 0, probabilities.size(-1), more)}


def everything(draw: Draw) -> list[Call]:
    """A k above the vocabulary, as if one more token had been cut off; no probability may be 0."""
    view = lambda y: y[..., :4] if y[..., :4].all() else object()  # noqa: E731
    x = draw.normal(4)
    return [Call((x, 5), view=view, same_as=(F.pad(x, (0, 1), value=-99), 4)), Call((x[:1, None], 5))]


def small(k: float, *logits: list, view: Callable | None = None) -> list[Call]:
    """Calls with these logits."""
    return [Call((torch.tensor(x), k), view=view) for x in logits]


ROWS = [[0.0, 2.0, 1.0], [3.0, 1.0, 4.0]]
EQUAL = small(2, [1.0, 1.0, 1.0, 0.0], [2.0, 1.0, 1.0], [0.0, 0.0, 0.0], view=how_many)
EQUAL += small(1, [[0.0]], view=how_many)

TASK = Task(
    name="top_k",
    solution=[top_k],
    probes={
        "values": (rows(3, 1, 5), small(2, [0.0, 2.0, 1.0, 3.0], [1.0, 0.0, 2.0])),
        "axes": (axes(2), small(1, ROWS, [[5.0, 2.0], [0.0, 1.0]], [0.0, 1.0]) + small(2, ROWS)),
        "ties": (EQUAL, EQUAL[:1]),
        "all": (everything, small(3, [0.0, 1.0])),
    },
)
