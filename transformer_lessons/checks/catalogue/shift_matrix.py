"""The matrix that shifts the sinusoidal encoding. Width 2 hides frequencies; absolute sines show them."""

from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Task, calls
from transformer_lessons.encodings import frequencies, shift_matrix


def blocks(matrix: Tensor) -> dict[str, Any]:
    """Whether each row holds a sine and a cosine of one angle, whatever their signs, and nothing else."""
    pair = torch.arange(len(matrix)) // 2
    return {
        "M.square().sum(1)": matrix.square().sum(1),
        "M outside the 2 × 2 blocks on the diagonal": matrix[pair != pair[:, None]],
        "M is the identity": bool((matrix - torch.eye(len(matrix))).abs().max() < 1e-3),
    }


TASK = Task(
    name="shift_matrix",
    solution=[frequencies, shift_matrix],
    planted=("exponent_doubled", "frequency_inverted", "diagonal_in_halves", "sign_lost"),
    probes={
        "turn": (calls((1, 2), (2, 2), (5, 2)), calls((1, 2), (2, 2))),
        "pairs": (calls((1, 4), (2, 6), (5, 10), view=blocks), calls((1, 4), (2, 4))),
        "frequencies": (
            calls((1, 4), (3, 6), (2, 16), (3, 8), view=lambda matrix: matrix.diagonal(1)[::2].abs()),
            calls((1, 4), (2, 4), (5, 4), (1, 6)),
        ),
    },
)
