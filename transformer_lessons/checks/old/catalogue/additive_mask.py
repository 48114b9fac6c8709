"""The check of `additive_mask`: a boolean mask as numbers that are added to scores."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

ADDITIVE, CONVENTION, EMPTY = "#ch04-additive", "#ch04-convention", "#ch04-empty-rows"


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
    scores, mask = draw.normal(b, h, q, k), draw.mask(b, h, q, k)
    padding = draw.mask(b, 1, 1, k)
    empty = mask.clone()
    empty[:, :, 0] = False
    return {
        "float64": Probe([mask, scores]),
        "small": Probe([padding, scores]),
        "matrix": Probe([draw.mask(q, k), scores]),
        "other_like": Probe([mask, torch.zeros(k + 1, dtype=torch.float64)]),
        "float32": Probe([mask, scores.float()]),
        "bfloat16": Probe([mask, scores.bfloat16()]),
        "float16": Probe([mask, scores.half()]),
        "empty_rows": Probe([empty, scores]),
        "float_mask": Probe([mask.to(torch.float32), scores], refused="a mask of floats 0 and 1"),
        "integer_mask": Probe([mask.long(), scores], refused="a mask of integers 0 and 1"),
        "integer_like": Probe([mask, scores.long()], refused="like of integers, which have no −∞"),
        "int32_mask": Probe([mask.int(), scores], refused="a mask of int32, 0 and 1"),
        "byte_mask": Probe([mask.to(torch.uint8), scores], refused="a mask of uint8, 0 and 1"),
        "int32_like": Probe([mask, scores.int()], refused="like of int32, which has no −∞"),
        "int16_like": Probe([mask, scores.short()], refused="like of int16, which has no −∞"),
    }


def _accept(mask: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        raise ValueError("mask: expected booleans")
    return mask


def _accept_like(like: Tensor) -> None:
    if not like.is_floating_point():
        raise ValueError("like: expected floats")


def _filled(fill: float) -> Callable:
    return lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, fill)


_zero_or_infinite = _filled(-math.inf)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    accept_like: Callable = _accept_like
    dtype: Callable = lambda like: like.dtype
    show: Callable = lambda mask: mask
    make: Callable = _zero_or_infinite
    result: Callable = lambda numbers, mask, like: numbers


def assemble(steps: Steps) -> Callable:
    """An additive mask in these steps."""

    def additive_mask(mask, like):
        steps.accept_like(like)
        visible = steps.show(steps.accept(mask))
        return steps.result(steps.make(visible, steps.dtype(like)), visible, like)

    return additive_mask


def _cast(fill: float) -> Callable:
    """Made in float32, and converted afterwards."""
    return lambda mask, dtype: _filled(fill)(mask, torch.float32).to(dtype)


def _crash(*_) -> None:
    raise RuntimeError("value cannot be converted to type without overflow")


def _floats_crash(mask: Tensor) -> Tensor:
    return _crash() if mask.is_floating_point() else mask.bool()


def _integers_crash(mask: Tensor) -> Tensor:
    return mask.bool() if mask.is_floating_point() or mask.dtype is torch.bool else _crash()


def _bytes_pass(otherwise: Callable) -> Callable:
    def accept(mask: Tensor) -> Tensor:
        return mask.bool() if mask.dtype in (torch.bool, torch.uint8) else otherwise(mask)

    return accept


def _only(*dtypes: torch.dtype) -> Callable:
    """Other integers are left to torch."""

    def accept_like(like: Tensor) -> None:
        if like.dtype in dtypes:
            raise ValueError("like")
        if not like.is_floating_point():
            _crash()

    return accept_like


def _numbers_crash(mask: Tensor) -> Tensor:
    return mask if mask.dtype is torch.bool else _crash()


MISTAKES = (
    Mistake(
        "inverted",
        "your mask is the wrong way round: True means “may attend”, which is 0 here",
        "masked_fill fills where True stands, and ~ is easily forgotten.",
        "Only what should be hidden is seen.",
        CONVENTION,
        ({"show": lambda mask: ~mask},),
    ),
    Mistake(
        "zeros_and_ones",
        "you return ones and zeros; what is added is 0 where a key may be seen and −∞ where not",
        "The boolean mask was only converted to floats.",
        "Visible scores grow by one, and nothing is hidden.",
        ADDITIVE,
        (
            {"make": lambda mask, dtype: mask.to(dtype)},
            {"make": lambda mask, dtype: (~mask).to(dtype)},
        ),
    ),
    Mistake(
        "zero_times_infinity",
        "you multiply by −∞, and 0 · ∞ is NaN",
        "(1 − mask) times a large negative number is an old habit, and −∞ looks like an even larger one.",
        "All visible scores become NaN.",
        ADDITIVE,
        (
            {"make": lambda mask, dtype: (~mask).to(dtype) * -math.inf},
            {"make": lambda mask, dtype: (~mask) * -math.inf},
        ),
    ),
    Mistake(
        "finite_fill",
        "you hide with a large finite number; only −∞ hides whatever the scores are",
        "−1e9 is what tutorials write, and finfo(…).min what careful ones write.",
        "A number from memory does not exist in float16, and a row without any key becomes an average.",
        EMPTY,
        (
            *({"make": _filled(fill)} for fill in (-1e9, -1e4, -9e15, -1e10, -1e20)),
            *({"make": _cast(fill)} for fill in (-1e9, -9e15)),
            {"make": lambda mask, dtype: _filled(torch.finfo(dtype).min)(mask, dtype)},
            {"make": _cast(torch.finfo(torch.float32).min)},
        ),
    ),
    Mistake(
        "tiny_fill",
        "you hide with zero, or a number close to it; it has to be −∞",
        "1e-9 and −1e9 look much the same.",
        "Hidden keys keep their weight.",
        ADDITIVE,
        tuple({"make": _filled(fill)} for fill in (-1e-12, 1e-12, 1e-9, -1e-9)),
    ),
    Mistake(
        "plus_infinity",
        "your hidden entries are +∞; it has to be −∞",
        "float('inf') without the sign.",
        "Hidden keys get all the weight, or NaN.",
        ADDITIVE,
        ({"make": _filled(math.inf)},),
    ),
    Mistake(
        "dtype_ignored",
        "you do not take the dtype from `like`",
        "torch makes float32 unless told otherwise.",
        "Scores in half precision become float32 by the sum, and take twice the memory.",
        ADDITIVE,
        (
            {"dtype": lambda like: torch.float32},
            {"dtype": lambda like: torch.float64},
            {"dtype": lambda like: torch.float16},
        ),
    ),
    Mistake(
        "scores_masked",
        "you return masked scores; the mask alone is wanted, 0 where a key may be seen",
        "The mask was added on the spot.",
        "Whoever adds it to the scores has them twice.",
        ADDITIVE,
        (
            {"result": lambda numbers, mask, like: like + numbers},
            {"result": lambda numbers, mask, like: like.masked_fill(~mask, -math.inf)},
        ),
    ),
    Mistake(
        "scores_edited",
        "you write into `like`, which belongs to the caller and says no more than which dtype is wanted",
        "masked_fill_, with its last letter, fills a tensor where it stands.",
        "The scores are masked although nobody has asked for that yet.",
        ADDITIVE,
        (
            {"result": lambda numbers, mask, like: like.masked_fill_(~mask, -math.inf)},
            {"result": lambda numbers, mask, like: like.zero_().masked_fill_(~mask, -math.inf)},
        ),
    ),
    Mistake(
        "shape_of_scores",
        "your mask has the shape of `like`; it keeps its own, and broadcasts when it is added",
        "zeros_like(like) has the right dtype, and its shape too.",
        "A mask of a few entries takes as much memory as all scores.",
        "#ch04-broadcast",
        (
            {"result": lambda numbers, mask, like: numbers.expand_as(like)},
            {"result": lambda numbers, mask, like: torch.zeros_like(like).masked_fill(~mask, -math.inf)},
        ),
    ),
    Mistake(
        "empty_rows_shown",
        "you open rows in which nothing may be seen; a mask says what it says, even “nothing”",
        "It keeps the softmax from NaN.",
        "Such a query gets the average of all that was forbidden.",
        EMPTY,
        ({"show": lambda mask: mask | ~mask.any(-1, keepdim=True)},),
    ),
    Mistake(
        "empty_rows_finite",
        "you treat rows in which nothing may be seen in another way; there, too, it is −∞",
        "nan_to_num, or a check for such rows, was to keep the softmax from NaN.",
        "Such a query gets the average of all that was forbidden.",
        EMPTY,
        tuple(
            {
                "result": lambda numbers, mask, like, fill=fill: numbers.masked_fill(
                    ~mask.any(-1, keepdim=True), fill(numbers.dtype)
                )
            }
            for fill in (lambda dtype: -1e4, lambda dtype: -1e9, lambda dtype: torch.finfo(dtype).min)
        ),
    ),
    Mistake(
        "type_unchecked",
        "you do not refuse masks of numbers, which could mean either thing",
        "bool() turns any number into True or False.",
        "A mask that is additive already is read the wrong way round.",
        CONVENTION,
        tuple(
            {"accept": other}
            for other in (
                Tensor.bool,
                _floats_crash,
                _integers_crash,
                _numbers_crash,
                _bytes_pass(_accept),
                _bytes_pass(_crash),
                lambda mask: mask.bool() if mask.dtype is torch.int32 else _accept(mask),
            )
        ),
    ),
    Mistake(
        "like_unchecked",
        "you do not refuse a `like` of integers, which have no −∞",
        "Scores are floats, one thinks.",
        "The error comes later and speaks of overflow, or a mask of zeros hides nothing.",
        ADDITIVE,
        (
            {"accept_like": lambda like: None if like.is_floating_point() else _crash()},
            {"accept_like": _only(torch.long)},
            {"accept_like": _only(torch.long, torch.int32)},
            {
                "accept_like": lambda like: None,
                "dtype": lambda like: like.dtype if like.is_floating_point() else torch.float32,
            },
        ),
    ),
)

TASK = Task(
    name="additive_mask",
    signature="additive_mask(mask, like)",
    arguments=("mask", "like"),
    returns=("numbers",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the mask's shape.", ("float64",), ADDITIVE, ("structure",)
        ),
        Requirement("values", "0 where the mask is True, −∞ where it is False.", ("float64",), ADDITIVE),
        Requirement(
            "shape",
            "the shape is the mask's, whatever shape `like` has.",
            ("small", "matrix", "other_like"),
            "#ch04-broadcast",
        ),
        Requirement(
            "dtype",
            "the dtype is that of `like`, half precision included.",
            ("float64", "float32", "bfloat16", "float16"),
            ADDITIVE,
            ("dtype",),
        ),
        Requirement("empty_rows", "a row that hides every key is −∞ throughout.", ("empty_rows",), EMPTY),
        Requirement(
            "inputs", "mask and `like` are left unchanged.", ("float64", "small"), ADDITIVE, ("inputs",)
        ),
        Requirement(
            "refusals",
            "masks of numbers, and a `like` of integers, are refused with ValueError.",
            (
                "float_mask",
                "integer_mask",
                "integer_like",
                "int32_mask",
                "byte_mask",
                "int32_like",
                "int16_like",
            ),
            CONVENTION,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "queries": 1, "keys": 2},
        {"batch": 1, "heads": 1, "queries": 2, "keys": 2},
        {"batch": 2, "heads": 2, "queries": 2, "keys": 3},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
