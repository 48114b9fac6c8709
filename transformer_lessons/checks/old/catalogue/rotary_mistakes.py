"""The known mistakes of `rotary`, and the steps that they change."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.sinusoids_mistakes import FREQUENCIES, exponents, frequencies_in
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES", "Steps", "assemble"]

ROTARY, WRONG, PAIRS = "#ch03-rotary", "#ch03-wrong", "#ch17-wrong"


def _accept_width(x: Tensor) -> None:
    if x.size(-1) % 2:
        raise ValueError("x: expected an even width")


def _accept_positions(x: Tensor, positions: Tensor) -> None:
    *_, length, _ = x.shape
    if positions.size(-1) != length:
        raise ValueError("positions: expected one for each vector")


def _wide(angle: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(x.dtype, torch.float32)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _times_frequencies(t: Tensor, omega: Tensor, x: Tensor) -> Tensor:
    return t[..., None] * omega


def _turned(x: Tensor, c: Tensor, s: Tensor, steps: "Steps") -> Tensor:
    return steps.join(*steps.turn(*steps.split(x), c, s))


def _side_by_side(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a, b], dim=-1).flatten(-2)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept_width: Callable = _accept_width
    accept_positions: Callable = _accept_positions
    positions: Callable = lambda positions, x: positions
    exponents: Callable = exponents
    frequencies: Callable = lambda e, d, x: 10_000.0**-e
    angles: Callable = _times_frequencies
    fit: Callable = lambda angle: angle.unsqueeze(-3)
    trigonometry: Callable = _wide
    split: Callable = lambda x: (x[..., 0::2], x[..., 1::2])
    turn: Callable = lambda a, b, c, s: (a * c - b * s, a * s + b * c)
    join: Callable = _side_by_side
    turned: Callable = _turned
    result: Callable = lambda y, x: y.to(x.dtype)


def assemble(steps: Steps) -> Callable:
    """Rotary positions in these steps."""

    def rotate(x, positions):
        steps.accept_width(x)
        steps.accept_positions(x, positions)
        d = x.size(-1)
        omega = steps.frequencies(steps.exponents(d), d, x)
        angle = steps.angles(steps.positions(positions, x), omega, x)
        c, s = steps.trigonometry(steps.fit(angle), x)
        return steps.result(steps.turned(x, c, s, steps), x)

    return rotate


def _guessed_by_size(t: Tensor, omega: Tensor, x: Tensor) -> Tensor:
    angle = _times_frequencies(t, omega, x)
    return angle[:, None] if len(t) == len(x) else angle


def _twice(a: Tensor) -> Tensor:
    """(a, b, …) → (a, a, b, b, …)."""
    return a.repeat_interleave(2, dim=-1)


def _halves_turned(x: Tensor, c: Tensor, s: Tensor, steps: Steps) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * _twice(c) + torch.cat([-second, first], dim=-1) * _twice(s)


def _neighbours_turned(x: Tensor, c: Tensor, s: Tensor, steps: Steps) -> Tensor:
    partner = _side_by_side(-x[..., 1::2], x[..., 0::2])
    return x * torch.cat([c, c], dim=-1) + partner * torch.cat([s, s], dim=-1)


def _overwritten(x: Tensor, c: Tensor, s: Tensor, steps: Steps, copy: Callable) -> Tensor:
    y = copy(x)
    even, odd = y[..., 0::2], y[..., 1::2]
    y[..., 0::2] = even * c - odd * s
    y[..., 1::2] = even * s + odd * c
    return y


def _into_the_caller(x: Tensor, c: Tensor, s: Tensor, steps: Steps) -> Tensor:
    x[..., 0::2], x[..., 1::2] = steps.turn(*steps.split(x), c, s)
    return x


def _in_float32(form: str) -> Callable:
    return lambda e, d, x: frequencies_in(form)(e, 10_000.0, d)


def _no_wider_than_x(form: str) -> dict[str, Callable]:
    def frequencies(e: Tensor, d: int, x: Tensor) -> Tensor:
        return frequencies_in(form)(e, 10_000.0, d) if x.dtype is not torch.float64 else 10_000.0**-e

    return {"frequencies": frequencies}


def _counted_on_one_axis(x: Tensor, positions: Tensor) -> None:
    if positions.dim() == 1:
        _accept_positions(x, positions)
    if positions.size(-1) not in (1, x.size(-2)):
        _crash()


def _some_counts(x: Tensor, positions: Tensor) -> None:
    count, length = positions.size(-1), x.size(-2)
    if positions.numel() == 1 or count > length:
        raise ValueError("positions: expected one for each vector")
    if count not in (1, length):
        _crash()


def _crash(*_: object) -> None:
    raise RuntimeError


def _times(factors: Callable) -> dict[str, Callable]:
    return {"turned": lambda x, c, s, steps: x * factors(c, s)}


MISTAKES = (
    Mistake(
        "halves",
        "you turn entry i with entry i + d_k/2; here neighbours make a pair, entries 2i and 2i + 1",
        "Llama's code in the transformers library does so, and most code is copied from there.",
        "As good in training; weights trained with the one do not work with the other.",
        PAIRS,
        (
            {
                "split": lambda x: x.chunk(2, dim=-1),
                "join": lambda a, b: torch.cat([a, b], dim=-1),
            },
        ),
    ),
    Mistake(
        "layouts_mixed",
        "you mixed two layouts: partners as in the one, frequencies as in the other",
        "Both are in use, and half of each was copied.",
        "An entry is not turned by the angle of its partner, so lengths change.",
        PAIRS,
        ({"turned": _halves_turned}, {"turned": _neighbours_turned}),
    ),
    Mistake(
        "halves_joined",
        "you turn neighbours, and then lay all first entries before all second ones",
        "torch.cat joins what stack and flatten would have put side by side.",
        "Scores are right; entries are not where they were.",
        ROTARY,
        ({"join": lambda a, b: torch.cat([a, b], dim=-1)},),
    ),
    Mistake(
        "turned_back",
        "you turn the other way, by −t·ω",
        "The block of the shift matrix was used, which is made for (sin, cos).",
        "Scores see distances all the same; no other code agrees.",
        ROTARY,
        ({"turn": lambda a, b, c, s: (a * c + b * s, b * c - a * s)},),
    ),
    Mistake(
        "sign_lost",
        "both sines have the same sign; that does not turn",
        "A minus sign got lost.",
        "Vectors change their length.",
        ROTARY,
        (
            {"turn": lambda a, b, c, s: (a * c + b * s, a * s + b * c)},
            {"turn": lambda a, b, c, s: (a * c - b * s, b * c - a * s)},
        ),
    ),
    Mistake(
        "added",
        "you add sines and cosines to x; here x is turned by them",
        "That is the encoding of the paper.",
        "Scores depend on the positions themselves, not on their distance alone.",
        ROTARY,
        (
            {"turned": lambda x, c, s, steps: x + _side_by_side(s, c).expand_as(x)},
            {"turned": lambda x, c, s, steps: x + _side_by_side(c, s).expand_as(x)},
        ),
    ),
    Mistake(
        "not_mixed",
        "you multiply each entry by a sine or cosine of its own; turning mixes the two entries of a pair",
        "“They multiply instead of being added” was taken literally.",
        "Entries vanish wherever a sine is zero.",
        ROTARY,
        (
            _times(_side_by_side),
            _times(lambda c, s: _side_by_side(s, c)),
            _times(lambda c, s: _twice(c)),
            _times(lambda c, s: _twice(c + s)),
        ),
    ),
    Mistake(
        "positions_ignored",
        "you never use positions: you count the vectors from 0",
        "In training, positions are 0, 1, 2 and so on.",
        "With a cache, every new token is at position 0.",
        ROTARY,
        (
            {
                "positions": lambda positions, x: torch.arange(x.size(-2)),
                "accept_positions": lambda x, positions: None,
            },
            {"positions": lambda positions, x: torch.arange(x.size(-2))},
        ),
    ),
    Mistake(
        "only_first_position",
        "you use the first position only and count on from there",
        "Positions usually follow one another.",
        "Padding on the left, or tokens left out, and each vector is turned by another's angle.",
        ROTARY,
        ({"positions": lambda positions, x: positions[..., :1] + torch.arange(x.size(-2))},),
    ),
    Mistake(
        "positions_from_one",
        "you turn by one position too many; position 0 is not turned at all",
        "People count from one.",
        "Scores are right, and no other code agrees.",
        ROTARY,
        ({"positions": lambda positions, x: positions + 1},),
    ),
    Mistake(
        "positions_meet_heads",
        "with positions of shape (batch, length), your batch axis meets the heads",
        "Broadcasting aligns from the right, and (batch, length, …) is one axis short.",
        "An error; and with as many heads as sentences, not even that.",
        WRONG,
        ({"fit": lambda angle: angle},),
    ),
    Mistake(
        "kind_guessed",
        "you take positions for a batch of them if there are as many as sentences; count their axes instead",
        "Sizes tell the two kinds apart in every example but one.",
        "With as many vectors as sentences, all vectors of a sentence are turned alike, without an error.",
        WRONG,
        ({"angles": _guessed_by_size, "fit": lambda angle: angle},),
    ),
    Mistake(
        "first_sentence_for_all",
        "with positions of shape (batch, length), you use those of the first sentence for all",
        "An axis too many was indexed away.",
        "Right as long as all sentences begin at the same position.",
        WRONG,
        ({"positions": lambda positions, x: positions[0] if positions.dim() == 2 else positions},),
    ),
    Mistake(
        "one_axis_only",
        "your code takes positions of one axis only; a batch of them has the shape (batch, length)",
        "outer and [:, None] make a table of one row of positions.",
        "Sentences of one batch cannot begin at different positions.",
        ROTARY,
        (
            {"angles": lambda t, omega, x: torch.outer(t.to(omega.dtype), omega)},
            {"angles": lambda t, omega, x: t[:, None] * omega},
            {"angles": lambda t, omega, x: torch.einsum("i,j->ij", t.to(omega.dtype), omega)},
            {"angles": lambda t, omega, x: torch.einsum("i,j->ij", t, omega)},
        ),
    ),
    *(replace(mistake, anchor=ROTARY) for mistake in FREQUENCIES),
    Mistake(
        "one_frequency",
        "you turn all pairs by the same angle; each has its own frequency",
        "The rotation was written for one ω.",
        "After six positions all is back where it was, more or less.",
        ROTARY,
        ({"exponents": lambda d: 0 * exponents(d)},),
    ),
    Mistake(
        "overwritten",
        "you overwrite the even entries, and then compute the odd ones from what now stands there",
        "Two lines that were meant at the same time run one after the other.",
        "Half of the entries are wrong, and vectors change their length.",
        ROTARY,
        (
            {"turned": partial(_overwritten, copy=lambda x: x)},
            {"turned": partial(_overwritten, copy=torch.clone)},
        ),
    ),
    Mistake(
        "caller_changed",
        "you write the result into the caller's x",
        "It saves a tensor.",
        "Whoever uses x again finds it turned.",
        ROTARY,
        ({"turned": _into_the_caller},),
    ),
    Mistake(
        "gradient_lost",
        "you cut x off from its gradient",
        "no_grad or .detach() was meant for the sines and cosines.",
        "The projections of queries and keys never learn.",
        ROTARY,
        (
            {"result": lambda y, x: y.detach().to(x.dtype)},
            {"split": lambda x: (x.detach()[..., 0::2], x.detach()[..., 1::2])},
        ),
    ),
    Mistake(
        "promoted",
        "your result is wider than x, because your sines and cosines are; give it the dtype of x",
        "A product takes the wider dtype.",
        "float32 and bfloat16 models become slow, or fail at the next product.",
        WRONG,
        ({"trigonometry": lambda angle, x: (angle.cos(), angle.sin()), "result": lambda y, x: y},),
    ),
    Mistake(
        "forced_float32",
        "your result is float32, whatever x is",
        "Turning is done in float32, and the way back was forgotten.",
        "float64 loses digits, and bfloat16 models fail at the next product.",
        WRONG,
        ({"result": lambda y, x: y.float()},),
    ),
    Mistake(
        "angles_in_float32",
        "you compute the angles in float32; compute them in float64, and convert sines and cosines",
        "Whole numbers divided by whole numbers are float32 in torch.",
        "At position 5,000 entries are wrong in the fourth digit.",
        WRONG,
        (
            *({"frequencies": _in_float32(form)} for form in ("negative", "exp", "inverse")),
            {
                "frequencies": lambda e, d, x: 10_000.0 ** e.float(),
                "angles": lambda t, omega, x: t[..., None] / omega,
            },
            {
                "frequencies": lambda e, d, x: 10_000.0 ** e.float(),
                "angles": lambda t, omega, x: t[:, None] / omega,
            },
            *map(_no_wider_than_x, ("negative", "exp", "inverse")),
        ),
    ),
    Mistake(
        "angles_rounded",
        "you convert the angles to float32 before you take their sines and cosines; convert those",
        "The angles were computed in float64, as they should, and converted as soon as that was done.",
        "At position 5,000 entries are wrong in the fourth digit.",
        WRONG,
        ({"angles": lambda t, omega, x: _times_frequencies(t, omega, x).float()},),
    ),
    Mistake(
        "angles_in_dtype_of_x",
        "you compute the angles in the dtype of x; bfloat16 cannot even tell position 300 from 301",
        "Everything was converted to the dtype of x at the start.",
        "In bfloat16, neighbours share their positions, beginning at 256.",
        WRONG,
        (
            {
                "frequencies": lambda e, d, x: (10_000.0**-e).to(x.dtype),
                "angles": lambda t, omega, x: t.to(x.dtype)[..., None] * omega,
            },
        ),
    ),
    Mistake(
        "width_unchecked",
        "you do not refuse an odd width yourself",
        "torch complains too, but about sizes of a and b, in the middle of your code.",
        "The caller is told nothing about x.",
        ROTARY,
        ({"accept_width": lambda x: _crash() if x.size(-1) % 2 else None},),
    ),
    Mistake(
        "positions_unchecked",
        "you do not check that there is one position for each vector",
        "Broadcasting takes care of it, so it seems.",
        "A single position is used for all vectors, without an error.",
        ROTARY,
        (
            {"accept_positions": lambda x, p: _crash() if p.size(-1) not in (1, x.size(-2)) else None},
            {"accept_positions": lambda x, p: _crash() if p.size(-1) != x.size(-2) else None},
        ),
    ),
    Mistake(
        "positions_checked_in_part",
        "you refuse some wrong numbers of positions and not others: the last axis has one for each vector",
        "Only positions of one axis were thought of, or only the numbers that were tried.",
        "With positions (batch, 1), all vectors of a sentence share one, without an error.",
        ROTARY,
        ({"accept_positions": _counted_on_one_axis}, {"accept_positions": _some_counts}),
    ),
)
