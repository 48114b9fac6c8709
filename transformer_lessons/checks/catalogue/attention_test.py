"""The check of `is_right`, an exercise: a learner's test of attention, tried on right and wrong ones."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.core import Draw, Given, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

QUESTIONS, MASKS, SCALE, PROOF = "#ch18-questions", "#ch05-masks", "#ch05-scale", "#ch05-proof"
SATURATION, VECTORISED, LINE = "#ch05-saturation", "#ch05-vectorised", "#ch18-line"

RIGHT = {
    "reference": "the package's own function",
    "fused": "one that calls PyTorch's kernel",
    "additive": "one that sums with einsum and takes the exponentials itself",
}
# By requirement: what the test must find wrong, and what is wrong with it.
WRONG = {
    "formula": {
        "no_scaling": "one that does not divide by √d_k",
        "scaled_by_d_k": "one that divides by d_k",
        "softmax_over_queries": "one whose softmax runs over the queries",
        "key_as_value": "one that averages keys, where values are as wide",
    },
    "weights": {
        "returns_scores": "one that returns scores in place of weights",
        "returns_unmasked_weights": "one that returns the weights before the mask",
    },
    "mask": {
        "mask_ignored": "one that never uses the mask",
        "mask_inverted": "one that reads the mask the wrong way round",
        "mask_after_softmax": "one that hides after the softmax",
    },
    "empty_rows": {
        "empty_rows_nan": "one that gives NaN to a query without keys",
        "empty_rows_uniform": "one that spreads the weights of a query without keys over all",
    },
    "gradients": {
        "weights_detached": "one whose weights have no gradient",
        "average_detached": "one whose output has no gradient through the weights",
    },
    "extremes": {"naive_exp": "one that overflows for large scores"},
    "dtype": {"forced_float32": "one that computes in float32 whatever it is given"},
    "side_effects": {
        "query_edited": "one that divides its caller's query in place",
        "mask_edited": "one that turns its caller's mask over in place",
    },
    "crashes": {
        "returns_output_only": "one that returns the output alone",
        "crashing": "one that raises a RuntimeError",
    },
}


def _found(sentence: str, value: Any) -> dict:
    return {sentence: value if isinstance(value, bool) else f"{type(value).__name__}, not a bool"}


def _is_bool(sentence: str, value: Any) -> dict:
    return {sentence: isinstance(value, bool)}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    sentence = "the test should return a bool"
    probes = {"kind": Probe([Given("attention", ["reference"])], view=partial(_is_bool, sentence))}
    for kind, what in RIGHT.items():
        sentence = f"a right implementation should pass: {what}"
        probes[kind] = Probe([Given("attention", [kind])], view=partial(_found, sentence))
    for kinds in WRONG.values():
        for kind, what in kinds.items():
            sentence = (
                f"a wrong implementation passes: {what}"
                if kind != "crashing"
                else ("a crash should be found wrong, not crash the test: " + what)
            )
            probes[kind] = Probe([Given("attention", [kind])], view=partial(_found, sentence))
    return probes


def _inputs(q: int, k: int, d_k: int, d_v: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(q)
    shapes = (2, 3, q, d_k), (2, 3, k, d_k), (2, 3, k, d_v)
    return [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def _grid(q: int, k: int) -> Tensor:
    """A mask of a diagonal band, so that its rows differ from its columns."""
    return (torch.arange(q)[:, None] + torch.arange(k)) % 3 > 0


def _expected(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    scores = query @ key.mT / math.sqrt(query.size(-1))
    shown = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    weights = scores.masked_fill(~shown, torch.finfo(scores.dtype).min).softmax(-1) * shown
    return weights @ value, weights


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-5, atol=1e-7)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer: what the test looks at."""

    sizes: Callable = lambda: (5, 7, 3, 3)  # queries, keys, d_k, d_v
    close: Callable = _close
    output: Callable = lambda close, got, want: close(got, want)
    weights: Callable = lambda close, got, want: close(got, want)
    masks: Callable = lambda q, k: (None, _grid(q, k))
    empty: Callable = lambda mask: mask & (torch.arange(mask.size(0)) != 1)[:, None]
    gradients: bool = True
    large: float = 1e3
    dtypes: tuple = (torch.float64, torch.float32)
    watched: bool = True
    expected: Callable = _expected
    verdict: Callable = lambda test: _guarded(test)


