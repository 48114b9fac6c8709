"""The check of `adam_step`, an exercise: one step of Adam on one tensor."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

ADAM = "#ch14-optimiser"


def _sizes(seed: int) -> dict[str, int]:
    rows, columns, step = random.Random(seed).sample([3, 5, 7, 11], 3)
    return {"rows": rows, "columns": columns, "step": step}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    r, c = s["rows"], s["columns"]

    def state(*shape: int) -> list[Tensor]:
        drawn = [draw.normal(1, *shape)[0] for _ in range(4)]
        return [*drawn[:3], drawn[3].square()]

    def new(*shape: int, scale: float = 1.0) -> list[Tensor]:
        parameter, zeros = draw.normal(*shape), torch.zeros(shape, dtype=torch.float64)
        return [parameter, scale * draw.normal(*shape), zeros, zeros]

    old, options = state(r, c), {"rate": 0.07, "betas": [0.8, 0.95], "eps": 1e-9}
    still = [old[0], torch.zeros_like(old[1]), torch.zeros_like(old[2]), torch.zeros_like(old[3])]
    large = {**options, "eps": 0.3}
    steep = [old[0], 100 * old[1], *old[2:]]  # a gradient so large that whoever clips, clips it

    def asked(args: list, step: int, **options: Any) -> Probe:
        return Probe([*args, step], options)

    return {
        "first": asked(new(c), 1, **options),
        "second": asked(state(c), 2, **options),
        "later": asked(old, s["step"], **options),
        "epsilon": asked(old, s["step"], **large),
        "at_rest": asked(still, 1, **options),
        "no_axes": asked(state(), 3, **options),
        "three_axes": asked(state(2, r, c), 3, **options),
        "late": asked(steep, 20_011, **options),
        "defaults": asked(new(c, scale=1e-8), 2, rate=0.07),
        "float32": asked([tensor.float() for tensor in old], s["step"], **options),
        "no_memory": asked(old, 3, **{**options, "betas": [0.0, 0.0]}),
        "step_zero": Probe([*old, 0], options, refused="step=0"),
        "beta_one": Probe([*old, 3], {**options, "betas": [0.8, 1.0]}, refused="betas=[0.8, 1.0]"),
        "beta_below": Probe([*old, 3], {**options, "betas": [-0.1, 0.95]}, refused="betas=[-0.1, 0.95]"),
        "step_below": Probe([*old, -1], options, refused="step=-1"),
        "first_beta_one": Probe([*old, 3], {**options, "betas": [1.0, 0.95]}, refused="betas=[1.0, 0.95]"),
        "beta_above": Probe([*old, 3], {**options, "betas": [0.8, 1.5]}, refused="betas=[0.8, 1.5]"),
        "first_beta_above": Probe([*old, 3], {**options, "betas": [1.5, 0.95]}, refused="betas=[1.5, 0.95]"),
        "second_beta_below": Probe([*old, 3], {**options, "betas": [0.8, -0.1]}, refused="betas=[0.8, -0.1]"),
    }


def _accept_step(step: int) -> None:
    if step < 1:
        raise ValueError("step: expected 1 or more")


def _accept_betas(betas: Any) -> None:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError("betas: expected 0 or more, below 1")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    betas: Callable = lambda: (0.9, 0.98)
    eps: Callable = lambda: 1e-9
    accept_step: Callable = _accept_step
    accept_betas: Callable = _accept_betas
    which: Callable = lambda betas: betas
    count: Callable = lambda step: step
    average: Callable = lambda old, new, beta: beta * old + (1 - beta) * new
    follow: Callable = lambda gradient: gradient
    squared: Callable = lambda gradient: gradient.square()
    used: Callable = lambda old, new: new  # moments, for the update
    first_share: Callable = lambda beta, step: 1 - beta**step
    second_share: Callable = lambda beta, step: 1 - beta**step
    divide: Callable = lambda first, second, share, eps: first / ((second / share).sqrt() + eps)
    move: Callable = lambda parameter, change: parameter - change
    kept: Callable = lambda moment, share: moment
    result: Callable = lambda given, made: made


def assemble(steps: Steps) -> Callable:
    """The step in these steps."""

    usual_betas, usual_eps = steps.betas(), steps.eps()

    def adam_step(parameter, gradient, first, second, step, *, rate, betas=usual_betas, eps=usual_eps):
        steps.accept_step(step)
        steps.accept_betas(betas)
        (beta1, beta2), number = steps.which(betas), steps.count(step)
        gradient = steps.follow(gradient)
        new_first = steps.average(first, gradient, beta1)
        new_second = steps.average(second, steps.squared(gradient), beta2)
        share1, share2 = steps.first_share(beta1, number), steps.second_share(beta2, number)
        m, v = steps.used((first, second), (new_first, new_second))
        change = rate * steps.divide(m / share1, v, share2, eps)
        made = (steps.move(parameter, change), steps.kept(new_first, share1), steps.kept(new_second, share2))
        return steps.result((parameter, first, second), made)

    return adam_step


def _in_place(*which: int) -> Callable:
    """The results written over the arguments, those that are named by number."""

    def result(given: tuple, made: tuple) -> tuple:
        return tuple(
            old.copy_(new) if n in which else new
            for n, (old, new) in enumerate(zip(given, made, strict=True))
        )

    return result


def _step_zero_crashes(step: int) -> None:
    if step < 1:
        raise ZeroDivisionError


def _refused_if(is_bad: Callable) -> Callable:
    """Refuses what this calls bad, and nothing else."""

    def accept(given: Any) -> None:
        if is_bad(given):
            raise ValueError

    return accept


MISTAKES = (
    Mistake(
        "no_correction",
        "you never correct the moments for starting from zero",
        "Momentum and running averages elsewhere go without.",
        "The first steps have another size than the rate: too large if β₂ is closer to 1 than β₁.",
        ADAM,
        ({"first_share": lambda beta, step: 1.0, "second_share": lambda beta, step: 1.0},),
    ),
    Mistake(
        "second_not_corrected",
        "you correct the first moment, but not the second",
        "One of two lines that look alike was forgotten.",
        "The first steps are much too large, by 1/√(1 − β₂).",
        ADAM,
        ({"second_share": lambda beta, step: 1.0},),
    ),
    Mistake(
        "first_not_corrected",
        "you correct the second moment, but not the first",
        "One of two lines that look alike was forgotten.",
        "The first steps are too small, by 1 − β₁.",
        ADAM,
        ({"first_share": lambda beta, step: 1.0},),
    ),
    Mistake(
        "corrected_kept",
        "you return the corrected moments; the next step needs those before the correction",
        "The same names were assigned to again.",
        "The correction is applied again and again, and the averages grow.",
        ADAM,
        ({"kept": lambda moment, share: moment / share},),
    ),
    Mistake(
        "correction_constant",
        "you correct by 1 − β whatever the step is; the correction is 1 − β to the power of the step",
        "At the first step there is no difference.",
        "From the second step on, steps are of another size.",
        ADAM,
        ({"first_share": lambda beta, step: 1 - beta, "second_share": lambda beta, step: 1 - beta},),
    ),
    Mistake(
        "eps_under_root",
        "you add ε under the root; in Adam it stands beside it",
        "In LayerNorm it stands under the root.",
        "Small gradients take smaller steps than they should.",
        ADAM,
        ({"divide": lambda first, second, share, eps: first / (second / share + eps).sqrt()},),
    ),
    Mistake(
        "eps_before_correction",
        "you add ε to the root of the moment before the correction; it belongs to the corrected one",
        "The paper's faster form puts both corrections into the rate, with another ε.",
        "In the first steps ε weighs more than it should.",
        ADAM,
        ({"divide": lambda first, second, share, eps: first / (second.sqrt() + eps) * share**0.5},),
    ),
    Mistake(
        "no_eps",
        "you left out ε",
        "Second moments are never quite zero, it seems.",
        "A parameter without a gradient becomes 0/0, which is NaN.",
        ADAM,
        ({"divide": lambda first, second, share, eps: first / (second / share).sqrt()},),
    ),
    Mistake(
        "no_root",
        "you divide by the second moment, not by its root",
        "The root is one call more.",
        "Small gradients give giant steps.",
        ADAM,
        ({"divide": lambda first, second, share, eps: first / (second / share + eps)},),
    ),
    Mistake(
        "betas_exchanged",
        "you exchanged the betas: the first belongs to the gradient's average, the second to its square's",
        "Both are a little below 1.",
        "The direction follows the past for too long, and its size not long enough.",
        ADAM,
        ({"which": lambda betas: (betas[1], betas[0])},),
    ),
    Mistake(
        "weights_exchanged",
        "you give β to the new value and 1 − β to the old average; it is the other way round",
        "Both sum to 1.",
        "The averages hardly average.",
        ADAM,
        ({"average": lambda old, new, beta: (1 - beta) * old + beta * new},),
    ),
    Mistake(
        "sum_not_average",
        "you add the whole new value to the average; it gets the weight 1 − β",
        "SGD's momentum adds whole gradients.",
        "Moments are too large; in the update that cancels only in part.",
        ADAM,
        ({"average": lambda old, new, beta: beta * old + new},),
    ),
    Mistake(
        "not_squared",
        "you forgot to square the gradient in the second moment",
        "The root comes later and was thought to undo nothing.",
        "Steps grow with the root of the gradient.",
        ADAM,
        ({"squared": lambda gradient: gradient.abs()}, {"squared": lambda gradient: gradient}),
    ),
    Mistake(
        "one_number_for_all",
        "you average the squares over the whole tensor; each entry has a second moment of its own",
        "A norm is one number.",
        "Entries with small gradients hardly move.",
        ADAM,
        (
            {"squared": lambda gradient: gradient.square().mean()},
            {"squared": lambda gradient: gradient.square().sum()},
        ),
    ),
    Mistake(
        "gradient_clipped",
        "you clip the gradient; the moments are averages of the whole of it",
        "Most training loops clip before the optimiser's step, and the line was copied along.",
        "Large gradients count for less than they should.",
        ADAM,
        (
            {"follow": lambda gradient: gradient.clamp(-1, 1)},
            {"follow": lambda gradient: gradient.clamp(-5, 5)},
            {"follow": lambda gradient: gradient / gradient.norm().clamp(min=1)},
            {"follow": lambda gradient: gradient / (gradient.norm() / 5).clamp(min=1)},
        ),
    ),
    Mistake(
        "uphill",
        "you add the change; it is subtracted",
        "The sign was lost.",
        "The loss rises.",
        ADAM,
        ({"move": lambda parameter, change: parameter + change},),
    ),
    Mistake(
        "moments_before_update",
        "you compute the change from the old moments; this step's gradient must be in them",
        "The moments are updated at the end.",
        "Each gradient has its effect one step late, and the first has none.",
        ADAM,
        ({"used": lambda old, new: old},),
    ),
    Mistake(
        "counts_from_zero",
        "you count steps from 0; the first step is number 1",
        "range(n) starts at 0.",
        "The correction belongs to another step: too weak, or a division by zero.",
        ADAM,
        ({"count": lambda step: step + 1}, {"count": lambda step: step - 1}),
    ),
    Mistake(
        "torchs_defaults",
        "your defaults are PyTorch's; the paper's are β = (0.9, 0.98) and ε = 1e-9",
        "(0.9, 0.999) and 1e-8 are what Adam has everywhere else.",
        "Callers who rely on the defaults train with others.",
        ADAM,
        (
            {"betas": lambda: (0.9, 0.999), "eps": lambda: 1e-8},
            {"betas": lambda: (0.9, 0.999)},
            {"eps": lambda: 1e-8},
        ),
    ),
    Mistake(
        "in_place",
        "you change the tensors that you were given",
        "Optimisers do so, to save memory.",
        "Here the caller still needs the old ones.",
        ADAM,
        (
            {"result": _in_place(0, 1, 2)},
            {"result": _in_place(0)},
            {"result": _in_place(1, 2)},
            {"result": _in_place(1)},
            {"result": _in_place(2)},
        ),
    ),
    Mistake(
        "type_changed",
        "you convert to another type of number",
        "A tensor was made anew, without its dtype.",
        "A float32 model cannot take the parameter back.",
        ADAM,
        (
            {"result": lambda given, made: tuple(t.double() for t in made)},
            {"result": lambda given, made: tuple(t.float() for t in made)},
        ),
    ),
    Mistake(
        "step_unchecked",
        "you accept step 0",
        "Nothing fails: 0/0 is NaN without a word.",
        "All parameters are NaN after the first step.",
        ADAM,
        ({"accept_step": lambda step: None}, {"accept_step": _step_zero_crashes}),
    ),
    Mistake(
        "negative_step",
        "you refuse step 0, but not those below",
        "0 is the one that divides by zero.",
        "Roots of negative numbers, which are NaN without a word.",
        ADAM,
        ({"accept_step": _refused_if(lambda step: step == 0)},),
    ),
    Mistake(
        "betas_unchecked",
        "you do not refuse betas outside [0, 1)",
        "Nothing fails.",
        "With β₂ = 1 all parameters are NaN.",
        ADAM,
        ({"accept_betas": lambda betas: None},),
    ),
    Mistake(
        "betas_half_checked",
        "you refuse some betas outside [0, 1), not all: each of the two has a lower and an upper bound",
        "Four comparisons, of which some were left out.",
        "A mistyped beta trains with an average that grows, or divides by zero.",
        ADAM,
        (
            {"accept_betas": _refused_if(lambda betas: betas[0] < 0 or betas[1] >= 1)},
            {"accept_betas": _refused_if(lambda betas: betas[0] >= 1 or betas[1] < 0)},
            {"accept_betas": _refused_if(lambda betas: max(betas) >= 1)},
            {"accept_betas": _refused_if(lambda betas: min(betas) < 0)},
            {"accept_betas": _refused_if(lambda betas: not 0 <= betas[0] < 1)},
            {"accept_betas": _refused_if(lambda betas: not 0 <= betas[1] < 1)},
            {"accept_betas": _refused_if(lambda betas: min(betas) < 0 or 1 in betas)},
        ),
    ),
    Mistake(
        "zero_beta_refused",
        "you refuse a β of 0, which is allowed: an average without memory",
        "0 < β < 1 is quickly written.",
        "Nobody can switch an average off, to see what it is good for.",
        ADAM,
        ({"accept_betas": _refused_if(lambda betas: not all(0 < beta < 1 for beta in betas))},),
    ),
)

MOMENTS = "the moments are averages, β · old + (1 − β) · new: of the gradient and of its square."

TASK = Task(
    name="adam_step",
    signature="adam_step(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9)",
    arguments=("parameter", "gradient", "first", "second", "step"),
    returns=("parameter", "first", "second"),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns the new parameter and both new moments, all of the parameter's shape.",
            ("first",),
            ADAM,
            ("structure",),
        ),
        Requirement(
            "first", "the first step moves each entry by the rate, against its gradient.", ("first",), ADAM
        ),
        Requirement(
            "values",
            "change = rate · m̂/(√v̂ + ε), of the new moments, corrected by 1 − βˢᵗᵉᵖ.",
            ("second", "later", "late"),
            ADAM,
        ),
        Requirement(
            "epsilon", "ε is added to √v̂; without a gradient nothing moves.", ("epsilon", "at_rest"), ADAM
        ),
        Requirement("axes", "parameters may have any number of axes.", ("no_axes", "three_axes"), ADAM),
        Requirement(
            "defaults", "the paper's β = (0.9, 0.98) and ε = 1e-9 are defaults.", ("defaults",), ADAM
        ),
        Requirement(
            "dtype", "the results have the dtype of the parameter.", ("later", "float32"), ADAM, ("dtype",)
        ),
        Requirement("inputs", "the tensors given are left unchanged.", ("later", "first"), ADAM, ("inputs",)),
        Requirement(
            "refusals",
            "a step below 1, and betas outside [0, 1), are refused with ValueError; a β of 0 is not.",
            (
                *("no_memory", "step_zero", "beta_one", "beta_below"),
                *("step_below", "first_beta_one", "second_beta_below"),
                *("beta_above", "first_beta_above"),
            ),
            ADAM,
        ),
    ),
    sizes=_sizes,
    small=({"rows": 1, "columns": 1, "step": 2}, {"rows": 1, "columns": 2, "step": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
