"""A feed-forward layer that computes again, a few positions at a time."""

import torch
import torch.nn.functional as F

from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task
from transformer_lessons.checks.recomputing import checkpoint


def checkpointed_feed_forward(x, W1, b1, W2, b2, chunk):
    """The feed-forward layer, a few positions at a time in both directions."""

    def layer(x, W1, b1, W2, b2):
        return F.linear(F.relu(F.linear(x, W1, b1)), W2, b2)

    pieces = [checkpoint(layer, piece, W1, b1, W2, b2) for piece in x.split(chunk, dim=-2)]
    return torch.cat(pieces, dim=-2)


def call(draw: Draw, length: int, chunk: int, *lead: int) -> Call:
    """A model 3 wide, with a hidden layer of 5."""
    shapes = (*lead, length, 3), (5, 3), (5,), (3, 5), (3,)
    return Call((*(draw.normal(*shape) for shape in shapes), chunk))


# Two sentences of 29 positions, 4 at a time: one position's hidden layer, for both, is 808 bytes.
ROW = 2 * 101 * 4
LONG = [torch.ones(*shape) for shape in ((2, 29, 3), (101, 3), (101,), (3, 101), (3,))]
SAVED = [Call((*LONG, 4), enough={"saved": 4 * ROW})]
PEAK = [Call((*LONG, 4), enough={"largest": 4 * ROW, "peak": 18 * ROW})]
SMALL = [
    Call((*(torch.tensor(x) for x in ([[1.0], [2.0], [-1.0]], [[1.0]], [1.0], [[2.0]], [3.0])), n))
    for n in (3, 2)
]

TASK = Task(
    name="checkpointed_feed_forward",
    right=[checkpointed_feed_forward],
    arguments=("x", "W1", "b1", "W2", "b2", "chunk"),
    requirements=(
        Requirement(
            "values",
            "it returns relu(x W1ᵀ + b1) W2ᵀ + b2, in whatever chunks, with or without a batch",
            points=1,
            calls=lambda draw: [call(draw, 7, *more) for more in ((9, 2), (7, 2), (3, 2), (1, 2), (4,))],
            small=lambda: iter(SMALL),
            anchor="positionwise",
        ),
        Requirement(
            "gradients",
            "gradients reach x, both weights and both biases, and no argument is changed",
            points=1,
            calls=lambda draw: [call(draw, 7, 3, 2), call(draw, 7, 3)],
            small=lambda: iter(SMALL),
            anchor="costs-measured",
            backward=True,
        ),
        Requirement(
            "saved",
            "nothing as large as the whole hidden layer is kept for the backward pass",
            points=1,
            calls=lambda draw: SAVED,
            small=lambda: iter(SAVED),
            anchor="costs-measured",
        ),
        Requirement(
            "peak",
            "chunk positions of each sentence have their hidden layer in memory at a time, in both directions",
            points=1,
            calls=lambda draw: PEAK,
            small=lambda: iter(PEAK),
            anchor="costs-measured",
            needs="gradients",
        ),
    ),
)
