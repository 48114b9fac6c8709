"""Rotary positions. Width 2 hides frequencies and layout; equal vectors and positions hide the rotation."""

from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task, calls


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Beyond the package's, each sentence may have positions of its own."""
    d_k = x.size(-1)
    exponents = torch.arange(0, d_k, 2).double() / d_k
    angle = positions[..., None] * 10_000.0**-exponents  # (…, length, d_k / 2)
    if positions.dim() == 2:
        angle = angle[:, None]  # for all heads
    cosine, sine = angle.cos().to(x), angle.sin().to(x)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = even * cosine - odd * sine, even * sine + odd * cosine
    return torch.stack(pairs, dim=-1).flatten(-2)


def equals(y: Tensor) -> Tensor:
    """Which vectors of each head are equal, across all sentences."""
    vectors = y.transpose(0, 1).flatten(1, 2)
    return (vectors[:, :, None] - vectors[:, None]).norm(dim=-1) < 1e-3


def turn(draw: Draw) -> list[Call]:
    """Vectors of a single pair, at the first positions."""
    return [Call((draw.normal(*shape, 2), torch.arange(shape[-1]))) for shape in ((2, 3, 5), (1, 1, 7))]


def pairs(draw: Draw) -> list[Call]:
    """Vectors with a single 1: the entries that it turns into are a pair."""
    given = [(torch.eye(d).expand(2, d // 4, d, d), torch.full((d,), 5)) for d in (4, 6, 10)]
    return [Call(args, view=lambda y: y[0, 0].abs() > 1e-6) for args in given]


def frequencies(draw: Draw) -> list[Call]:
    """Equal entries and sorted results, so that the layout does not matter; last, sizes that all differ."""
    given = [(torch.ones(2, 1, 5, d), torch.arange(5)) for d in (4, 6, 16)]
    alike = calls(*given, view=lambda y: y.sort(-1).values)
    return [*alike, Call((draw.normal(2, 3, 4, 6), torch.arange(4)))]


def positions(draw: Draw) -> list[Call]:
    """Positions other than 0, 1, 2, …; 0 leaves a vector as it is. Once all axes but the last are alike."""
    places = [3, 11, 0, 11, 5003], [11, 12, 13], [5]
    given = [(draw.normal(2).expand(2 + (len(p) == 3), 3, len(p), 2), torch.tensor(p)) for p in places]
    return [Call((x, p), view=lambda y, x=x: equals(torch.cat([x, y], dim=2))) for x, p in given]


def batch(draw: Draw) -> list[Call]:
    """Positions per sentence, also with as many heads as sentences or positions; last, the same for all."""
    sizes = ((2, 4, 4, 2), (3, 3, 4, 2), (4, 2, 4, 2), (2, 3, 4, 6))
    given = [(draw.normal(d).expand(b, h, t, d), draw.integers(0, 9, b, t)) for b, h, t, d in sizes]
    x, same = draw.normal(2, 3, 4, 6), torch.tensor([3, 0, 7, 1])
    return [*(Call(args, view=equals) for args in given), Call((x, same.expand(2, 4)), same_as=(x, same))]


def small(*places: list, width: int = 2, heads: int = 1) -> Iterator[Call]:
    """Vectors of ones and zeros, which turn into cosines and sines, and one of other numbers."""
    for given in places:
        where = torch.tensor(given)
        for vector in ([1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]):
            shape = len(where) if where.dim() == 2 else 1, heads, where.size(-1), width
            yield Call((torch.tensor(vector[:width]).expand(shape).clone(), where))


TASK = Task(
    name="rotary",
    solution=[rotate],
    probes={
        "turn": (turn, small([0, 1], [1])),
        "pairs": (pairs, small([1], [2], width=4)),
        "frequencies": (frequencies, (c for h in (1, 2) for c in small([1], [2], [3], width=4, heads=h))),
        "positions": (positions, small([1], [2], [3, 1], [0, 2], [5003])),
        "batch": (batch, (c for h in (1, 2, 3) for c in small([[1], [2]], [[0, 1], [1, 2]], heads=h))),
        "gradients": (
            lambda draw: [Call((draw.normal(2, d // 2, 5, d), torch.arange(5))) for d in (2, 6)],
            small([1], [0, 1]),
        ),
    },
)
