"""The check of `length_penalty`: requirements, calls that probe them, and known wrong ways to write it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

AT, WRONG = "#ch15-length-penalty", "#ch15-wrong"


def _sizes(seed: int) -> dict[str, int]:
    batch, beams = random.Random(seed).sample([3, 5, 7], 2)
    return {"batch": batch, "beams": beams}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    shape = s["batch"], s["beams"]
    log_p, length = -draw.normal(*shape).abs() - 1, draw.integers(2, 23, *shape)
    dead = log_p.clone()
    dead[0, 0] = -torch.inf
    return {
        "plain": Probe([log_p.float(), length, 0.6]),
        "steep": Probe([log_p.float(), length, 1.7]),
        "zero": Probe([log_p.float(), length, 0.0]),
        "one_length": Probe([log_p, 14, 0.6]),  # 19, which is no multiple of 6
        "one_axis": Probe([log_p[0], length[0], 0.6]),
        "double": Probe([log_p, length, 0.6]),
        "half": Probe([log_p.half(), length, 0.6]),
        "dead": Probe([dead, length, 0.6]),
        "negative": Probe([log_p, length, -0.6], refused="alpha=-0.6"),
    }


def _accept(alpha: float) -> None:
    if alpha < 0:
        raise ValueError("alpha: expected 0 or more")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    number: Callable = lambda length, log_p: torch.as_tensor(length).to(log_p.dtype)
    power: Callable = lambda n, alpha: ((5 + n) / 6) ** alpha
    score: Callable = lambda log_p, power: log_p / power


def assemble(steps: Steps) -> Callable:
    """The penalised score in these steps."""

    def length_penalty(log_p, length, alpha):
        steps.accept(alpha)
        return steps.score(log_p, steps.power(steps.number(length, log_p), alpha))

    return length_penalty


def _number(length: int | Tensor, log_p: Tensor) -> Tensor:
    return torch.as_tensor(length).to(log_p.dtype)


def _whole_if_one(length: int | Tensor, log_p: Tensor) -> Tensor:
    """Of one length for all, the n for which (5 + n) / 6 is (5 + length) // 6."""
    return _number((5 + length) // 6 * 6 - 5 if isinstance(length, int) else length, log_p)


def _of_two_axes(length: int | Tensor, log_p: Tensor) -> Tensor:
    rows, columns = log_p.shape
    return _number(length, log_p).expand(rows, columns)


def _at_least_float32(length: int | Tensor, log_p: Tensor) -> Tensor:
    return _number(length, log_p).to(torch.promote_types(log_p.dtype, torch.float32))


def _in_float32(length: int | Tensor, log_p: Tensor) -> Tensor | int:
    return length.float() if isinstance(length, Tensor) else length


MISTAKES = (
    Mistake(
        "multiplied",
        "you multiply by lp(n); log p is divided by it",
        "A penalty sounds like a factor.",
        "log p is negative, so long sentences lose twice.",
        AT,
        ({"score": lambda log_p, power: log_p * power},),
    ),
    Mistake(
        "subtracted",
        "you subtract or add lp(n); log p is divided by it",
        "Penalties elsewhere are terms of a sum.",
        "Its weight beside log p depends on how large log p happens to be.",
        AT,
        (
            {"score": lambda log_p, power: log_p - power},
            {"score": lambda log_p, power: log_p + power},
        ),
    ),
    Mistake(
        "plain_mean",
        "you divide by the length; lp(n) = ((5 + n)/6)^α, which α makes weaker",
        "The mean of log p per token is another common score.",
        "Very long sentences win, whatever α is.",
        AT,
        ({"power": lambda n, alpha: n},),
    ),
    Mistake(
        "length_to_the_alpha",
        "you divide by n^α; here it is ((5 + n)/6)^α",
        "Several libraries define their penalty so.",
        "For short sentences it is a good deal stronger.",
        AT,
        ({"power": lambda n, alpha: n**alpha},),
    ),
    Mistake(
        "alpha_ignored",
        "you never use α",
        "With α = 1 the exponent is not seen.",
        "α = 0, which should leave log p as it is, changes it.",
        AT,
        ({"power": lambda n, alpha: (5 + n) / 6},),
    ),
    Mistake(
        "alpha_as_factor",
        "α is the exponent, not a factor",
        "A hyperparameter called α is most often a factor.",
        "With α = 0 everything is divided by zero.",
        AT,
        ({"power": lambda n, alpha: alpha * (5 + n) / 6},),
    ),
    Mistake(
        "six_outside",
        "you raise only 5 + n to the power α; the 6 belongs into it",
        "The parentheses around the fraction are easily lost.",
        "α = 0 gives 1/6 instead of 1.",
        AT,
        ({"power": lambda n, alpha: (5 + n) ** alpha / 6},),
    ),
    Mistake(
        "six_missing",
        "you left out the division by 6",
        "A constant factor does not change the order within one α.",
        "Scores are no longer log p for a sentence of one token.",
        AT,
        ({"power": lambda n, alpha: (5 + n) ** alpha},),
    ),
    Mistake(
        "bos_counted",
        "you count one token too many: lp(1) is 1",
        "bos_id stands among the tokens.",
        "Every score is a little too good.",
        AT,
        ({"power": lambda n, alpha: ((6 + n) / 6) ** alpha},),
    ),
    Mistake(
        "whole_division",
        "you divide by 6 without remainder",
        "// is division of whole numbers, which lengths are.",
        "Sentences of 1 to 6 tokens are treated alike.",
        AT,
        ({"power": lambda n, alpha: ((5 + n) // 6) ** alpha}, {"number": _whole_if_one}),
    ),
    Mistake(
        "of_probabilities",
        "you divide the probability; it is its logarithm that is divided",
        "“log” is easily overlooked.",
        "Longer sentences lose even more.",
        WRONG,
        ({"score": lambda log_p, power: log_p.exp() / power},),
    ),
    Mistake(
        "in_float32",
        "you compute lp(n) in float32, although log p is float64",
        "Integers divided by 6 become torch's default, float32.",
        "Half the digits are lost, and two sentences that nearly tie change places.",
        AT,
        ({"number": _in_float32},),
    ),
    Mistake(
        "half_widened",
        "you return float32 where log p is float16; the scores have the dtype of log p",
        "float32 and float64 were thought of.",
        "A model in half precision gets scores that do not fit its other tensors.",
        AT,
        ({"number": _at_least_float32},),
    ),
    Mistake(
        "two_axes_only",
        "you count on log p having two axes; any number will do",
        "A search has sentences and beams, and two loops go through them.",
        "The scores of one sentence's beams end in an error.",
        AT,
        ({"number": _of_two_axes},),
    ),
    Mistake(
        "alpha_unchecked",
        "you accept a negative α",
        "Nothing fails.",
        "Short sentences, which have an advantage already, get another.",
        AT,
        ({"accept": lambda alpha: None},),
    ),
)

TASK = Task(
    name="length_penalty",
    signature="length_penalty(log_p, length, alpha)",
    arguments=("log_p", "length", "alpha"),
    returns=("score",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor, of the shape of log_p.",
            ("plain", "one_axis"),
            AT,
            ("structure",),
        ),
        Requirement("values", "score = log p / ((5 + n)/6)^α.", ("plain", "steep"), AT),
        Requirement("zero", "with α = 0 it is log p itself.", ("zero",), AT),
        Requirement("one_length", "the length may be one number for all.", ("one_length",), AT),
        Requirement(
            "dtype",
            "it is as precise as log p, and of its dtype.",
            ("double", "plain", "half"),
            AT,
            ("dtype",),
        ),
        Requirement("dead", "what is impossible (log p = −∞) stays so.", ("dead",), AT),
        Requirement("inputs", "the arguments are left unchanged.", ("plain",), AT, ("inputs",)),
        Requirement("refusals", "a negative α is refused with ValueError.", ("negative",), AT),
    ),
    sizes=_sizes,
    small=({"batch": 1, "beams": 1}, {"batch": 1, "beams": 2}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
