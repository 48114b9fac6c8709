"""The check of `scaled_step`: one step with scaled float16 gradients, as mixed precision makes it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

PRECISION, WRONG = "#ch16-precision", "#ch16-wrong"
NORMAL = {
    "after the step, the weights are not w − rate · g": 0,
    "after a step that does not fill up the count, the scale should stay as it was": 1,
    "after a clean step, the count should be one more": 2,
}
SKIPPED = {
    "after an overflow, the weights should be left as they were": 0,
    "after an overflow, the scale should be halved": 1,
    "after an overflow, the count of clean steps should begin again at 0": 2,
}
GROWN = {
    "the step that fills up the count is a step like any other: the weights are not w − rate · g": 0,
    "when `growth` clean steps have been counted, the scale should be doubled": 1,
    "when the scale has been doubled, the count should begin again at 0": 2,
}


def _view(sentences: dict[str, int]) -> Callable:
    def view(result: list) -> dict:
        weights, scale, clean = result
        seen = list(weights), float(scale), int(clean)
        return {sentence: seen[number] for sentence, number in sentences.items()}

    return view


def _sizes(seed: int) -> dict[str, int]:
    rows, columns, width = random.Random(seed).sample([3, 5, 7, 11], 3)
    return {"rows": rows, "columns": columns, "width": width}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    shapes = (s["rows"], s["columns"]), (s["width"],), (1,)
    weights = [draw.normal(*shape, dtype=torch.float32) for shape in shapes]

    def gradients(size: float) -> list[Tensor]:
        return [(draw.normal(*shape) * size).half() for shape in shapes]

    def probe(size, scale, rate, limit, clean=1, growth=5, bad=()) -> Probe:
        """`bad`: tensor, place and number; without a limit, it is a quarter above the length."""
        found = gradients(size)
        if limit is None:
            length = torch.cat([g.flatten() for g in found]).float().norm().item() / scale
            limit = round(1.25 * length, 4)
        for tensor, place, number in bad:
            found[tensor].view(-1)[place] = number
        text = SKIPPED if bad else GROWN if clean + 1 == growth else NORMAL
        return Probe([weights, found, scale, clean, rate, limit, growth], view=_view(text))

    large = [torch.full(shape, 6.2e4, dtype=torch.float16) for shape in shapes]
    zero = [torch.zeros_like(g) for g in large]
    inf, nan = float("inf"), float("nan")
    return {
        "plain": probe(1.0, 8.0, 0.5, 1e6),
        "small": probe(1.0, 2.0**16, 2.0**15, 1e6),
        "clipped": probe(3.0, 4.0, 64.0, 0.25),
        "long": probe(200.0, 128.0, 0.5, 0.75),
        "below": probe(1.0, 64.0, 8.0, None, clean=3),
        "first_inf": probe(1.0, 32.0, 0.5, 1e6, clean=3, bad=[(0, 0, inf)]),
        "minus_inf": probe(1.0, 32.0, 0.5, 1.0, clean=2, bad=[(1, -1, -inf)]),
        "last_nan": probe(1.0, 1024.0, 0.5, 1e6, bad=[(2, 0, nan)]),
        "overflow_at_growth": probe(1.0, 32.0, 0.5, 1e6, clean=4, bad=[(n, 0, inf) for n in range(3)]),
        "growth": probe(1.0, 16.0, 0.5, 1e6, clean=4),
        "growth_of_one": probe(1.0, 2.0**24, 2.0**23, 1e6, clean=0, growth=1),  # no scale is too large
        "large_sum": Probe([weights, large, 1024.0, 1, 0.5, 1e6, 5], view=_view(NORMAL)),
        "zero": Probe([weights, zero, 32.0, 1, 0.5, 1.0, 5], view=_view(NORMAL)),
        "scale_of_one": probe(1.0, 1.0, 0.5, 1e6, clean=2, bad=[(1, slice(None), inf)]),
    }


def _finite(gradients: list[Tensor]) -> bool:
    return all(g.isfinite().all() for g in gradients)


def _unscale(gradients: list[Tensor], scale: float) -> list[Tensor]:
    return [g.float() / scale for g in gradients]


def _factor(gradients: list[Tensor], limit: float) -> float:
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    return limit / max(limit, norm)


def _clip(gradients: list[Tensor], limit: float) -> list[Tensor]:
    factor = _factor(gradients, limit)
    return [g * factor for g in gradients]


def _update(weights: list[Tensor], gradients: list[Tensor], rate: float, given: list[Tensor]) -> list[Tensor]:
    return [w - rate * g for w, g in zip(weights, gradients, strict=True)]


def _grown(scale: float, clean: int, growth: int) -> tuple[float, int]:
    return (scale * 2, 0) if clean + 1 == growth else (scale, clean + 1)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    finite: Callable = _finite
    skipped: Callable = lambda weights, scale, clean: (weights, scale / 2, 0)
    prepare: Callable = lambda gradients, scale, limit: _clip(_unscale(gradients, scale), limit)
    update: Callable = _update
    count: Callable = _grown
    result: Callable = lambda weights, scale, clean: (weights, scale, clean)


def assemble(steps: Steps) -> Callable:
    """One scaled step in these steps."""

    def scaled_step(weights, gradients, scale, clean, rate, max_norm, growth):
        if not steps.finite(gradients):
            return steps.result(*steps.skipped(weights, scale, clean))
        found = steps.prepare(gradients, scale, max_norm)
        return steps.result(steps.update(weights, found, rate, gradients), *steps.count(scale, clean, growth))

    return scaled_step


def _each_clipped(gradients, scale, limit):
    return [_clip([g], limit)[0] for g in _unscale(gradients, scale)]


def _by_value(gradients, scale, limit):
    return [g.clamp(-limit, limit) for g in _unscale(gradients, scale)]


def _always_clipped(gradients, scale, limit):
    found = _unscale(gradients, scale)
    norm = torch.cat([g.flatten() for g in found]).norm()
    return [g * limit / norm for g in found]


def _norm_in_half(gradients, scale, limit):
    """The squares are summed in float16, where they overflow."""
    total = torch.stack([g.square().sum() for g in gradients]).sum().half().sqrt()
    factor = min(1.0, limit / (total.item() / scale)) if total else 1.0
    return [g * factor for g in _unscale(gradients, scale)]


def _good_ones_only(weights, gradients, rate, given):
    good = [g.isfinite().all() for g in given]
    return [w - rate * g if fine else w for w, g, fine in zip(weights, gradients, good, strict=True)]


def _in_place(weights, gradients, rate, given):
    return [w.sub_(rate * g) for w, g in zip(weights, gradients, strict=True)]


def _doubling(when: Callable, clean_after: int | None = 0) -> dict:
    def count(scale, clean, growth):
        if not when(clean, growth):
            return scale, clean + 1
        return scale * 2, clean + 1 if clean_after is None else clean_after

    return {"count": count}


def _doubling_below(scale: float, clean: int, growth: int, limit: float = 2.0**16) -> tuple[float, int]:
    grown, clean = _grown(scale, clean, growth)
    return (grown if scale < limit else scale), clean


def _doubling_up_to(limit: float) -> dict:
    def count(scale, clean, growth):
        grown, clean = _grown(scale, clean, growth)
        return (grown if grown == scale else min(grown, limit)), clean

    return {"count": count}


MISTAKES = (
    Mistake(
        "not_unscaled",
        "you never divide the gradients by the scale",
        "The loss was multiplied in another place.",
        "Every step is `scale` times too long.",
        PRECISION,
        ({"prepare": lambda g, scale, limit: _clip([x.float() for x in g], limit)},),
    ),
    Mistake(
        "unscaled_in_half",
        "you divide by the scale in float16; what the scale had saved is rounded away again",
        "The gradients are float16, and dividing does not change that.",
        "Small gradients become coarse or zero. Convert first, then divide.",
        PRECISION,
        (
            {"prepare": lambda g, scale, limit: _clip([(x / scale).float() for x in g], limit)},
            {"prepare": lambda g, scale, limit: _clip([(x * (1 / scale)).float() for x in g], limit)},
        ),
    ),
    Mistake(
        "clipped_before_unscaling",
        "you clip before you divide by the scale, so the length that you compare is `scale` times too long",
        "Clipping is put right after the backward pass, where it stands without a scale.",
        "Nearly all gradients are cut, to 1/scale of the limit.",
        WRONG,
        ({"prepare": lambda g, scale, limit: _unscale(_clip([x.float() for x in g], limit), scale)},),
    ),
    Mistake(
        "clipped_one_by_one",
        "you clip each tensor by its own length; the limit is for all of them together",
        "A loop over the tensors clips what it sees.",
        "The direction of the step changes, and it may be longer than the limit.",
        WRONG,
        ({"prepare": _each_clipped},),
    ),
    Mistake(
        "clipped_by_value",
        "you cut off each entry; it is the length of the whole gradient that is limited",
        "clamp and clip sound alike.",
        "The direction of the step changes.",
        WRONG,
        ({"prepare": _by_value},),
    ),
    Mistake(
        "lengthened",
        "you bring every gradient to the length max_norm, short ones too",
        "g · max_norm / norm without a minimum with 1.",
        "Near the optimum, steps never get smaller.",
        WRONG,
        ({"prepare": _always_clipped},),
    ),
    Mistake(
        "not_clipped",
        "you never clip",
        "max_norm is not needed for anything to run.",
        "One bad batch moves the weights as far as it likes.",
        WRONG,
        ({"prepare": lambda gradients, scale, limit: _unscale(gradients, scale)},),
    ),
    Mistake(
        "norm_in_half",
        "you sum the squares of the gradients in float16, where they overflow at 65,504",
        "The norm is taken of what is there, before it is converted.",
        "The length is infinite, and the step zero, though every gradient is finite.",
        PRECISION,
        ({"prepare": _norm_in_half},),
    ),
    Mistake(
        "never_skipped",
        "you take the step even if a gradient has overflowed",
        "An overflow raises no error.",
        "Weights become NaN, and stay it.",
        PRECISION,
        ({"finite": lambda gradients: True},),
    ),
    Mistake(
        "nan_only",
        "you look for NaN only; what overflows is infinite",
        "isnan is the first function that comes to mind.",
        "Infinite gradients get through and turn into NaN one step later.",
        PRECISION,
        ({"finite": lambda gradients: not any(g.isnan().any() for g in gradients)},),
    ),
    Mistake(
        "infinity_only",
        "you look for infinite numbers only; inf − inf is NaN, and that has to be found too",
        "isinf is what the text seems to say.",
        "Overflows that met another one get through.",
        PRECISION,
        ({"finite": lambda gradients: not any(g.isinf().any() for g in gradients)},),
    ),
    Mistake(
        "first_tensor_only",
        "you look for overflows in the first tensor only",
        "A return or break inside the loop.",
        "An overflow elsewhere gets through.",
        PRECISION,
        ({"finite": lambda gradients: bool(gradients[0].isfinite().all())},),
    ),
    Mistake(
        "last_tensor_only",
        "what you find in the last tensor alone decides; an overflow in any tensor counts",
        "Each turn of the loop assigns the flag anew, and forgets what the turns before have found.",
        "An overflow in an earlier tensor gets through.",
        PRECISION,
        ({"finite": lambda gradients: bool(gradients[-1].isfinite().all())},),
    ),
    Mistake(
        "all_numbers_bad",
        "you look for a tensor whose numbers are all infinite or NaN; one number is enough",
        "`.all()` stands where `.any()` belongs: “not finite” and “all finite” are turned over together.",
        "Nearly all overflows get through; those of a tensor with one number do not.",
        PRECISION,
        ({"finite": lambda gradients: not any((~g.isfinite()).all() for g in gradients)},),
    ),
    Mistake(
        "all_tensors_bad",
        "you leave out the step only if every tensor has an overflow; one tensor is enough",
        "`all` stands where `any` belongs: the loop over the tensors asks for the wrong one.",
        "An overflow in one layer gets through.",
        PRECISION,
        ({"finite": lambda gradients: any(g.isfinite().all() for g in gradients)},),
    ),
    Mistake(
        "skipped_in_part",
        "you leave out the tensors with an overflow and update the others; the whole step is to be left out",
        "The check stands inside the loop over the weights.",
        "Part of the model takes a step that the rest does not, and the scale never falls.",
        PRECISION,
        ({"finite": lambda gradients: True, "update": _good_ones_only},),
    ),
    Mistake(
        "scale_not_halved",
        "you leave out the step after an overflow, but keep the scale",
        "Leaving out the step is what keeps the weights whole.",
        "The next step overflows as well, and so do all after it.",
        PRECISION,
        (
            {"skipped": lambda weights, scale, clean: (weights, scale, 0)},
            {"skipped": lambda weights, scale, clean: (weights, scale, clean)},
            {"skipped": lambda weights, scale, clean: (weights, scale, clean + 1)},
        ),
    ),
    Mistake(
        "scale_doubled_on_overflow",
        "you double the scale after an overflow; it was too large already",
        "The two changes of the scale are mixed up.",
        "Every further step overflows.",
        PRECISION,
        ({"skipped": lambda weights, scale, clean: (weights, scale * 2, 0)},),
    ),
    Mistake(
        "count_goes_on",
        "after an overflow you do not begin to count again",
        "The count is looked after in the other branch.",
        "The scale is doubled again too soon.",
        PRECISION,
        (
            {"skipped": lambda weights, scale, clean: (weights, scale / 2, clean)},
            {"skipped": lambda weights, scale, clean: (weights, scale / 2, clean + 1)},
        ),
    ),
    Mistake(
        "not_doubled",
        "you do not double the scale with the growth-th clean step: never, or a step too late; it counts too",
        "It works without, only less and less well; or the count is compared before it is raised.",
        "After an overflow, small gradients are lost for longer than need be.",
        PRECISION,
        (
            _doubling(lambda clean, growth: False),
            _doubling(lambda clean, growth: clean == growth),
            _doubling(lambda clean, growth: clean + 1 > growth),
        ),
    ),
    Mistake(
        "doubled_every_time",
        "you double the scale after every clean step",
        "growth was overlooked.",
        "Every few steps, one overflows and is lost.",
        PRECISION,
        (_doubling(lambda clean, growth: True), _doubling(lambda clean, growth: True, None)),
    ),
    Mistake(
        "scale_capped",
        "you stop the scale from growing beyond some number; it is to be doubled whatever it is",
        "It begins at 2¹⁶, and float16 ends just before that, so a limit there looks natural.",
        "Gradients that need a larger scale stay coarse; an overflow would halve it again anyway.",
        PRECISION,
        (
            *(_doubling_up_to(limit) for limit in (2.0**15, 65504.0, 2.0**16)),
            {"count": _doubling_below},
        ),
    ),
    Mistake(
        "count_not_reset",
        "you double the scale, but go on counting from there",
        "The count is set to 0 after an overflow only.",
        "The scale is doubled once, or from then on in every step.",
        PRECISION,
        (_doubling(lambda clean, growth: clean + 1 == growth, None),),
    ),
    Mistake(
        "weights_in_half",
        "you return the weights in float16; they are to stay in float32",
        "Weights and gradients must have one dtype, and float16 was chosen.",
        "Small steps are rounded away.",
        PRECISION,
        ({"result": lambda weights, scale, clean: ([w.half() for w in weights], scale, clean)},),
    ),
    Mistake(
        "weights_edited",
        "you change the caller's weights in place; new ones are to be returned",
        "Optimisers work in place.",
        "What the caller wanted to compare with is gone.",
        PRECISION,
        ({"update": _in_place},),
    ),
    Mistake(
        "ascent",
        "you add the gradient; the loss falls in the other direction",
        "A sign.",
        "The loss rises.",
        "#ch14-loop",
        (
            {
                "update": lambda weights, gradients, rate, given: [
                    w + rate * g for w, g in zip(weights, gradients, strict=True)
                ]
            },
        ),
    ),
)

TASK = Task(
    name="scaled_step",
    signature="scaled_step(weights, gradients, scale, clean, rate, max_norm, growth)",
    arguments=("weights", "gradients", "scale", "clean", "rate", "max_norm", "growth"),
    returns=("weights", "scale", "clean"),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns a tuple (weights, scale, clean).", ("plain",), PRECISION, ("structure",)
        ),
        Requirement("step", "the step is w − rate · g / scale.", ("plain", "below"), PRECISION),
        Requirement("precision", "gradients are divided by the scale in float32.", ("small",), PRECISION),
        Requirement(
            "clipping",
            "divided by the scale, all gradients together are no longer than max_norm, computed in float32.",
            ("clipped", "long", "below", "zero"),
            WRONG,
        ),
        Requirement(
            "overflow",
            "if any gradient is infinite or NaN, the weights stay, the scale is halved, clean is 0.",
            ("first_inf", "minus_inf", "last_nan", "overflow_at_growth", "large_sum", "scale_of_one"),
            PRECISION,
        ),
        Requirement(
            "growth",
            "the growth-th clean step in a row doubles the scale, and clean is 0 again.",
            ("growth", "growth_of_one"),
            PRECISION,
        ),
        Requirement(
            "inputs",
            "the caller's weights and gradients are left unchanged.",
            ("plain", "clipped", "growth"),
            PRECISION,
            ("inputs",),
        ),
    ),
    sizes=_sizes,
    small=({"rows": 1, "columns": 2, "width": 2}, {"rows": 2, "columns": 3, "width": 2}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
