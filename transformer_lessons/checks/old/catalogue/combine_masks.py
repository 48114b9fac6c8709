"""The check of `combine_masks`: one mask of several, with "and"."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import (
    THREE_AXES_AS_BATCH,
    three_axes_as_batch,
)
from transformer_lessons.checks.old.catalogue.masks_mistakes import TO_TYPES
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import combine

__all__ = ["TASK"]

COMBINE, CONVENTION, BROADCAST, WRONG = (
    "#ch04-combine",
    "#ch04-convention",
    "#ch04-broadcast",
    "#ch04-wrong",
)


def _sizes(seed: int) -> dict[str, int]:
    return dict(
        zip(
            ("batch", "heads", "queries", "keys"),
            random.Random(seed).sample([2, 3, 5, 7, 11], 4),
            strict=True,
        )
    )


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, q, k = s["batch"], s["heads"], s["queries"], s["keys"]
    padding = draw.mask(b, 1, 1, k)
    past = torch.ones(1, 1, q, k, dtype=torch.bool).tril(k - q)
    first, second = draw.mask(b, 1, q, k), draw.mask(b, 1, q, k)
    heads = draw.mask(1, h, 1, k)
    numbers = {kind: padding.to(kind) for kind in (torch.float32, torch.int64)}
    return {
        "both": Probe([padding, past]),
        "reversed": Probe([past, padding]),
        "same_shape": Probe([first, second]),
        "single": Probe([first]),
        "three": Probe([padding, past, heads]),
        "five": Probe([heads, second, padding, past, first]),
        "none_last": Probe([past, None]),
        "none_first": Probe([None, padding]),
        "nones": Probe([None, padding, None, past, None]),
        "empty_rows": Probe([first, ~first]),
        "matrix": Probe([draw.mask(q, k), padding]),
        "keys_only": Probe([past, draw.mask(k)]),
        "nothing": Probe([], view=_is_none),
        "only_none": Probe([None, None], view=_is_none),
        "zeros_and_ones": Probe([past, numbers[torch.float32]], refused="a mask of floats 0 and 1"),
        "floats_alone": Probe([numbers[torch.float32]], refused="a mask of floats 0 and 1, and no other"),
        "integers": Probe([past, numbers[torch.int64]], refused="a mask of integers 0 and 1"),
        "misfit": Probe([past, draw.mask(b, 1, 1, k + 1)], refused=f"masks for {k} and for {k + 1} keys"),
        "few_axes": Probe([draw.mask(q, k), None, draw.mask(k)]),
        "three_axes": Probe([draw.mask(h, q, k), padding]),
        "column": Probe([draw.mask(b, 1, 1, q).mT, past]),
        "hides_all": Probe([past, torch.zeros_like(padding)]),
        "bytes": Probe([past, padding.to(torch.uint8)], refused="a mask of uint8, 0 and 1"),
        "misfit_queries": Probe(
            [past, draw.mask(b, 1, q + 1, k)], refused=f"masks for {q} and for {q + 1} queries"
        ),
        "int32": Probe([past, padding.int()], refused="a mask of int32, 0 and 1"),
        **_misfits(s, draw, padding),
    }


def _misfits(s: dict[str, int], draw: Draw, padding: Tensor) -> dict[str, Probe]:
    """Masks that do not fit each other, or only one that is not their neighbour."""
    b, q, k = s["batch"], s["queries"], s["keys"]
    open_ = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    return {
        "misfit_batch": Probe(
            [draw.mask(b + 1, 1, 1, k), draw.mask(b + 2, 1, q, k)],
            refused=f"masks for batches of {b + 1} and of {b + 2}",
        ),
        "misfit_later": Probe(
            [open_, padding, draw.mask(b, 1, 1, k + 1)],
            refused=f"masks for any number of keys, for {k} and for {k + 1}",
        ),
        "misfit_apart": Probe(
            [padding, open_, draw.mask(b, 1, 1, k + 1)], refused=f"masks for {k} keys, any number, {k + 1}"
        ),
    }


def _is_none(value: Any) -> dict:
    return {"without any mask it should return None": value is None}


def _boolean(mask: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        raise ValueError("masks: expected booleans")
    return mask


def _fits(a: Tensor | None, b: Tensor | None) -> None:
    if a is None or b is None:
        return
    sizes = zip(reversed(a.shape), reversed(b.shape), strict=False)
    if any(x != y and 1 not in (x, y) for x, y in sizes):
        raise ValueError("masks: expected to broadcast")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    keep: Callable = lambda masks: [mask for mask in masks if mask is not None]
    none: Callable = lambda: None  # what happens at a None that was kept
    accept: Callable = _boolean
    align: Callable = lambda mask: mask
    choose: Callable = lambda masks: masks
    nothing: Callable = lambda: None  # the answer for no mask
    fits: Callable = _fits
    join: Callable = lambda a, b: a & b
    finish: Callable = lambda mask: mask
    kind: Callable = lambda mask: mask


def assemble(steps: Steps) -> Callable:
    """The combination in these steps."""

    def combine_masks(*masks):
        def read(mask):
            return steps.none() if mask is None else steps.align(steps.accept(mask))

        kept = steps.choose([read(mask) for mask in steps.keep(masks)])
        if not kept:
            return steps.nothing()
        combined = kept[0]
        for mask in kept[1:]:
            steps.fits(combined, mask)
            combined = steps.join(combined, mask)
        return None if combined is None else steps.kind(steps.finish(combined))

    return combine_masks


def _only_keys_fit(a: Tensor, b: Tensor) -> None:
    if a.size(-1) != b.size(-1) and 1 not in (a.size(-1), b.size(-1)):
        raise ValueError("masks")


def _only_matrices_fit(a: Tensor, b: Tensor) -> None:
    _fits(a[(0,) * (a.dim() - 2)], b[(0,) * (b.dim() - 2)])


def _fit_the_first(masks: list[Tensor]) -> list[Tensor]:
    for mask in masks[1:]:
        _fits(masks[0], mask)
    return masks


def _fit_their_neighbours(masks: list[Tensor]) -> list[Tensor]:
    for one, other in pairwise(masks):
        _fits(one, other)
    return masks


def _fresh_causal(mask: Tensor) -> Tensor:
    queries, keys = mask.shape[-2:] if mask.dim() > 1 else (1, mask.size(-1))
    return torch.ones_like(mask).reshape(*mask.shape[:-2], queries, keys).tril(keys - queries)


def _fresh_square(mask: Tensor) -> Tensor:
    return torch.ones(1, 1, mask.size(-1), mask.size(-1), dtype=torch.bool).tril()


def _reopened(mask: Tensor) -> Tensor:
    return mask | ~mask.any(-1, keepdim=True)


def _axes_at_the_end(mask: Tensor) -> Tensor:
    return mask[(..., *[None] * (4 - mask.dim()))]


def _four_axes(mask: Tensor) -> Tensor:
    return mask[(None,) * (4 - mask.dim())]


def _two_axes_as_padding(mask: Tensor) -> Tensor:
    return mask[:, None, None, :] if mask.dim() == 2 else mask


def _fails(error: Exception) -> Callable:
    def fail(*_) -> None:
        raise error

    return fail


def _floats_crash(mask: Tensor) -> Tensor:
    if mask.is_floating_point():
        raise RuntimeError("\"bitwise_and_cpu\" not implemented for 'Float'")
    return mask.bool()


MISTAKES = (
    Mistake(
        "or_for_and",
        "you join the masks with “or”; a key may be seen only if every mask allows it, which is “and”",
        "“Or” is right where True means “hidden”, and the sum of two boolean masks is an “or” too.",
        "Each mask opens what the other hides.",
        COMBINE,
        ({"join": lambda a, b: a | b},),
    ),
    Mistake(
        "inverted",
        "your mask is the wrong way round: True means “may attend”",
        "Some of PyTorch's own masks mean the opposite.",
        "Only what should be hidden is seen.",
        CONVENTION,
        ({"finish": lambda mask: ~mask}, {"finish": lambda mask: ~mask, "join": lambda a, b: a | b}),
    ),
    Mistake(
        "first_only",
        "you use the first mask and forget the others",
        "A mask that is there already is taken to be enough.",
        "With padding first, the future is open.",
        COMBINE,
        ({"choose": lambda masks: masks[:1]}, {"join": lambda a, b: a, "fits": lambda a, b: None}),
    ),
    Mistake(
        "last_only",
        "you overwrite the mask with each new one, so that only the last counts",
        "`mask = …` where the old mask should have been joined in.",
        "Whoever passes a padding mask and then a causal one has lost the padding.",
        WRONG,
        ({"choose": lambda masks: masks[-1:]}, {"join": lambda a, b: b}),
    ),
    Mistake(
        "fresh_causal",
        "you put a fresh causal mask in the place of those you were given",
        "A mask that is passed is taken as a sign that masking is wanted at all.",
        "The padding mask is lost, and encoders go blind to what follows.",
        WRONG,
        (
            {"finish": _fresh_causal},
            {"choose": lambda masks: [_fresh_causal(masks[0])] if masks else []},
            {"choose": lambda masks: [_fresh_square(masks[0])] if masks else []},
        ),
    ),
    Mistake(
        "first_two_only",
        "you combine the first two masks and forget any others",
        "Padding and causal are all there is, at first.",
        "A third mask, of segments for example, has no effect.",
        COMBINE,
        ({"choose": lambda masks: masks[:2]},),
    ),
    Mistake(
        "none_unhandled",
        "you do not skip None, which stands for “no mask” and allows everything",
        "Masks are optional arguments, and None is what they are when nobody passed one.",
        "Callers without padding get an error.",
        COMBINE,
        (
            {"keep": list, "none": _fails(AttributeError("'NoneType' object has no attribute 'dtype'"))},
            {"keep": list},
            {"keep": list, "join": torch.logical_and},
        ),
    ),
    Mistake(
        "stops_at_none",
        "you stop at a None, or return None because of one; the other masks count all the same",
        "break or return where continue was meant, or None taken for the end of the list.",
        "Without padding, the causal mask is lost too.",
        COMBINE,
        (
            {"keep": lambda masks: list(takewhile(lambda mask: mask is not None, masks))},
            {"keep": lambda masks: [] if any(mask is None for mask in masks) else masks},
        ),
    ),
    Mistake(
        "nothing_is_a_tensor",
        "you return a tensor where there is no mask at all; None is what says so",
        "The loop starts from a tensor of True.",
        "A dense mask takes the place of none, and fused kernels slow down.",
        COMBINE,
        (
            {"nothing": lambda: torch.tensor(True)},
            {"nothing": lambda: torch.ones(1, dtype=torch.bool)},
            {"nothing": lambda: torch.ones(1, 1, dtype=torch.bool)},
            {"nothing": lambda: torch.ones(1, 1, 1, 1, dtype=torch.bool)},
        ),
    ),
    Mistake(
        "nothing_crashes",
        "your function fails if there is no mask at all; it should return None",
        "reduce and masks[0] need something to start from.",
        "Callers with nothing to hide get an error.",
        COMBINE,
        (
            {"nothing": _fails(TypeError("reduce() of empty iterable with no initial value"))},
            {"nothing": _fails(IndexError("list index out of range"))},
            {"nothing": _fails(IndexError("pop from empty list"))},
            {"nothing": _fails(StopIteration())},
            {"nothing": _fails(RuntimeError("stack expects a non-empty TensorList"))},
        ),
    ),
    Mistake(
        "empty_rows_reopened",
        "you open rows again in which nothing may be seen; a mask says what it says, even “nothing”",
        "It keeps the softmax from NaN.",
        "Such a query sees everything that was forbidden.",
        "#ch04-empty-rows",
        ({"finish": _reopened},),
    ),
    Mistake(
        "hiding_all_skipped",
        "you skip masks that hide everything, as if they were None; they leave no key to anybody",
        "any() tells whether there is something in a tensor.",
        "What is forbidden altogether is open.",
        COMBINE,
        ({"keep": lambda masks: [mask for mask in masks if mask is not None and mask.any()]},),
    ),
    Mistake(
        "axes_at_the_end",
        "you add missing axes at the end; shapes are lined up from the right, so they are missing on the left",
        "unsqueeze(-1) until there are four.",
        "Queries and keys meet batch and heads: an error, or worse, none.",
        BROADCAST,
        ({"align": _axes_at_the_end},),
    ),
    replace(THREE_AXES_AS_BATCH, variants=({"align": lambda mask: three_axes_as_batch(mask, 4)},)),
    Mistake(
        "axes_added",
        "you give the result four axes, whatever the masks have; it has those to which the masks broadcast",
        "Four are what attention has in the end.",
        "Scores without heads get an axis more.",
        BROADCAST,
        ({"finish": _four_axes},),
    ),
    Mistake(
        "two_axes_as_padding",
        "you take a mask of two axes for (batch, keys); by broadcasting it is (queries, keys)",
        "Padding is often passed in that shape.",
        "A causal matrix is read as padding, and its rows meet the batch.",
        BROADCAST,
        ({"align": _two_axes_as_padding},),
    ),
    Mistake(
        "squeezed",
        "you squeeze the axes of size one away; they keep the others in their places",
        "The result prints nicer without them.",
        "The batch axis meets the heads.",
        BROADCAST,
        ({"finish": lambda mask: mask.squeeze(1)}, {"finish": Tensor.squeeze}),
    ),
    Mistake(
        "in_place",
        "you write into the first mask, which is the caller's",
        "&= changes a tensor where it stands.",
        "Masks of other shapes fail, and a mask that is used again has been narrowed.",
        COMBINE,
        ({"join": Tensor.logical_and_}, {"join": Tensor.__iand__}),
    ),
    *TO_TYPES,
    Mistake(
        "type_unchecked",
        "you do not refuse masks of numbers, which could mean either thing",
        "bool() turns any number into True or False.",
        "An additive mask, 0 for visible, is read the wrong way round.",
        CONVENTION,
        (
            {"accept": Tensor.bool},
            {"accept": _floats_crash},
            {"accept": lambda mask: mask.bool() if mask.is_floating_point() else _boolean(mask)},
            {"accept": lambda mask: _boolean(mask) if mask.is_floating_point() else mask.bool()},
            {"accept": lambda mask: mask.bool() if mask.dtype is torch.uint8 else _boolean(mask)},
            {"accept": lambda mask: mask.bool() if mask.dtype is torch.int32 else _boolean(mask)},
            {"accept": lambda mask: mask if mask.dtype is torch.bool else _fails(TypeError("mask"))()},
            {"accept": lambda mask: mask if mask.dtype is torch.bool else _fails(AssertionError("mask"))()},
        ),
    ),
    Mistake(
        "sizes_unchecked",
        "you leave it to torch to complain about masks that do not fit together",
        "& fails by itself.",
        "Its RuntimeError speaks of tensors a and b, not of masks.",
        BROADCAST,
        (
            {"fits": lambda a, b: None},
            {"fits": _only_keys_fit},
            {"fits": _only_matrices_fit},
            {"fits": lambda a, b: None, "choose": _fit_the_first},
            {"fits": lambda a, b: None, "choose": _fit_their_neighbours},
        ),
    ),
)

TASK = Task(
    name="combine_masks",
    signature="combine_masks(*masks)",
    arguments=("first mask", "second mask", "third mask", "fourth mask", "fifth mask"),
    returns=("mask",),
    reference=combine,
    requirements=(
        Requirement(
            "returns",
            "it returns one mask, of the shape to which the masks broadcast.",
            ("both",),
            COMBINE,
            ("structure",),
        ),
        Requirement(
            "values",
            "a key may be attended to only if every mask allows it.",
            ("both", "reversed", "same_shape"),
            COMBINE,
        ),
        Requirement("several", "any number of masks will do.", ("single", "three", "five"), COMBINE),
        Requirement("none", "None allows everything.", ("none_last", "none_first", "nones"), COMBINE),
        Requirement(
            "empty_rows",
            "a query to which the masks leave no key sees none.",
            ("empty_rows", "hides_all"),
            COMBINE,
        ),
        Requirement(
            "broadcasting",
            "masks may leave axes out on the left; the others line up from the right.",
            ("matrix", "keys_only", "column", "few_axes", "three_axes"),
            BROADCAST,
        ),
        Requirement("nothing", "without any mask, it returns None.", ("nothing", "only_none"), COMBINE),
        Requirement(
            "inputs", "the caller's masks are left unchanged.", ("same_shape", "five"), COMBINE, ("inputs",)
        ),
        Requirement(
            "refusals",
            "masks of numbers, and masks that do not fit together, are refused with ValueError.",
            (
                "zeros_and_ones",
                "floats_alone",
                "integers",
                "misfit",
                "bytes",
                "int32",
                "misfit_queries",
                "misfit_batch",
                "misfit_later",
                "misfit_apart",
            ),
            CONVENTION,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "queries": 2, "keys": 2},
        {"batch": 2, "heads": 1, "queries": 2, "keys": 3},
        {"batch": 2, "heads": 3, "queries": 3, "keys": 4},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
