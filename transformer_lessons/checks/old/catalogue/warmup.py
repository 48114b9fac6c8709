"""The check of `warmup_inverse_sqrt`: the paper's learning rate."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import warmup_inverse_sqrt

__all__ = ["TASK"]

SCHEDULE = "#ch14-optimiser"


def _sizes(seed: int) -> dict[str, int]:
    d_model, warmup_steps = random.Random(seed).sample([5, 7, 11, 13, 17], 2)
    return {"d_model": d_model, "warmup_steps": warmup_steps}


def _seen(rate: Any) -> Any:
    """A number as a tensor, which is compared to the precision of its dtype."""
    return torch.tensor(rate, dtype=torch.float64) if isinstance(rate, int | float) else _double(rate)


def _double(rate: Any) -> Any:
    return rate.double() if isinstance(rate, Tensor) else rate


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    d, w = s["d_model"], s["warmup_steps"]
    within = int(draw.integers(2, max(w, 3), 1))
    after = int(draw.integers(2 * w, 9 * w, 1))
    asked = {
        "within": [within, d, w],
        "first": [1, d, w],
        "after": [after, d, w],
        "peak": [w, d, w],
        "just_after": [w + 1, d, w],
        "at_once": [3, d, 1],
        "paper": [100_003, 512, 4000],
        "zero": [0, d, w],
        "narrow": [within, 1, w],
    }
    return {
        **{name: Probe(args, view=_seen) for name, args in asked.items()},
        "negative": Probe([-1, d, w], refused="step=-1"),
        "no_width": Probe([within, 0, w], refused="d_model=0"),
        "no_warmup": Probe([within, d, 0], refused="warmup_steps=0"),
        "negative_width": Probe([within, -1, w], refused="d_model=-1"),
        "negative_warmup": Probe([within, d, -1], refused="warmup_steps=-1"),
        "both_negative": Probe([within, -d, -w], refused=f"d_model={-d} and warmup_steps={-w}"),
    }


def _accept_step(step: int) -> None:
    if step < 0:
        raise ValueError("step: expected 0 or more")


def _accept_sizes(d_model: int, warmup_steps: int) -> None:
    if min(d_model, warmup_steps) < 1:
        raise ValueError("d_model, warmup_steps: expected 1 or more")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept_step: Callable = _accept_step
    accept_sizes: Callable = _accept_sizes
    count: Callable = lambda step: max(step, 1)
    scale: Callable = lambda d_model: d_model**-0.5
    rise: Callable = lambda step, warmup_steps: step * warmup_steps**-1.5
    fall: Callable = lambda step, warmup_steps: step**-0.5
    choose: Callable = min
    warmup: Callable = lambda warmup_steps: warmup_steps
    result: Callable = float


def assemble(steps: Steps) -> Callable:
    """The rate in these steps."""

    def warmup_inverse_sqrt(step, d_model, warmup_steps):
        steps.accept_step(step)
        steps.accept_sizes(d_model, warmup_steps)
        number, warmup = steps.count(step), steps.warmup(warmup_steps)
        rate = steps.choose(steps.rise(number, warmup), steps.fall(number, warmup))
        return steps.result(steps.scale(d_model) * rate)

    return warmup_inverse_sqrt


def _positive_or_crash(step: int) -> None:
    if step < 0:
        raise TypeError("'<' not supported between instances of 'complex' and 'float'")


def _accepted(d_model: int, warmup_steps: int) -> None:
    if not d_model:
        raise ZeroDivisionError


def _crashes(d_model: int, warmup_steps: int) -> None:
    if not d_model * warmup_steps:
        raise ZeroDivisionError


def _zero_refused(d_model: int, warmup_steps: int) -> None:
    if not d_model or not warmup_steps:
        raise ValueError("d_model, warmup_steps: expected other numbers than 0")


def _product_refused(d_model: int, warmup_steps: int) -> None:
    if d_model * warmup_steps < 1:
        raise ValueError("d_model, warmup_steps: expected 1 or more")


MISTAKES = (
    Mistake(
        "d_model_ignored",
        "you never use d_model",
        "The shape of the curve is what one remembers.",
        "The rate is too large by √d_model.",
        SCHEDULE,
        ({"scale": lambda d_model: 1.0},),
    ),
    Mistake(
        "d_model_multiplied",
        "you multiply by √d_model; the rate is divided by it",
        "Embeddings are multiplied by √d_model, and the minus in the exponent is small.",
        "Wide models train with a rate that is too large by d_model, and diverge.",
        SCHEDULE,
        ({"scale": lambda d_model: d_model**0.5},),
    ),
    Mistake(
        "divided_by_d_model",
        "you divide by d_model, not by its root",
        "The exponent was dropped.",
        "The rate is too small by √d_model.",
        SCHEDULE,
        ({"scale": lambda d_model: 1 / d_model},),
    ),
    Mistake(
        "larger_of_both",
        "you take the larger of the two branches; it is the smaller one that counts",
        "“Warm up to the peak” sounds like a maximum.",
        "The rate starts high, falls until the end of the warm-up, and rises ever after.",
        SCHEDULE,
        ({"choose": max},),
    ),
    Mistake(
        "no_warmup",
        "your rate never rises: the warm-up is missing",
        "The inverse square root alone looks like the whole formula.",
        "The first step is the largest of all.",
        SCHEDULE,
        ({"choose": lambda rise, fall: fall},),
    ),
    Mistake(
        "never_falls",
        "your rate rises for ever: after warmup_steps it has to fall",
        "Only the warm-up was written.",
        "Training diverges at some point after the warm-up.",
        SCHEDULE,
        ({"choose": lambda rise, fall: rise},),
    ),
    Mistake(
        "constant_after_warmup",
        "your rate stays at its peak; it has to fall with the inverse square root of the step",
        "Many schedules hold the rate after the warm-up.",
        "The last thousands of steps are as large as the peak's.",
        SCHEDULE,
        ({"fall": lambda step, warmup_steps: warmup_steps**-0.5},),
    ),
    Mistake(
        "falls_linearly",
        "after the warm-up your rate falls with 1/step; it is 1/√step",
        "The root was lost.",
        "The rate is soon next to nothing.",
        SCHEDULE,
        (
            {"fall": lambda step, warmup_steps: 1 / step},
            {"fall": lambda step, warmup_steps: warmup_steps**0.5 / step},
        ),
    ),
    Mistake(
        "rises_to_one",
        "you rise by step/warmup_steps, to 1; the branches must meet at 1/√warmup_steps",
        "A warm-up from 0 to 1 is what other schedules multiply their peak by.",
        "The rate stops rising long before warmup_steps.",
        SCHEDULE,
        ({"rise": lambda step, warmup_steps: step / warmup_steps},),
    ),
    Mistake(
        "exponent_half",
        "your warm-up has warmup_steps to the power −1/2; it is −3/2",
        "Two of the three exponents are −1/2.",
        "The rate stops rising after a few steps: the branches meet too early.",
        SCHEDULE,
        ({"rise": lambda step, warmup_steps: step * warmup_steps**-0.5},),
    ),
    Mistake(
        "peak_late",
        "your fall starts from the peak anew: it counts steps from the end of the warm-up, not from the start",
        "if step < warmup_steps: … else: …, with a counter of its own.",
        "The rate is not continuous, or falls at another pace.",
        SCHEDULE,
        (
            {"fall": lambda step, warmup_steps: max(step - warmup_steps, 1) ** -0.5},
            {"fall": lambda step, warmup_steps: (warmup_steps * max(step - warmup_steps, 1)) ** -0.5},
        ),
    ),
    Mistake(
        "warmup_fixed",
        "you write 4000 where warmup_steps belongs",
        "It is the paper's number.",
        "A short run never gets past its warm-up.",
        SCHEDULE,
        ({"warmup": lambda warmup_steps: 4000},),
    ),
    Mistake(
        "counts_from_zero",
        "you add 1 to every step; only step 0 counts as 1, and step 1 is step 1 already",
        "PyTorch's schedulers count from 0, and + 1 avoids the division by zero.",
        "The curve is shifted by a step; the peak comes at warmup_steps − 1.",
        SCHEDULE,
        ({"count": lambda step: step + 1},),
    ),
    Mistake(
        "zero_divides",
        "you divide by zero at step 0",
        "The paper counts from 1, PyTorch's schedulers from 0.",
        "The first call of a scheduler fails.",
        SCHEDULE,
        ({"count": lambda step: step},),
    ),
    Mistake(
        "zero_is_zero",
        "your rate is 0 at step 0; step 0 counts as 1",
        "The straight line of the warm-up goes through 0.",
        "The first batch is computed for nothing.",
        SCHEDULE,
        ({"count": lambda step: step or 1e-300},),
    ),
    Mistake(
        "returns_tensor",
        "you return a tensor; an optimiser's rate is a plain number",
        "min and powers were taken of tensors.",
        "Records of the rate hold tensors, and cannot be written to a JSON file.",
        SCHEDULE,
        (
            {"result": torch.tensor},
            {"result": lambda rate: torch.tensor(rate, dtype=torch.float64)},
            {"result": lambda rate: torch.tensor([rate])},
        ),
    ),
    Mistake(
        "step_unchecked",
        "you do not check that step is 0 or more",
        "Nobody counts backwards on purpose.",
        "A counter that is off by one gets a rate, or an error about complex numbers.",
        SCHEDULE,
        ({"accept_step": lambda step: None}, {"accept_step": _positive_or_crash}),
    ),
    Mistake(
        "sizes_unchecked",
        "you do not check that d_model and warmup_steps are 1 or more",
        "Python complains of a division by zero anyway, mostly.",
        "The message does not say which argument was wrong.",
        SCHEDULE,
        (
            {"accept_sizes": _crashes},
            {"accept_sizes": _crashes, "result": lambda rate: rate},  # a complex one
            {"accept_sizes": _accepted, "warmup": lambda w: max(w, 1)},
        ),
    ),
    Mistake(
        "negative_sizes",
        "you refuse a d_model or warmup_steps of 0, but not those below",
        "`not d_model` looks like a check of sizes.",
        "Roots of negative numbers are complex, and the error speaks of those.",
        SCHEDULE,
        ({"accept_sizes": _zero_refused},),
    ),
    Mistake(
        "product_checked",
        "you check the product of d_model and warmup_steps; that of two negative ones is positive",
        "One comparison looks as good as two.",
        "Roots of negative numbers are complex, and the error speaks of those.",
        SCHEDULE,
        ({"accept_sizes": _product_refused},),
    ),
)

TASK = Task(
    name="warmup",
    signature="warmup_inverse_sqrt(step, d_model, warmup_steps)",
    arguments=("step", "d_model", "warmup_steps"),
    returns=("rate",),
    reference=warmup_inverse_sqrt,
    requirements=(
        Requirement("returns", "it returns one number, a float.", ("within",), SCHEDULE, ("structure",)),
        Requirement(
            "rise",
            "until warmup_steps the rate rises in proportion to the step.",
            ("within", "first", "narrow"),
            SCHEDULE,
        ),
        Requirement(
            "fall",
            "from warmup_steps on it falls with the inverse square root of the step.",
            ("after", "peak", "just_after", "at_once", "paper"),
            SCHEDULE,
        ),
        Requirement("zero", "step 0 counts as step 1.", ("zero",), SCHEDULE),
        Requirement(
            "refusals",
            "a negative step, and a d_model or warmup_steps below 1, are refused with ValueError.",
            ("negative", "no_width", "no_warmup", "negative_width", "negative_warmup", "both_negative"),
            SCHEDULE,
        ),
    ),
    sizes=_sizes,
    small=({"d_model": 2, "warmup_steps": 3}, {"d_model": 3, "warmup_steps": 5}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
