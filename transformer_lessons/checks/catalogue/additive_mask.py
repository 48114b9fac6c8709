"""A boolean mask as numbers to be added to scores. Stand-ins for −∞, −10,000 or less, are right."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Remark, Requirement, Task

LEAST = -1e4


def additive_mask(mask, like):
    """0 where True, −∞ where False, in the dtype of `like`."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -torch.inf)


def shown(mask: Tensor) -> Callable[[Tensor], Any]:
    """What stands where the mask is True, and whether there is a 0 elsewhere."""

    def view(numbers: Tensor) -> dict[str, Any]:
        numbers = numbers.expand_as(mask)
        return {"where mask is True": numbers[mask], "0 elsewhere": bool((numbers[~mask] == 0).any())}

    return view


def hidden(mask: Tensor) -> Callable[[Tensor], Any]:
    """Whether what stands where the mask is False is as good as −∞ (1), as ∞ (−1), or neither."""
    return lambda numbers: (1.0 * (numbers <= LEAST) - 1.0 * (numbers >= -LEAST)).expand_as(mask)[~mask]


def form(numbers: Tensor) -> dict[str, Any]:
    """Its shape, and that it is no constant."""
    return {"shape": list(numbers.shape), "all the same": bool((numbers == numbers.flatten()[0]).all())}


def dtype(numbers: Tensor) -> dict[str, Any]:
    """Its type, and that it is no constant."""
    return {"dtype": str(numbers.dtype), "all the same": form(numbers)["all the same"]}


def masks(draw: Draw) -> list[Tensor]:
    """Of two shapes; one hides a row, and one nothing."""
    empty = draw.mask(2, 1, 3, 5)
    empty[0, 0, 1] = False
    return [draw.mask(2, 1, 3, 5), empty, torch.ones(2, 3, dtype=torch.bool)]


def looked_at(view: Callable[[Tensor], Callable]) -> Callable[[Draw], list[Call]]:
    """Calls in which mask and like have one shape."""
    return lambda draw: [Call((mask, draw.normal(*mask.shape)), view=view(mask)) for mask in masks(draw)]


def shapes(draw: Draw) -> list[Call]:
    """Scores with more rows, or with fewer."""
    return [Call((draw.mask(2, 1, 1, 5), draw.normal(*shape)), view=form) for shape in ((2, 4, 3, 5), (3, 5))]


def dtypes(draw: Draw) -> list[Call]:
    """Of two types."""
    return [
        Call((draw.mask(3, 4), draw.normal(3, 4).to(kind)), view=dtype)
        for kind in (torch.float64, torch.float32)
    ]


def small(view: Callable | None = None, kind: torch.dtype = torch.float32) -> Callable[[], Iterator[Call]]:
    """Two keys; as many scores, and twice as many."""

    def cases() -> Iterator[Call]:
        for rows in ([True, False], [False, False], [True, True]):
            mask = torch.tensor(rows)
            for like in (torch.tensor([3, 4]), torch.tensor([[3, 4], [5, 6]])):
                yield Call((mask, like.to(kind)), view=view)

    return cases


TASK = Task(
    name="additive_mask",
    right=[additive_mask],
    arguments=("mask", "like"),
    requirements=(
        Requirement(
            "visible",
            "there is 0 where the mask is True, and nowhere else",
            points=1,
            calls=looked_at(shown),
            small=small(),
            anchor="masks-additive",
        ),
        Requirement(
            "hidden",
            "there is −∞, or a stand-in of −10,000 or less, where the mask is False",
            points=1,
            calls=looked_at(hidden),
            small=small(),
            anchor="masks-additive",
        ),
        Requirement(
            "shape",
            "the result has the shape of the mask, whatever that of like is",
            points=0.5,
            calls=shapes,
            small=small(),
            anchor="masks-additive",
        ),
        Requirement(
            "dtype",
            "the result has the dtype of like",
            points=0.5,
            calls=dtypes,
            small=small(dtype, torch.float64),
            anchor="masks-additive",
        ),
    ),
    remarks=(
        Remark(
            "in float16 it fails: -1e9 is not among its numbers, and −∞ is.",
            Call((torch.tensor([True, False]), torch.zeros(2).half()), view=lambda numbers: numbers <= LEAST),
        ),
    ),
)
