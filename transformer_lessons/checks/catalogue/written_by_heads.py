"""What each head writes. One head hides the blocks; a symmetric matrix hides that it is stored transposed."""

from collections.abc import Iterator

import torch

from transformer_lessons.checks.definitions import Call, Draw, Task


def written_by_heads(heads, weight):
    """Of each head, its summand of the output: (batch, heads, queries, d_model)."""
    blocks = weight.T.unflatten(0, (heads.size(1), -1))
    return heads @ blocks


def turned(draw: Draw) -> list[Call]:
    """One head, of width 5 and 2."""
    return [Call((draw.normal(2, 1, 3, wide), draw.normal(wide, wide))) for wide in (5, 2)]


def blocks(draw: Draw) -> list[Call]:
    """Several heads; once as many as queries, features of each, or sentences. The view takes off a bias."""
    found = []
    for b, h, q, d in ((2, 3, 4, 5), (1, 4, 4, 2), (3, 2, 5, 2), (2, 2, 3, 1)):
        matrix = draw.normal(h * d, h * d)
        found.append(Call((draw.normal(b, h, q, d), matrix + matrix.T), view=lambda y: y - y[:, :, :1]))
    return found


def small(*sizes: tuple[int, ...], is_even: bool = False) -> Iterator[Call]:
    """Heads, queries, d_k and sentences, by default one, of these sizes; the matrix is symmetric if `is_even`."""
    for h, q, d, b in ((*size, 1)[:4] for size in sizes):
        matrix = torch.arange(1.0, 1 + (h * d) ** 2).view(h * d, -1) % 7
        yield Call((torch.arange(1.0, 1 + b * h * q * d).view(b, h, q, d), matrix + is_even * matrix.T))


TASK = Task(
    name="written_by_heads",
    solution=[written_by_heads],
    probes={
        "blocks": (blocks, small((2, 1, 1), (2, 1, 2), (3, 1, 1), (2, 2, 1), (2, 1, 1, 2), is_even=True)),
        "turned": (turned, small((1, 1, 2), (1, 1, 3))),
        "gradients": (
            lambda draw: [Call((draw.normal(2, 3, 5, 2), draw.normal(6, 6)))],
            small((2, 1, 1), (2, 1, 2)),
        ),
    },
)
