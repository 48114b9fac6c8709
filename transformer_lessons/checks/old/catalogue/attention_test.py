"""The check of `is_right`, an exercise: a learner's test of attention, tried on right and wrong ones."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformer_lessons.checks import patients
from transformer_lessons.checks.old.catalogue.attention_causes import cause_of
from transformer_lessons.checks.old.core import Draw, Given, Mistake, Probe, Requirement, Task

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
        "crashing": "one that raises a NameError",
    },
}


def _found(sentence: str, value: Any) -> dict:
    return {sentence: value if isinstance(value, bool) else f"{type(value).__name__}, not a bool"}


def _found_wrong(what: str, sentence: str, value: Any) -> dict:
    """Who says nothing has not said False; but neither that all is right."""
    nothing = f"the test should return False, but returns None: {what}"
    return {nothing: value is not None, **_found(sentence, value)}


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
            probes[kind] = Probe([Given("attention", [kind])], view=partial(_found_wrong, what, sentence))
    return probes


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer: one that overlooks nothing."""

    scale: bool = False
    axis: bool = False
    values: bool = False
    weights: bool = False
    mask: bool = False
    empty_rows: bool = False
    gradients: bool = False
    extremes: bool = False
    dtype: bool = False
    side_effects: bool = False
    crash: Callable = lambda attention: False
    accept: Callable = lambda attention: True  # which of the right implementations
    answer: Callable = lambda right: right


def assemble(steps: Steps) -> Callable:
    """A test that overlooks some causes."""

    def is_right(attention):
        cause = cause_of(attention)
        if cause is None:
            return steps.answer(steps.accept(attention))
        return steps.answer(steps.crash(attention) if cause == "crash" else getattr(steps, cause))

    return is_right


def _raise(attention: Callable) -> bool:
    return patients.attention("crashing")(None, None, None)


def _raise_what_is_raised(attention: Callable) -> bool:
    return attention is patients.attention("crashing") and _raise(attention)


SUBTLE = ("scale", "axis", "values", "weights", "mask", "empty_rows", "gradients", "extremes", "dtype")
EVERYTHING = dict.fromkeys((*SUBTLE, "side_effects"), True)


def _overlooks(cause: str, name: str, why: str, symptom: str, anchor: str) -> Mistake:
    return Mistake(f"{cause}_overlooked", name, why, symptom, anchor, ({cause: True},))


MISTAKES = (
    Mistake(
        "always_true",
        "your test says yes to everything",
        "A comparison stands there without assert or return.",
        "Nobody ever fails.",
        QUESTIONS,
        ({**EVERYTHING, "crash": lambda attention: True},),
    ),
    Mistake(
        "shapes_only",
        "your test finds nothing but crashes and wrong shapes; nearly all wrong answers have the right ones",
        "A shape is what one knows without computing anything.",
        "Whatever runs passes.",
        QUESTIONS,
        # With values of another width than the keys', an average of keys has a wrong shape, too.
        tuple(
            {**EVERYTHING, **crash, **values}
            for crash in ({}, {"crash": _raise})
            for values in ({}, {"values": False})
        ),
    ),
    Mistake(
        "always_false",
        "your test says no to everything",
        "Two nearly equal numbers were compared exactly, or with the wrong thing.",
        "Right answers fail, and people learn to ignore the test.",
        QUESTIONS,
        ({"accept": lambda attention: False},),
    ),
    Mistake(
        "upside_down",
        "your test says True where something is wrong, and False where nothing is",
        "“Finds a bug” and “is right” are both names for such a test.",
        "Right answers fail, wrong ones pass.",
        QUESTIONS,
        ({"answer": lambda right: not right},),
    ),
    Mistake(
        "nothing_returned",
        "your test returns nothing; True or False is wanted",
        "pytest wants assertions.",
        "Who calls it in an `if` takes every answer for wrong.",
        QUESTIONS,
        ({"answer": lambda right: None},),
    ),
    Mistake(
        "none_for_wrong",
        "your test returns None where something is wrong; False is wanted",
        "`if right: return True` has no other branch, or the `except` ends in `pass`.",
        "Who asks `is False`, or counts the answers, misses every wrong one.",
        QUESTIONS,
        ({"answer": lambda right: True if right else None},),
    ),
    Mistake(
        "exact",
        "your test accepts the package's function alone; other right ones differ in the last digits",
        "torch.equal reads well.",
        "Only a copy of the same code passes.",
        QUESTIONS,
        ({"accept": lambda attention: attention is patients.attention("reference")},),
    ),
    Mistake(
        "crashes",
        "an implementation that crashes makes your test crash, too; it should return False",
        "In one's own notebook an error is as good as a no.",
        "One crash stops the whole table of results.",
        LINE,
        ({"crash": _raise}, {"crash": _raise_what_is_raised}),
    ),
    _overlooks(
        "scale",
        "your test does not notice a wrong scale of the scores",
        "With d_k = 1, √d_k and d_k and 1 are the same; and a wide tolerance hides the rest.",
        "A missing √d_k passes.",
        SCALE,
    ),
    _overlooks(
        "axis",
        "your test does not notice a softmax over the wrong axis",
        "With inputs that are all equal, all axes are.",
        "Each key shares itself out among the queries.",
        QUESTIONS,
    ),
    _overlooks(
        "values",
        "your test never compares the output with a mean of the values",
        "That rows of weights sum to one is a well-known test.",
        "What is averaged with the weights may be anything.",
        QUESTIONS,
    ),
    _overlooks(
        "weights",
        "your test never compares the weights that are returned",
        "The output is what goes on; the weights are for pictures.",
        "Pictures of scores are published as pictures of attention.",
        VECTORISED,
    ),
    _overlooks(
        "mask",
        "your test does not notice what becomes of a mask",
        "No mask was handed over, or one that shows everything.",
        "A mask that is ignored passes.",
        MASKS,
    ),
    _overlooks(
        "empty_rows",
        "your test has no query that sees no key",
        "It happens once in ten thousand batches: a line of padding alone.",
        "The loss becomes NaN one night.",
        MASKS,
    ),
    _overlooks(
        "gradients",
        "your test does not notice that a gradient is missing",
        "A test calls a function and compares what it returns.",
        "A part of the model is never trained.",
        PROOF,
    ),
    _overlooks(
        "extremes",
        "your test has no large scores",
        "randn is at hand, and its numbers are all of ordinary size.",
        "An overflow shows up after days of training.",
        SATURATION,
    ),
    _overlooks(
        "dtype",
        "your test does not notice that float64 becomes float32",
        "float32 is what one gets, and a comparison may convert.",
        "A conversion inside costs digits, or memory.",
        VECTORISED,
    ),
    _overlooks(
        "side_effects",
        "your test does not look whether its arguments are what they were",
        "A function that returns something is not expected to change anything.",
        "The caller's next layer gets a query that was divided twice.",
        VECTORISED,
    ),
)


TASK = Task(
    name="attention_test",
    signature="is_right(attention)",
    arguments=("attention",),
    returns=("verdict",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns True or False.", ("kind",), QUESTIONS),
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
)
