"""Known wrong ways to write the matrix that shifts the sinusoidal encoding."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.sinusoids_mistakes import FREQUENCIES, exponents, frequencies_in
from transformer_lessons.checks.old.core import Mistake

__all__ = ["SHIFT_MISTAKES", "ShiftSteps", "shift_in_steps"]

STEP, WRONG = "#ch03-shift", "#ch03-wrong"


def _accept_shift(k: int, d_model: int) -> None:
    if d_model < 2 or d_model % 2:
        raise ValueError("d_model: expected an even number")


def _rotation(c: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    return c, s, -s, c


def _along_the_diagonal(entries: tuple[Tensor, ...], d: int) -> Tensor:
    blocks = torch.stack(entries, dim=1)
    return torch.block_diag(*blocks.reshape(len(blocks), 2, 2))


def _in_quarters(entries: tuple[Tensor, ...], d: int) -> Tensor:
    a, b, c, d_ = map(torch.diag, entries)
    return torch.cat([torch.cat([a, b], dim=1), torch.cat([c, d_], dim=1)])


@dataclass(frozen=True)
class ShiftSteps:
    """What a mistake may replace in the shift matrix."""

    accept: Callable = _accept_shift
    turns: Callable = lambda k: k
    exponents: Callable = exponents
    angles: Callable = lambda k, e, d: k * 10_000.0**-e
    block: Callable = _rotation
    place: Callable = _along_the_diagonal
    repeat: Callable = lambda matrix, k: matrix
    result: Callable = Tensor.float


def shift_in_steps(steps: ShiftSteps) -> Callable:
    """The shift matrix in these steps."""

    def shift_matrix(k, d_model):
        steps.accept(k, d_model)
        angle = steps.angles(steps.turns(k), steps.exponents(d_model), d_model)
        matrix = steps.place(steps.block(angle.cos(), angle.sin()), d_model)
        return steps.result(steps.repeat(matrix, k))

    return shift_matrix


def _shift_in_float32(form: str) -> Callable:
    def angles(k: int, e: Tensor, d: int) -> Tensor:
        return k / 10_000.0 ** e.float() if form == "divided" else k * frequencies_in(form)(e, 10_000.0, d)

    return angles


def _from_float32(form: str) -> Callable:
    return lambda k, e, d: k * frequencies_in(form)(e, 10_000.0, d).double()


def _rolled(entries: tuple[Tensor, ...], d: int) -> Tensor:
    return torch.eye(d, dtype=torch.float64)


def _on_a_diagonal(matrix: Tensor, k: int) -> Tensor:
    """`torch.diag` of ones, but beyond the matrix, where that is k × k zeros, without their memory."""
    if abs(k) >= len(matrix):
        return matrix.new_zeros(1).expand(abs(k), abs(k))
    return torch.diag(matrix.new_ones(len(matrix) - abs(k)), k)


def _accept_odd(k: int, d_model: int) -> None:
    if d_model < 2:
        raise ValueError("d_model")


def _crash_if_odd(k: int, d_model: int) -> None:
    if d_model % 2:
        raise IndexError


def _crash_if_odd_refuse_none(k: int, d_model: int) -> None:
    if d_model < 2:
        raise ValueError("d_model")
    _crash_if_odd(k, d_model)


def _accept_none(k: int, d_model: int) -> None:
    if d_model % 2:
        raise ValueError("d_model")


def _accept_negative(k: int, d_model: int) -> None:
    if d_model % 2 or d_model == 0:
        raise ValueError("d_model")


def _crash_if_none(k: int, d_model: int) -> None:
    if d_model == 0:
        raise ZeroDivisionError


def _refuse_odd_crash_if_none(k: int, d_model: int) -> None:
    _accept_none(k, d_model)
    _crash_if_none(k, d_model)


def _crash_always(k: int, d_model: int) -> None:
    _crash_if_odd(k, d_model)
    _crash_if_none(k, d_model)


SHIFT_MISTAKES = (
    Mistake(
        "turned_back",
        "your matrix turns the other way: it steps k back, or it is made for rows instead of columns",
        "The textbook's rotation has its minus sign above the diagonal: it is for (cos, sin), not (sin, cos).",
        "M_k PE(t) = PE(t − k).",
        STEP,
        ({"block": lambda c, s: (c, -s, s, c)},),
    ),
    Mistake(
        "sign_lost",
        "both sines of your blocks have the same sign; then they do not rotate",
        "A minus sign got lost.",
        "M_k PE(t) has another length than PE(t).",
        STEP,
        ({"block": lambda c, s: (c, s, s, c)}, {"block": lambda c, s: (c, -s, -s, c)}),
    ),
    Mistake(
        "sines_left_out",
        "your matrix is diagonal; each cosine needs the sine beside it",
        "The cosines alone look like a scaling for each dimension.",
        "Vectors shrink and do not turn.",
        STEP,
        ({"block": lambda c, s: (c, 0 * s, 0 * s, c)},),
    ),
    Mistake(
        "sine_and_cosine_swapped",
        "you put sines on the diagonal and cosines beside it; it is the other way round",
        "The first entry of a pair is a sine, so the first of a block seems to be one.",
        "M_0 is not the identity.",
        STEP,
        (
            {"block": lambda c, s: (s, c, -c, s)},
            {"block": lambda c, s: (s, c, c, -s)},
            {"block": lambda c, s: (s, -c, c, s)},
        ),
    ),
    Mistake(
        "quarters",
        "your matrix pairs column i with i + d_model/2; a sine and its cosine stand side by side",
        "Four diagonal matrices are easy to put together.",
        "It fits a table that has all sines before all cosines.",
        STEP,
        ({"place": _in_quarters},),
    ),
    *FREQUENCIES,
    Mistake(
        "one_frequency",
        "you turn all pairs by the same angle; each has its own frequency",
        "The block was written for one ω and repeated.",
        "It shifts the first pair only.",
        STEP,
        ({"exponents": lambda d: 0 * exponents(d)},),
    ),
    Mistake(
        "direction_lost",
        "you lose the sign of k",
        "A distance is thought of as positive.",
        "Stepping back is stepping forth.",
        STEP,
        ({"turns": abs},),
    ),
    Mistake(
        "entries_repeated",
        "you take powers or multiples of the entries of M_1; k steps are a product of k matrices",
        "** and * work entry by entry in torch.",
        "Right for k = 1 only.",
        STEP,
        (
            {"turns": lambda k: 1, "repeat": lambda matrix, k: matrix**k},
            {"turns": lambda k: 1, "repeat": lambda matrix, k: matrix * k},
        ),
    ),
    Mistake(
        "dimensions_rolled",
        "your matrix moves the entries of a vector along; what moves is the position, within each pair",
        "“Shift” sounds like rolling an array.",
        "Entry i of the result is entry i ± k of what was given.",
        STEP,
        (
            {"place": _rolled, "repeat": lambda matrix, k: matrix.roll(k, 0)},
            {"place": _rolled, "repeat": lambda matrix, k: matrix.roll(k, 1)},
            {"place": _rolled, "repeat": _on_a_diagonal},
        ),
    ),
    Mistake(
        "angles_in_float32",
        "you compute the angles in float32; compute them in float64 and convert at the end",
        "Whole numbers divided by whole numbers are float32 in torch.",
        "For k = 5,000 entries are wrong in the fourth digit.",
        WRONG,
        tuple(
            {"angles": _shift_in_float32(form)}
            for form in ("negative", "divided", "exp", "inverse", "rounded")
        ),
    ),
    Mistake(
        "frequencies_in_float32",
        "you compute the frequencies in float32; converted later, they do not get their digits back",
        "Only the product with k was made float64.",
        "For k = 5,000 entries are wrong in the fourth digit.",
        WRONG,
        tuple({"angles": _from_float32(form)} for form in ("negative", "exp", "inverse")),
    ),
    Mistake(
        "angles_rounded",
        "you convert the angles to float32 and then take their sines and cosines; convert the matrix",
        "The angles were computed in float64, as they should, and converted as soon as that was done.",
        "For k = 5,000 entries are wrong in the fourth digit.",
        WRONG,
        ({"angles": lambda k, e, d: (k * 10_000.0**-e).float()},),
    ),
    Mistake(
        "float64_returned",
        "you return float64; convert the finished matrix to torch's default dtype",
        "The angles were computed in float64, as they should.",
        "A product with float32 vectors fails.",
        WRONG,
        ({"result": lambda matrix: matrix},),
    ),
    Mistake(
        "width_unchecked",
        "you do not refuse each d_model that is odd or below 2",
        "Widths are even in all papers, and 0 is even.",
        "The last sine of an odd width has no cosine to turn with, so no matrix shifts it.",
        STEP,
        tuple(
            {"accept": accept}
            for accept in (
                lambda k, d_model: None,
                _accept_odd,
                _crash_if_odd,
                _crash_if_odd_refuse_none,
                _accept_none,
                _accept_negative,
                _crash_if_none,
                _refuse_odd_crash_if_none,
                _crash_always,
            )
        ),
    ),
)
