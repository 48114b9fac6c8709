"""The loss over a large vocabulary, a few classes at a time. One chunk for all classes hides the chunks."""

from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.checkpointing import checkpoint
from transformer_lessons.checks.definitions import Call, Draw, Task


def chunked_cross_entropy(hidden, weight, targets, chunk, pad_id):
    """The mean loss of the real tokens, with a few classes at a time."""

    def log_sum(hidden, part):
        return (hidden @ part.mT).logsumexp(dim=-1)

    pieces = [checkpoint(log_sum, hidden, part) for part in weight.split(chunk)]
    total = torch.stack(pieces).logsumexp(dim=0)
    right = (hidden * weight[targets]).sum(dim=-1)
    real = targets != pad_id
    return (total - right).masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)


def call(draw: Draw, tokens: int, vocab: int, chunk: int, pad_id: int = 0, width: int = 7) -> Call:
    """A call whose targets are drawn from all classes but 0, the default pad_id."""
    hidden, weight = draw.normal(tokens, width), draw.normal(vocab, width)
    return Call((hidden, weight, draw.integers(1, vocab, tokens), chunk, pad_id))


def values(draw: Draw) -> list[Call]:
    """One chunk, several, one for each class, and a smaller last chunk."""
    return [call(draw, 5, *sizes) for sizes in ((13, 17), (12, 4), (13, 4), (11, 1), (9, 5))]


def padding(draw: Draw) -> list[Call]:
    """Padding anywhere, which must not change the loss; last, a batch of nothing but padding."""
    calls = []
    for pad_id, other in ((0, 1), (3, 0)):
        hidden, weight = draw.normal(7, 5), draw.normal(11, 5)
        targets = torch.tensor([pad_id, 4, other, 5, pad_id, 9, pad_id])
        real = targets != pad_id
        alone = hidden[real], weight, targets[real], 12, pad_id
        calls.append(Call((hidden, weight, targets, 12, pad_id), same_as=alone))
    nothing = torch.full((4,), 2)
    return [*calls, Call((draw.normal(4, 5), draw.normal(7, 5), nothing, 8, 2))]


def any_size(draw: Draw) -> list[Call]:
    """Logits in the thousands, and logits all far below zero, judged by whether the loss is finite."""
    targets = torch.tensor([1, 2, 5, 3])
    hidden, weight = draw.normal(4, 5), draw.normal(7, 5)
    pairs = (30 * hidden, 30 * weight), (hidden.abs() + 1, -900 * (weight.abs() + 1))
    return [Call((*pair, targets, 3, 0), view=is_finite) for pair in pairs]


def is_finite(value: Tensor) -> bool:
    """Whether the value holds neither NaN nor infinity."""
    return bool(value.isfinite().all())


def memory_call(chunk: int, **columns: int) -> Call:
    """A call with 53 tokens and 101 classes; the limits are given in columns of 53 logits."""
    enough = {kind: 53 * 4 * number for kind, number in columns.items()}
    return Call((torch.ones(53, 2), torch.ones(101, 2), torch.full((53,), 7), chunk, 0), limits=enough)


SAVED = [memory_call(13, saved=36)]
PEAK = [memory_call(13, largest=13, peak=90)]


def small(targets: list[int], *chunks: int, pad_id: int = 0, far: float = 1.0) -> Iterator[Call]:
    """Logits of 0, 1, 2 and 3, or a multiple of them, for each chunk size."""
    for chunk in chunks:
        hidden, weight = torch.ones(len(targets), 1), far * torch.arange(4.0)[:, None]
        yield Call((hidden, weight, torch.tensor(targets), chunk, pad_id))


TASK = Task(
    name="chunked_cross_entropy",
    solution=[chunked_cross_entropy],
    probes={
        "values": (values, [*small([1, 2], 4, 2, 1, 3), *small([1, 3], 2, 1, 3)]),
        "padding": (padding, [*small([1, 0], 4), *small([0, 2], 4, pad_id=2), *small([2, 2], 4, pad_id=2)]),
        "any_size": (any_size, [*small([1, 2], 2, far=900.0), *small([1, 2], 2, far=-900.0)]),
        "gradients": (
            lambda draw: [call(draw, 5, 13, 4), call(draw, 7, 11, 12, 3), *small([1, 0], 2)],
            [*small([1, 2], 2), *small([1, 0], 2)],
        ),
        "saved": (SAVED, SAVED),
        "peak": (PEAK, PEAK),
    },
)
