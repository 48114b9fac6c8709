"""One mask from several. This is the only task in which arguments that make no sense must be refused."""

from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.causal_mask import form, matrix
from transformer_lessons.checks.definitions import Call, Draw, Task


def combine_masks(*masks):
    """True where every mask is; None if there is none."""
    masks = [mask for mask in masks if mask is not None]
    if not masks:
        return None
    for mask in masks:
        if mask.dtype != torch.bool:
            raise ValueError(f"masks: expected torch.bool, got {mask.dtype}")
    combined = masks[0]
    for mask in masks[1:]:
        try:
            combined = combined & mask
        except RuntimeError:
            raise ValueError(f"masks: {combined.shape} and {mask.shape} do not fit") from None
    return combined


def call(*masks: Tensor | None) -> Call:
    """A call judged by what the mask means; leading axes of size one are optional."""
    return Call(masks, view=None if all(mask is None for mask in masks) else matrix)


def values(draw: Draw) -> list[Call]:
    """Two masks of the same shape; in the first call, one of them hides everything."""
    nothing = torch.zeros(2, 6, dtype=torch.bool)
    alike = (3, 1, 4, 5), (2, 6)
    return [call(draw.mask(2, 6), nothing), *(call(draw.mask(*n), draw.mask(*n)) for n in alike)]


def several(draw: Draw) -> list[Call]:
    """One mask, three, and five that each hide something no other does; last, the dtype for two."""
    first, second, third = (draw.mask(2, 1, 3, 4) | draw.mask(2, 1, 3, 4) for _ in range(3))
    five = ~torch.eye(5, dtype=torch.bool)[:, None, None, None, :]
    calls = [call(first), call(first, second, third), call(*five.expand(5, 2, 1, 3, 5))]
    return [*calls, Call((first, second), view=form)]


def broadcasting(draw: Draw) -> list[Call]:
    """Padding and a causal mask, with and without leading axes."""
    past = torch.ones(1, 1, 3, 4, dtype=torch.bool).tril(1)
    padding = torch.arange(4) < torch.tensor([[4], [2]])
    padding = padding[:, None, None, :]
    pairs = [(padding, past), (past, padding), (past[0, 0], padding), (padding, past[0, 0])]
    pairs += [(past, padding[1, 0, 0]), (draw.mask(5, 3, 4), padding), (draw.mask(4, 4), padding)]
    return [call(*pair) for pair in pairs]


def none(draw: Draw) -> list[Call]:
    """None before, between and after masks; None alone; and no argument at all."""
    a, b = draw.mask(2, 1, 3, 4), draw.mask(2, 1, 3, 4)
    return [call(*masks) for masks in ((None, a), (a, None), (None, a, None, b), (None, None), ())]


def refusals(draw: Draw) -> list[Call]:
    """Masks of numbers, and masks whose shapes do not fit; each must be refused."""
    a = draw.mask(2, 1, 3, 4)
    others = a.float(), a.long(), a.byte(), a.half(), draw.mask(2, 1, 3, 5), draw.mask(2, 1, 2, 4)
    return [call(a.float()), *(call(a, other) for other in others)]


def tensors(*masks: list | None) -> Call:
    """A call with masks written as lists."""
    return call(*(None if mask is None else torch.tensor(mask) for mask in masks))


T, F = True, False
SQUARE, OTHER, ROW, SENTENCES = [[T, F], [T, T]], [[T, T], [F, T]], [F, T], [[[[T, T]]], [[[F, T]]]]
SMALL = [tensors([T, F], [T, T]), tensors([T, F], [F, T]), tensors([T, T], [T, F])]
SMALL += [tensors([T, T, F], [T, F, T], [F, T, T]), tensors(SQUARE), tensors(SQUARE, ROW)]
SMALL += [tensors(ROW, SQUARE), tensors(SQUARE, SENTENCES), tensors(SENTENCES, OTHER)]
SMALL += [tensors([T, F], None), tensors(None, [T, F]), tensors(), tensors(None)]
SMALL += [tensors([T, F], None, [T, T]), tensors([T, T], None, [T, F])]
NUMBERS = [tensors([1.0, 0.0]), tensors([T, T], [1.0, 0.0]), tensors([1, 0]), tensors([T, T], [1, 0])]
LENGTHS = [tensors([T, T], [T, F, T]), tensors(SQUARE, [[T, F], [T, T], [F, T]])]

TASK = Task(
    name="combine_masks",
    solution=[combine_masks],
    probes={
        "values": (values, SMALL),
        "several": (several, [replace(SMALL[0], view=form), *SMALL]),
        "broadcasting": (broadcasting, SMALL),
        "none": (none, SMALL),
        "refusals": (refusals, NUMBERS + LENGTHS),
    },
)