def _guarded(test: Callable) -> bool:
    try:
        return test()
    except Exception:
        return False


def assemble(steps: Steps) -> Callable:
    """A test in these steps."""

    def is_right(attention):
        return steps.verdict(lambda: _test(steps, attention))

    return is_right


def _test(steps: Steps, attention: Callable) -> bool:
    q, k, d_k, d_v = steps.sizes()
    masks = [mask if mask is None else steps.empty(mask) for mask in steps.masks(q, k)]
    cases = [(_inputs(q, k, d_k, d_v, steps.dtypes[0]), mask) for mask in masks]
    cases += [(_inputs(q, k, d_k, d_v, dtype), None) for dtype in steps.dtypes[1:]]
    if steps.large > 1:
        large = [x.detach() * scale for x, scale in zip(cases[0][0], (steps.large, 1, 1), strict=True)]
        cases.append((large, None))
    return all(_agrees(steps, attention, inputs, mask) for inputs, mask in cases)


def _agrees(steps: Steps, attention: Callable, inputs: list[Tensor], mask: Tensor | None) -> bool:
    handed = [x.clone() for x in inputs] + ([] if mask is None else [mask.clone()])
    before = [x.clone() for x in handed]
    got, want = attention(*handed), steps.expected(*inputs, mask)
    if steps.watched and not all(map(torch.equal, handed, before)):
        return False
    if not (steps.output(steps.close, got[0], want[0]) and steps.weights(steps.close, got[1], want[1])):
        return False
    if not steps.gradients or not inputs[0].requires_grad:
        return True
    return all(map(steps.close, _gradients(got, inputs), _gradients(want, inputs)))


