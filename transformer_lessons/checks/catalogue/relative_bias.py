"""A bias for each distance, which the package does not have. Wide tables hide the clipping."""

from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task, calls


def relative_bias(table: Tensor, queries: int, keys: int | None = None) -> Tensor:
    """The bias of each query and key, for each head."""
    keys = queries if keys is None else keys
    c = table.size(1) // 2
    i = torch.arange(keys - queries, keys)[:, None]
    j = torch.arange(keys)
    distance = (j - i).clamp(-c, c)
    return table[:, c + distance]


def distances(draw: Draw) -> list[Call]:
    """As many keys as queries, with a table that is wide enough."""
    return [Call((draw.normal(3, 11), 5)), Call((draw.normal(2, 13), 4, 4)), Call((draw.normal(4, 7), 4))]


def clipping(draw: Draw) -> list[Call]:
    """Distances beyond the table, whatever the places of the biases; last, with more keys than queries."""
    given = [(draw.normal(3, 5), 7), (draw.normal(2, 3), 4), (draw.normal(4, 1), 3), (draw.normal(3, 7), 5)]
    given.append((draw.normal(3, 5), 2, 7))
    return calls(*given, view=lambda bias: bias.flatten(1).sort(-1).values)


def more_keys(draw: Draw) -> list[Call]:
    """More keys than queries: one query, and several."""
    given = [(draw.normal(3, 15), 1, 5), (draw.normal(15, 15), 3, 5), (draw.normal(2, 15), 4, 7)]
    return [Call(args) for args in given]


def gradients(draw: Draw) -> list[Call]:
    """Gradients of the table: an entry gets those of all places where it is used."""
    return [Call((draw.normal(3, 11), 5)), Call((draw.normal(9, 9), 4, 4))]


def small(*sizes: tuple[int, ...], columns: int = 5) -> Iterator[Call]:
    """A table that holds the distances themselves, plus 10 in the second head."""
    c = columns // 2
    for heads in (1, 2):
        table = torch.arange(-c, c + 1.0) + 10 * torch.arange(heads)[:, None]
        for size in sizes:
            yield Call((table, *size))


TASK = Task(
    name="relative_bias",
    solution=[relative_bias],
    probes={
        "distances": (distances, small((2,), (3,))),
        "clipping": (clipping, small((2,), (3,), columns=3)),
        "more_keys": (more_keys, small((1, 2), (2, 3), (1, 3))),
        "gradients": (gradients, small((1,), (2,))),
    },
)
