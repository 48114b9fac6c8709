"""Scaled dot-product attention. Each requirement is tried where the others make no difference."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.checks.definitions import Call, Draw, Remark, Task


def qkv(draw: Draw, queries: int, keys: int, d_k: int, *lead: int, size: float = 1.0) -> tuple[Tensor, ...]:
    """Query, key and value; the value has width 5."""
    shapes = ((queries, d_k), (keys, d_k), (keys, 5))
    return tuple(size * draw.normal(*lead, *shape) for shape in shapes)


def averages(args: tuple[Tensor, ...]) -> Callable[[list[Tensor]], dict[str, Any]]:
    """A view of whether the results average the values, with whatever weights, and none that is hidden."""
    value, *masks = args[2:]

    def view(results: list[Tensor]) -> dict[str, Any]:
        output, weights = (one.float() for one in results)
        hidden = ~(masks[0] if masks else torch.tensor(True)).broadcast_to(weights.shape)
        return {
            "output.shape": list(output.shape),
            "weights.shape": list(weights.shape),
            "each row of weights.sum(-1)": weights.sum(-1),
            "weights.min() >= 0": bool(weights.min() >= 0),
            "output - weights @ value": (output - weights @ value).abs().max(),
            "weights of hidden keys": weights[hidden],
        }

    return view


def result(draw: Draw) -> list[Call]:
    """Averages, whatever the scores; a match too clear for the scale to matter; the best of large scores."""
    plain = [qkv(draw, 3, keys, 2, *lead) for keys, lead in ((4, (1,)), (7, ()), (4, (2, 3)), (3, (2,)))]
    clear = 9 * torch.eye(3)[[1, 2, 0, 1]], 9 * torch.eye(3)[[2, 0, 1]], draw.normal(3, 5)
    large = torch.tensor([[8.0]]), torch.tensor([[8.0], [9.0], [10.0]]), draw.normal(3, 5)
    # With d_k = 1, the scale makes no difference.
    best = Call(large, view=lambda results: results[1] == results[1].amax())
    return [*(Call(args, view=averages(args)) for args in plain), Call(clear), best]


def scale(draw: Draw) -> list[Call]:
    """Sizes that are all different in the first call, and a mask that hides nothing in the last."""
    given = qkv(draw, 3, 5, 7, 2, 2), qkv(draw, 3, 4, 2, 2, 3), qkv(draw, 3, 3, 3, 3)
    masked = *qkv(draw, 3, 4, 7), torch.ones(3, 4, dtype=torch.bool)
    return [Call(args) for args in (*given, masked)]


def mask(draw: Draw) -> list[Call]:
    """Masks of any number of axes; one hides nothing, two leave only low or very low scores visible."""
    full, row, low = qkv(draw, 3, 4, 1, 2, 2), qkv(draw, 3, 4, 1), qkv(draw, 3, 4, 1, 2, size=3.0)
    lowest = torch.full((3, 1), -12.0), torch.full((3, 1), 12.0), draw.normal(3, 5)
    apart = torch.full((3, 1), 6.0), torch.tensor([[-5.0], [5.0], [5.0]]), draw.normal(3, 5)
    given = [(*full, draw.mask(*shape)) for shape in ((2, 2, 3, 4), (2, 1, 1, 4), (3, 4))]
    given += [(*row, draw.mask(3, 4)), (*row, torch.ones(3, 4, dtype=torch.bool)), (*low, draw.mask(2, 3, 4))]
    given.append((*qkv(draw, 3, 5, 7, 2, 2), draw.mask(2, 1, 1, 5)))  # sizes that are all different
    given += [(*one, torch.ones(3, 3, dtype=torch.bool).tril()) for one in (lowest, apart)]
    return [Call(args, view=averages(args)) for args in given]


def is_finite(value: list[Tensor]) -> dict[str, bool]:
    """Whether output and weights hold neither NaN nor infinity."""
    finite = torch.cat([part.flatten() for part in value]).isfinite().all()
    return {"that output and weights are finite": bool(finite)}


def finite(draw: Draw) -> list[Call]:
    """A query that sees nothing, and scores in the thousands."""
    empty = draw.mask(2, 3, 4) & torch.tensor([True, False, True])[:, None]
    large = qkv(draw, 3, 4, 3, size=40.0), qkv(draw, 4, 4, 3, 4, 4, size=40.0)
    return [Call(args, view=is_finite) for args in ((*qkv(draw, 3, 4, 1, 2), empty), *large)]


def gradients(draw: Draw) -> list[Call]:
    """Gradients with and without heads; last, with a mask that hides nothing."""
    masked = *qkv(draw, 3, 4, 3, 2), torch.ones(3, 4, dtype=torch.bool)
    plain = qkv(draw, 3, 4, 1), qkv(draw, 3, 4, 1, 2, 3), qkv(draw, 4, 4, 3, 4)
    return [*map(Call, plain), Call(masked)]


def small(
    *, d_k=1, keys=2, queries=1, masks: tuple = (None,), numbers: tuple = (0.0, 2.0, 1.0, 3.0), lead=()
) -> Iterator[Call]:
    """Whole numbers; the values 10, 20, … show which of them are averaged."""

    def columns(n: int) -> list[Tensor]:
        """Matrices of n rows; the first column takes all combinations of numbers, the others are 0."""
        counted = itertools.product(numbers, repeat=n)
        zeros = [0.0] * (d_k - 1)
        return [torch.tensor([[first, *zeros] for first in column]) for column in counted if any(column)]

    value = 10 * torch.arange(1.0, keys + 1)[:, None]
    cases = itertools.product(columns(queries), columns(keys), masks)
    for query, key, visible in itertools.islice(cases, 100):
        args = tuple(x.view(*lead, *x.shape) for x in (query, key, value))
        yield Call(args if visible is None else (*args, torch.tensor(visible)))


def small_mask() -> Iterator[Call]:
    """Masks for one query, for two sentences, and where a very low score stays visible."""
    yield from small(keys=3, masks=([[True, False, True]], [[False, True, True]]))
    given = torch.ones(2, 1, 1), torch.ones(2, 2, 1), torch.tensor([[[10.0], [20.0]]] * 2)
    yield Call((*given, torch.tensor([[[True, False]], [[False, True]]])))
    yield from small(numbers=(-12.0, 12.0), masks=([[True, False]],))


def small_finite() -> Iterator[Call]:
    """Large scores, and a query that sees nothing; any finite numbers are accepted."""
    large = (0.0, 1.0, 900.0)
    cases = *small(numbers=large), *small(masks=([[False, False]],)), *small(numbers=large, queries=2)
    return (replace(case, view=is_finite) for case in cases)


ROWS = {"queries": 2, "keys": 3}
RESULTS = ROWS, {**ROWS, "lead": (1,)}, {"d_k": 2}, {"numbers": (8.0, 9.0)}
TASK = Task(
    name="scaled_dot_product_attention",
    solution=[scaled_dot_product_attention],
    results=("output", "weights"),
    planted=("keys_viewed", "scaled_by_another_axis", "filled_near_zero", "softmax_over_axis"),
    probes={
        "result": (result, (call for sizes in RESULTS for call in small(**sizes))),
        "scale": (scale, [*small(d_k=4), *small(d_k=2), *small(d_k=4, lead=(1,))]),
        "mask": (mask, small_mask()),
        "finite": (finite, small_finite()),
        "gradients": (gradients, [*small(), *small(d_k=4), *small(masks=([[True, True]],))]),
    },
    remarks=(
        Remark(
            "your code gives weights to a query that sees nothing; zeros would show that it sees nothing.",
            Call((torch.ones(1, 2), torch.ones(2, 2), torch.ones(2, 1), torch.zeros(1, 2, dtype=torch.bool))),
        ),
    ),
)
