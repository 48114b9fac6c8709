"""BatchNorm that ignores padding. What BatchNorm itself requires is judged where nothing is padded."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lessons.checks.catalogue.batch_norm import AFFINE, ROLES, buffers, call, track, trained
from transformer_lessons.checks.definitions import Call, Draw, Task


class MaskedBatchNorm(nn.Module):
    """Each feature gets mean 0 and variance 1 over the real positions of the batch; padding gets zeros."""

    def __init__(self, d_model, eps=1e-5, momentum=0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))
        self.eps, self.momentum = eps, momentum

    def forward(self, x, mask):
        """Padding is replaced by zeros before anything is computed, and once more at the end."""
        real = mask.unsqueeze(-1)  # (batch, length, 1)
        x = torch.where(real, x, 0.0)
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean, variance = self.statistics(x, real)
        y = (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias
        return torch.where(real, y, 0.0)

    def statistics(self, x, real):
        """Mean and variance of the real positions; the running ones move on."""
        n = real.sum()
        mean = x.sum(dim=(0, 1)) / n
        variance = torch.where(real, x - mean, 0.0).square().sum(dim=(0, 1)) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / (n - 1), self.momentum)
        return mean, variance


ONE = [[[0.0], [4.0], [6.0]]], [[True, True, False]]
TWO = [[[0.0], [9.0], [2.0]], [[9.0], [4.0], [9.0]]], [[True, False, True], [False, True, False]]
PLAIN = {}, {"options": {"eps": 1.0}}, {"training": False}, AFFINE
PAIRS = [[[0.0, 1.0], [4.0, 3.0], [9.0, 9.0]]]


def padded(draw: Draw) -> tuple[Tensor, Tensor]:
    """Four sentences of five positions, two to five of them real, at random places."""
    mask = draw.uniform(4, 5).argsort(-1) < torch.tensor([[2], [3], [5], [4]])
    return 10 * draw.normal(4, 5, 3) + 5, mask


def real(x: Tensor, mask: Tensor, state: dict | None = None, **more: Any) -> Call:
    """A call judged by its outputs at real positions."""
    return call(x, mask, state=state, view=lambda y: y[mask], **more)


def statistics(draw: Draw) -> list[Call]:
    """Training in a new layer, and in one with trained weights."""
    return [real(*padded(draw)), real(*padded(draw)), real(*padded(draw), trained(draw, 3))]


def plain(draw: Draw) -> list[Call]:
    """Training without padding, also with a large ε; evaluation with and without; last, the statistics."""
    x, mask, state = 10 * draw.normal(2, 4, 3), torch.ones(2, 4, dtype=torch.bool), trained(draw, 3)
    calls = [call(x, mask, state=state), call(x / 10, mask, options={"eps": 0.5})]
    calls += [real(*padded(draw), state, training=False), call(x, mask, state=state, training=False)]
    calls += [Call((x, mask), init=(3,)), call(x, mask, options={"eps": 0.5}, training=False)]
    return [*calls, track((x, mask), training=False, state=state)]


def zeros(draw: Draw) -> list[Call]:
    """The outputs at padding, and whether all others are zero, in training and in evaluation."""
    x, mask = padded(draw)
    view = lambda y: {"padding": y[~mask], "everything is zero": not bool(y[mask].any())}  # noqa: E731
    return [call(x, mask, view=view, state=trained(draw, 3), training=mode) for mode in (True, False)]


def running(draw: Draw) -> list[Call]:
    """The statistics after a batch; then with another momentum, and equal lengths in all sentences."""
    x, mask = padded(draw)
    again = {"options": {"momentum": 0.25}, "state": trained(draw, 3)}
    return [track((x, mask)), track((x, mask[:1].expand(4, 5)), **again)]


def finite(value: Any) -> dict[str, bool]:
    """Whether all numbers are finite, and whether all of them are zero."""
    parts = list(buffers(value).values()) if isinstance(value, dict) else [value]
    is_zero = not any(part.nan_to_num(1.0).any() for part in parts)
    return {"all numbers finite": all(part.isfinite().all() for part in parts), "all of it zero": is_zero}


def unknown(draw: Draw) -> list[Call]:
    """Padding that holds NaN and infinity: whether the output or a running statistic shows it."""
    (x, mask), state = padded(draw), trained(draw, 3)
    x[~mask] = torch.tensor([float("nan"), float("inf"), 1.0])
    calls = [call(x, mask, state=state, training=mode, view=finite) for mode in (True, False)]
    return [*calls, track((x, mask), view=finite)]


def gradients(draw: Draw) -> list[Call]:
    """Gradients of input, weight and bias; also with NaN in the padding."""
    (x, mask), state = padded(draw), trained(draw, 3)
    calls = [call(x, mask, state=state), call(x, mask, state=state, training=False)]
    return [*calls, call(x.masked_fill(~mask[..., None], float("nan")), mask, state=state)]


def small(*ways: dict, filled: bool = False, holes: bool = False, after: bool = False) -> Iterator[Call]:
    """One feature, in one sentence, then in two: nothing padded, NaN in the padding, or the statistics."""
    for way, (x, mask) in itertools.product(ways or [{}], (ONE, TWO)):
        mask = torch.tensor(mask) | filled
        x = torch.where(mask[..., None] | (not holes), torch.tensor(x), float("nan"))
        yield track((x, mask), **way) if after else call(x, mask, **way)


TASK = Task(
    name="masked_batch_norm",
    solution=[MaskedBatchNorm],
    roles=ROLES,
    probes={
        "statistics": (statistics, [*small(), call(torch.tensor(PAIRS), torch.tensor(ONE[1]))]),
        "plain": (plain, [*small(*PLAIN, filled=True), *small(PLAIN[2], filled=True, after=True)]),
        "zeros": (zeros, small({}, AFFINE | {"training": False})),
        "running": (running, small({}, {"options": {"momentum": 0.5}}, after=True)),
        "unknown": (unknown, small({}, {"training": False}, holes=True)),
        "gradients": (gradients, [*small(), *small(holes=True)]),
    },
)
