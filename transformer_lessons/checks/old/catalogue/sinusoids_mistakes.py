"""Known wrong ways to write the sinusoidal encoding."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["FREQUENCIES", "TABLE_MISTAKES", "TableSteps", "exponents", "frequencies_in", "table_in_steps"]

FORMULA, CLOCKS, WRONG = "#ch03-sinusoid", "#ch03-frequencies", "#ch03-wrong"


def _accept_table(length: int, d_model: int) -> None:
    if length < 0 or d_model < 1:
        raise ValueError("length, d_model: expected sizes")


def exponents(d: int) -> Tensor:
    """2k/d for each pair, beginning with 0."""
    return torch.arange(0, d, 2, dtype=torch.float64) / d


def _interleaved(sine: Tensor, cosine: Tensor, d: int) -> Tensor:
    table = sine.new_empty(len(sine), d)
    table[:, 0::2] = sine
    table[:, 1::2] = cosine[:, : d // 2]
    return table


@dataclass(frozen=True)
class TableSteps:
    """What a mistake may replace in the encoding."""

    accept: Callable = _accept_table
    positions: Callable = lambda length: torch.arange(length)
    exponents: Callable = exponents
    base: Callable = lambda: 10_000.0
    angles: Callable = lambda t, e, base, d: torch.outer(t, base**-e)
    cosine_exponents: Callable = lambda e, d: e
    cosine: Callable = torch.cos
    layout: Callable = _interleaved
    shape: Callable = lambda table: table
    result: Callable = Tensor.float


def table_in_steps(steps: TableSteps) -> Callable:
    """The sinusoidal encoding in these steps."""

    def sinusoidal(length, d_model):
        steps.accept(length, d_model)
        t, e, base = steps.positions(length), steps.exponents(d_model), steps.base()
        sine = steps.angles(t, e, base, d_model).sin()
        cosine = steps.cosine(steps.angles(t, steps.cosine_exponents(e, d_model), base, d_model))
        return steps.result(steps.shape(steps.layout(sine, cosine, d_model)))

    return sinusoidal


def frequencies_in(form: str) -> Callable:
    """ω in float32, in one of the forms in which people write it; their last digits differ."""

    def frequencies(e: Tensor, base: float, d: int) -> Tensor:
        e = e.float()
        if form == "exp":
            return torch.exp((e * d).round() * (-math.log(base) / d))
        return base**-e if form == "negative" else 1.0 / base**e

    def rounded(e: Tensor, base: float, d: int) -> Tensor:
        return (base**-e).float()

    return rounded if form == "rounded" else frequencies


def _from_float32(form: str) -> Callable:
    def angles(t: Tensor, e: Tensor, base: float, d: int) -> Tensor:
        return torch.outer(t.double(), frequencies_in(form)(e, base, d).double())

    return angles


def _converted_early(t: Tensor, e: Tensor, base: float, d: int) -> Tensor:
    return torch.outer(t, base**-e).float()


def _float32(form: str) -> Callable:
    def angles(t: Tensor, e: Tensor, base: float, d: int) -> Tensor:
        if form == "divided":
            return t.float()[:, None] / base ** e.float()
        return t.float()[:, None] * frequencies_in(form)(e, base, d)

    return angles


def _cosines_do_not_fit(sine: Tensor, cosine: Tensor, d: int) -> Tensor:
    table = sine.new_zeros(len(sine), d)
    table[:, 0::2] = sine
    table[:, 1::2] = cosine
    return table


def _cosines_do_not_fit_a_batch(sine: Tensor, cosine: Tensor, d: int) -> Tensor:
    table = sine.new_zeros(1, len(sine), d)
    table[:, :, 0::2] = sine
    table[:, :, 1::2] = cosine
    return table[0]


def _too_few_frequencies(sine: Tensor, cosine: Tensor, d: int) -> Tensor:
    return _cosines_do_not_fit(sine[:, : d // 2], cosine[:, : d // 2], d)


def _loops_run_over(sine: Tensor, cosine: Tensor, d: int) -> Tensor:
    table = sine.new_zeros(len(sine), d)
    for t in range(len(sine)):
        for i in range(0, d, 2):
            table[t, i] = sine[t, i // 2]
            table[t, i + 1] = cosine[t, i // 2]
    return table


def _last_left_zero(sine: Tensor, cosine: Tensor, d: int) -> Tensor:
    table = sine.new_zeros(len(sine), d)
    even = d - d % 2
    table[:, 0:even:2] = sine[:, : d // 2]
    table[:, 1:even:2] = cosine[:, : d // 2]
    return table


def _only_length(length: int, d_model: int) -> None:
    if length < 0:
        raise ValueError("length")


def _only_length_and_crash(length: int, d_model: int) -> None:
    if length < 0:
        raise ValueError("length")
    if d_model < 1:
        raise ZeroDivisionError


def _only_no_width(length: int, d_model: int) -> None:
    if length < 0 or d_model == 0:
        raise ValueError("length, d_model")


def _only_width(length: int, d_model: int) -> None:
    if d_model < 1:
        raise ValueError("d_model")


def _crash_on_bad_table(length: int, d_model: int) -> None:
    if length < 0 or d_model < 1:
        raise RuntimeError


def _spread_out(d: int) -> Tensor:
    k = torch.arange(0, d, 2, dtype=torch.float64) / 2
    return k / max(len(k) - 1, 1)


FREQUENCIES = (
    Mistake(
        "exponent_doubled",
        "you doubled the exponent: where i runs over 0, 2, 4, … it already is 2k, so the exponent is i/d_model",
        "The formula has a 2 in it, and the index got another one by stepping by two.",
        "Lengths and shifts are as they should be, and half of the dimensions stand still.",
        WRONG,
        ({"exponents": lambda d: 2 * exponents(d)},),
    ),
    Mistake(
        "exponent_halved",
        "your exponent is k/d_model; it is 2k/d_model, where k counts the pairs",
        "The 2 of the formula got lost with the index that counts pairs.",
        "The slowest clock is a hundred times too fast.",
        FORMULA,
        ({"exponents": lambda d: exponents(d) / 2},),
    ),
    Mistake(
        "frequencies_to_the_end",
        "you spread the frequencies from 1 to exactly 1/10000; the last exponent is (d_model − 2)/d_model",
        "The first published code does so, dividing by the number of pairs less one; the paper does not.",
        "Near the right table, and equal to it in the first pair only.",
        CLOCKS,
        ({"exponents": _spread_out},),
    ),
    Mistake(
        "slow_first",
        "your slow clocks come first; the fast ones stand in the early dimensions",
        "The exponent counts down.",
        "The same numbers, in other columns.",
        CLOCKS,
        ({"exponents": lambda d: exponents(d).flip(0)},),
    ),
)

TABLE_MISTAKES = (
    *FREQUENCIES,
    Mistake(
        "cosine_exponent_next",
        "your cosine, in column i + 1, has the exponent of i + 1; a sine and its cosine share a frequency",
        "Each column gets an exponent of its own, i/d_model: the k of the formula counts pairs, not columns.",
        "The encodings differ in length, and no matrix shifts them.",
        WRONG,
        (
            {"cosine_exponents": lambda e, d: e + 1 / max(d, 1)},
            {"cosine_exponents": lambda e, d: e + 2 / max(d, 1)},
        ),
    ),
    Mistake(
        "exponents_doubled_and_next",
        "you doubled the exponent, and gave the cosine another one than the sine: column i got 2i/d_model",
        "The k of the formula was taken for the number of the column.",
        "Half of the dimensions stand still, and no matrix shifts the encodings.",
        WRONG,
        (
            {"exponents": lambda d: 2 * exponents(d), "cosine_exponents": lambda e, d: e + 2 / max(d, 1)},
            {"exponents": lambda d: 2 * exponents(d), "cosine_exponents": lambda e, d: e + 1 / max(d, 1)},
        ),
    ),
    Mistake(
        "frequency_inverted",
        "your frequencies grow with the dimension; the exponent has a minus sign, or stands below the line",
        "The sign of the exponent got lost.",
        "The late dimensions look like noise.",
        FORMULA,
        ({"angles": lambda t, e, base, d: torch.outer(t, base**e)},),
    ),
    Mistake(
        "base_wrong",
        "your base is not 10000",
        "A zero too many or too few.",
        "The slow clocks run at another pace.",
        FORMULA,
        tuple({"base": lambda b=b: b} for b in (1000.0, 100_000.0, 500_000.0, 1_000_000.0)),
    ),
    Mistake(
        "positions_from_one",
        "you count positions from 1; the first one is 0",
        "People count from one.",
        "Each row is its neighbour's.",
        FORMULA,
        ({"positions": lambda length: torch.arange(1, length + 1, dtype=torch.float64)},),
    ),
    Mistake(
        "cosine_first",
        "you put cosines into the even columns and sines into the odd ones; it is the other way round",
        "Real part first, as in a complex number.",
        "Row 0 begins with a 1.",
        FORMULA,
        ({"layout": lambda sine, cosine, d: _interleaved(cosine, sine, d)},),
    ),
    Mistake(
        "halves",
        "you put all sines before all cosines; they alternate, a sine and its cosine side by side",
        "Joining two tables is the shortest way, and the first published code does it so.",
        "As good in training; another order of columns than everybody else's.",
        FORMULA,
        (
            {"layout": lambda sine, cosine, d: torch.cat([sine, cosine[:, : d // 2]], dim=1)},
            {"layout": lambda sine, cosine, d: torch.cat([sine, cosine], dim=1)},
            {"layout": lambda sine, cosine, d: torch.cat([sine[:, : d // 2], cosine[:, : d // 2]], dim=1)},
        ),
    ),
    Mistake(
        "sines_only",
        "you took the sine for all columns; the odd ones hold cosines",
        "A line was copied, and one word not changed.",
        "Clocks have one coordinate instead of two.",
        FORMULA,
        ({"cosine": torch.sin},),
    ),
    Mistake(
        "transposed",
        "your table has shape (d_model, length); each position is a row",
        "The axes were taken in the other order.",
        "It fits no input, or worse, one of equal length and width.",
        FORMULA,
        ({"shape": Tensor.t},),
    ),
    Mistake(
        "extra_axis",
        "your table has an axis more; (length, d_model) is wanted, and broadcasting does the rest",
        "Published modules keep the table with an axis for the batch.",
        "In front of the batch axis or behind it, it is one too many for a function.",
        FORMULA,
        ({"shape": lambda table: table[None]}, {"shape": lambda table: table[:, None]}),
    ),
    Mistake(
        "table_too_small",
        "you cut the table out of one of a fixed length, which ends before these positions do",
        "Published modules make it once, for 5,000 positions.",
        "A longer text gets fewer rows than it has words, without an error.",
        WRONG,
        tuple(
            {"shape": lambda table, size=size: table[:size]} for size in (512, 1000, 1024, 2048, 4096, 5000)
        ),
    ),
    Mistake(
        "odd_crashes",
        "your code expects as many cosines as sines; an odd d_model has one sine more",
        "Widths are even in all papers.",
        "It crashes for an odd d_model.",
        WRONG,
        (
            {"layout": _cosines_do_not_fit},
            {"layout": _too_few_frequencies},
            {"layout": _cosines_do_not_fit_a_batch},
            {"layout": _loops_run_over},
            {"layout": lambda sine, cosine, d: torch.stack([sine, cosine], -1).view(len(sine), d)},
            {"layout": lambda sine, cosine, d: torch.stack([sine, cosine], -1).reshape(-1, d)},
        ),
    ),
    Mistake(
        "odd_too_wide",
        "for an odd d_model your table has the wrong width: the last sine got a cosine, or got lost",
        "Pairs are made and laid side by side.",
        "The table does not fit the vectors.",
        WRONG,
        (
            {"layout": lambda sine, cosine, d: torch.stack([sine, cosine], -1).flatten(1)},
            {
                "layout": lambda sine, cosine, d: torch.stack(
                    [sine[:, : d // 2], cosine[:, : d // 2]], -1
                ).flatten(1)
            },
        ),
    ),
    Mistake(
        "odd_frequencies_of_even",
        "for an odd d_model you use the frequencies of an even one: the exponent is 2k/d_model for any d_model",
        "The table is made wider and cut off, or the exponent holds d_model // 2.",
        "Nothing but the numbers shows it.",
        WRONG,
        (
            {"exponents": lambda d: torch.arange(0, d, 2, dtype=torch.float64) / (d + d % 2)},
            {"exponents": lambda d: torch.arange(0, d, 2, dtype=torch.float64) / (d - d % 2)},
        ),
    ),
    Mistake(
        "odd_last_zero",
        "for an odd d_model you leave the last column zero; it holds a sine",
        "Only whole pairs were filled in.",
        "A dimension that says nothing.",
        CLOCKS,
        ({"layout": _last_left_zero},),
    ),
    Mistake(
        "angles_in_float32",
        "you compute the angles in float32; compute them in float64 and convert at the end",
        "Whole numbers divided by whole numbers are float32 in torch.",
        "At position 5,000 entries are wrong in the fourth digit.",
        WRONG,
        tuple({"angles": _float32(form)} for form in ("negative", "divided", "exp", "inverse", "rounded")),
    ),
    Mistake(
        "frequencies_in_float32",
        "you compute the frequencies in float32; converted later, they do not get their digits back",
        "Only the positions were made float64, or the product.",
        "At position 5,000 entries are wrong in the fourth digit.",
        WRONG,
        tuple({"angles": _from_float32(form)} for form in ("negative", "exp", "inverse")),
    ),
    Mistake(
        "angles_rounded",
        "you convert the angles to float32 and then take their sines and cosines; convert the finished table",
        "The angles were computed in float64, as they should, and converted as soon as that was done.",
        "At position 5,000 entries are wrong in the fourth digit.",
        WRONG,
        ({"angles": _converted_early},),
    ),
    Mistake(
        "float64_returned",
        "you return float64; convert the finished table to torch's default dtype",
        "The angles were computed in float64, as they should.",
        "Added to float32 vectors, it makes all that follows float64.",
        WRONG,
        ({"result": lambda table: table},),
    ),
    Mistake(
        "sizes_unchecked",
        "you do not refuse a negative length or a d_model below 1",
        "torch refuses some of them, with an error about something else; others give an empty table.",
        "A typo shows somewhere else.",
        FORMULA,
        (
            {"accept": lambda length, d_model: None},
            {"accept": _only_length},
            {"accept": _only_length_and_crash},
            {"accept": _only_no_width},
            {"accept": _only_width},
            {"accept": _crash_on_bad_table},
        ),
    ),
)