def _gradients(results: tuple[Tensor, Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Of a mixture of output and weights; it raises if an input has none."""
    total = sum((x * torch.arange(1.0, 1 + x.numel(), dtype=x.dtype).view_as(x).cos()).sum() for x in results)
    both = torch.autograd.grad(total, inputs, retain_graph=True)
    alone = torch.autograd.grad(results[1].square().sum(), inputs[:2], retain_graph=True)
    return [*both, *alone]


MISTAKES = (
    Mistake(
        "shapes_only",
        "your test looks at shapes only; nearly all wrong answers have the right ones",
        "A shape is what one knows without computing anything.",
        "Everything that runs passes.",
        QUESTIONS,
        ({"close": lambda a, b: a.shape == b.shape, "watched": False, "gradients": False},),
    ),
    Mistake(
        "always_true",
        "your test says yes to everything",
        "A comparison stands there without assert or return.",
        "Nobody ever fails.",
        QUESTIONS,
        ({"verdict": lambda test: True},),
    ),
    Mistake(
        "always_false",
        "your test says no to everything",
        "Two nearly equal numbers were compared exactly, or with the wrong thing.",
        "Right answers fail, and people learn to ignore the test.",
        QUESTIONS,
        ({"verdict": lambda test: False},),
    ),
    Mistake(
        "upside_down",
        "your test says True where something is wrong",
        "“Finds a bug” and “is right” are both names for such a test.",
        "Right answers fail, wrong ones pass.",
        QUESTIONS,
        ({"verdict": lambda test: not _guarded(test)},),
    ),
    Mistake(
        "exact",
        "your test compares exactly; two right ways to compute differ in the last digits",
        "torch.equal reads well.",
        "Only a copy of your own code passes.",
        QUESTIONS,
        ({"close": lambda a, b: torch.equal(a, b)},),
    ),
    Mistake(
        "loose",
        "your tolerance is so wide that large mistakes fit into it",
        "It was widened until the test passed.",
        "Wrong answers that are roughly right pass.",
        QUESTIONS,
        ({"close": lambda a, b: _loosely(a, b, 1.0)},),
    ),
    Mistake(
        "width_one",
        "your queries have d_k = 1, where √d_k and d_k and 1 are the same",
        "The smallest example is the easiest to check by hand.",
        "A missing or wrong scale passes.",
        SCALE,
        ({"sizes": lambda: (5, 7, 1, 1)},),
    ),
    Mistake(
        "output_only",
        "your test never looks at the weights that are returned",
        "The output is what goes on; the weights are for pictures.",
        "Pictures of scores are published as pictures of attention.",
        VECTORISED,
        ({"weights": lambda close, got, want: True, "gradients": False},),
    ),
    Mistake(
        "weights_only",
        "your test never looks at the output",
        "That rows of weights sum to one is a well-known test.",
        "What is averaged with them may be anything.",
        VECTORISED,
        ({"output": lambda close, got, want: True, "gradients": False},),
    ),
    Mistake(
        "no_mask",
        "your test never hands over a mask",
        "The default is None.",
        "Whatever is done with masks passes.",
        MASKS,
        ({"masks": lambda q, k: (None,)},),
    ),
    Mistake(
        "mask_of_ones",
        "all your masks show everything",
        "torch.ones makes a mask of the right shape.",
        "A mask that is ignored passes.",
        MASKS,
        (
            {
                "masks": lambda q, k: (None, torch.ones(q, k, dtype=torch.bool)),
                "empty": lambda mask: mask,
            },
        ),
    ),
    Mistake(
        "no_empty_row",
        "in your masks each query sees some key; a sentence of padding alone sees none",
        "It happens once in ten thousand batches.",
        "The loss becomes NaN one night.",
        MASKS,
        ({"empty": lambda mask: mask},),
    ),
    Mistake(
        "no_gradients",
        "your test never looks at gradients",
        "A test calls a function and compares what it returns.",
        "A part of the model is never trained.",
        PROOF,
        ({"gradients": False},),
    ),
    Mistake(
        "ordinary_numbers",
        "your numbers are all of ordinary size",
        "randn is at hand.",
        "An overflow shows up after days of training.",
        SATURATION,
        ({"large": 1.0},),
    ),
    Mistake(
        "one_dtype",
        "your test tries one dtype only",
        "Some default has to be taken.",
        "A conversion to float32 inside passes, and costs digits or memory.",
        VECTORISED,
        (
            {"dtypes": (torch.float32,)},
            {"close": lambda a, b: _whatever_dtype(a, b)},
        ),
    ),
    Mistake(
        "arguments_unwatched",
        "your test does not look whether its arguments are what they were",
        "A function that returns something is not expected to change anything.",
        "The caller's next layer gets a query that was divided twice.",
        VECTORISED,
        ({"watched": False},),
    ),
    Mistake(
        "crashes",
        "an implementation that raises an error makes your test raise it, too; it should return False",
        "In one's own notebook an error is as good as a no.",
        "One crash stops the whole table of results.",
        LINE,
        ({"verdict": lambda test: test()},),
    ),
    Mistake(
        "asserts",
        "your test asserts, and returns nothing; True or False is wanted",
        "pytest wants it so.",
        "Who calls it in an `if` takes every answer for wrong.",
        QUESTIONS,
        ({"verdict": lambda test: None},),
    ),
)


def _loosely(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=tolerance)


def _whatever_dtype(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5)


TASK = Task(
    name="attention_test",
    signature="is_right(attention)",
    arguments=("attention",),
    returns=("verdict",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns True or False.", ("kind",), QUESTIONS, ("structure",)),
        Requirement(
            "right", "right implementations pass, however they are written.", tuple(RIGHT), QUESTIONS
        ),
        Requirement("formula", "what is not softmax(QKᵀ/√d_k) V fails.", tuple(WRONG["formula"]), SCALE),
        Requirement(
            "weights", "what returns other weights than it uses fails.", tuple(WRONG["weights"]), VECTORISED
        ),
        Requirement("mask", "what reads the mask in another way fails.", tuple(WRONG["mask"]), MASKS),
        Requirement(
            "empty_rows",
            "a query without any key must get weights and output zero.",
            tuple(WRONG["empty_rows"]),
            MASKS,
        ),
        Requirement(
            "gradients",
            "what loses a gradient, of output or weights, fails.",
            tuple(WRONG["gradients"]),
            PROOF,
        ),
        Requirement("extremes", "what overflows fails.", tuple(WRONG["extremes"]), SATURATION),
        Requirement("dtype", "what changes float64 to float32 fails.", tuple(WRONG["dtype"]), VECTORISED),
        Requirement(
            "side_effects", "what changes its arguments fails.", tuple(WRONG["side_effects"]), VECTORISED
        ),
        Requirement(
            "crashes", "what raises an error fails; the test itself does not.", tuple(WRONG["crashes"]), LINE
        ),
    ),
    sizes=lambda seed: {"order": random.Random(seed).randrange(1000)},
    small=(),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=4,
)
