"""The smoothed loss. A single token hides sums, means and counts; no smoothing hides where ε goes."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.losses import label_smoothed_loss


def plain(value: list) -> list:
    """The loss, and as a float64 tensor the number of tokens, which may be of any type."""
    loss, tokens = value
    return [loss, torch.as_tensor(tokens).double()]


def size(value: list) -> Tensor:
    """The absolute value of the loss, also if the number of tokens comes before it."""
    return next(x for x in map(torch.as_tensor, value) if x.is_floating_point()).abs()


def equal(call: Call, logits: Tensor, targets: Tensor) -> Call:
    """Whether other logits and targets have the same loss; a loss of 0 equals nothing."""
    return replace(call, same_as=(logits, targets), view=lambda value: value[0] or object())


def call(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float | None, view: Any = plain) -> Call:
    """A call; the answer's own default is used if `smoothing` is None."""
    options = {"pad_id": pad_id} | ({} if smoothing is None else {"smoothing": smoothing})
    return Call((logits, targets), options, view=view)


def targets(draw: Draw, pad_id: int, classes: int, *lengths: int, length: int = 0) -> Tensor:
    """Targets with one row per length: that many real tokens, then padding."""
    ids = (draw.integers(1, classes, len(lengths), max(*lengths, length)) + pad_id) % classes
    return ids.where(torch.arange(ids.size(1)) < torch.tensor(lengths)[:, None], torch.tensor(pad_id))


def loss(draw: Draw) -> list[Call]:
    """Logits without padding and smoothing: a batch, and a single sentence."""
    calls = [call(draw.normal(3, 4, 7), targets(draw, 0, 7, 4, 4, 4), 0, 0.0)]
    return [*calls, call(draw.normal(6, 5), targets(draw, 0, 5, 6)[0], 0, 0.0)]


def hidden(draw: Draw, pad_id: int, *lengths: int) -> Call:
    """A call in which real targets are certain, so that any loss could only come from padding."""
    ids = targets(draw, pad_id, 7, *lengths, length=4)
    ids = ids if len(lengths) > 1 else ids[0]
    certain = 60 * torch.nn.functional.one_hot(ids, 7) + draw.normal(*ids.shape, 7)
    return call(draw.normal(*ids.shape, 7).where((ids == pad_id)[..., None], certain), ids, pad_id, 0.0)


def padding(draw: Draw) -> list[Call]:
    """Targets with some padding, with much, in a single sentence; then smoothed, with other logits there."""
    x, ids = draw.normal(2, 4, 7), targets(draw, 0, 7, 4, 2)
    other = equal(call(x, ids, 0, 0.2), x.where((ids != 0)[..., None], x.flip(-1)), ids)
    return [hidden(draw, 0, 4, 2, 3), hidden(draw, 0, 1, 3), hidden(draw, 0, 2), other]


def smoothing(draw: Draw) -> list[Call]:
    """One token with several values of ε, the default among them, judged by the size of the loss."""
    calls = [(draw.normal(1, 1, 7), targets(draw, 0, 7, 1), epsilon) for epsilon in (0.3, None, 0.8, 0.1)]
    at = (..., 0, ..., 0)  # in a batch, and without
    return [call(x[n], ids[n], 0, epsilon, size) for n, (x, ids, epsilon) in zip(at, calls, strict=True)]


def pad_id(draw: Draw) -> list[Call]:
    """A pad_id in the middle of the classes and at their end; then with two other classes exchanged."""
    x, ids, order = draw.normal(3, 5, 7), targets(draw, 3, 7, 5, 2, 4), torch.tensor([6, 1, 2, 3, 4, 5, 0])
    exchanged = equal(call(x, ids, 3, 0.2), x[..., order], order[ids])
    return [hidden(draw, 3, 4, 1, 2), hidden(draw, 6, 3), exchanged]


def large() -> list[Call]:
    """One target that seems impossible, with a loss of 2995, and one with a loss of 60."""
    ids = torch.tensor([2])
    some = call(torch.tensor([[0.0, 3000.0, 5.0]]), ids, 0, 0.0, size)
    return [some, call(torch.tensor([[[100.0, 0.0, 40.0]]]), ids[None], 0, 0.0, size)]


def gradients(draw: Draw) -> list[Call]:
    """Gradients with padding, with and without smoothing, and of a single sentence."""
    ids = targets(draw, 2, 5, 4, 2)
    return [call(draw.normal(*t.shape, 5), t, 2, e) for t, e in ((ids, 0.1), (ids, 0.0), (ids[1], 0.1))]


def small(*ids: list, smoothing: float = 0.0, pad: int = 0, sizes: tuple = (0.0, 2.0)) -> Iterator[Call]:
    """Logits of three classes in all combinations of `sizes`; with smoothing, also those of its default."""
    for right, row in itertools.product(ids, itertools.product(sizes, repeat=3)):
        target = torch.tensor(right)
        logits = torch.tensor(row).expand(*target.shape, 3).contiguous()
        yield call(logits, target, pad, smoothing)
        if smoothing:
            yield call(logits, target, pad, None)


TASK = Task(
    name="label_smoothing",
    solution=[label_smoothed_loss],
    results=("loss", "tokens"),
    probes={
        "loss": (loss, small([1], [1, 2], [[1, 2]], [[1], [2]])),
        "padding": (padding, itertools.chain(small([1, 0, 0]), small([1, 0], smoothing=0.1))),
        "smoothing": (smoothing, small([1], smoothing=0.5, sizes=(0.0, 10.0))),
        "pad_id": (pad_id, itertools.chain(small([1, 2], pad=2), small([1, 2], smoothing=0.1, pad=2))),
        "large": (large(), small([1], sizes=(0.0, 3000.0, 100.0))),
        "gradients": (gradients, small([1], [1, 2], smoothing=0.5, pad=2)),
    },
)
