"""The check of `train_accumulated`, an exercise: one optimiser step from several unequal batches."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.accumulation_mistakes import MISTAKES, Batches, Steps, assemble
from transformer_lessons.checks.old.core import Draw, Given, Probe, Requirement, Task

__all__ = ["TASK"]

LOOP, LOSS, WRONG = "#ch14-loop", "#ch14-loss", "#ch14-wrong"
WEIGHTS = "the module's weights afterwards should be those of gradient descent on each group's loss per token"
LOSSES = "it should return a list of floats, each group's loss per real token, one for each step"
CALLS = "the module should be called once for each batch: a whole group may not fit into memory"


def _sizes(seed: int) -> dict[str, int]:
    rows, length, width, vocab = random.Random(seed).sample([3, 5, 7, 11], 4)
    return {"rows": rows, "length": length, "width": width, "vocab": vocab}


def _losses(value: Any) -> dict:
    return {LOSSES: torch.tensor([float(loss) for loss in value[0]], dtype=torch.float64)}


def _weights(value: Any) -> dict:
    return {WEIGHTS: value[1]}


def _mixed(value: Any) -> dict:
    return {WEIGHTS: {name: value[1][name] for name in ("pattern", "weight")}}


def _counted(value: Any) -> dict:
    return {CALLS: value[1]["calls"]}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    width, vocab, pad = s["width"], s["vocab"], s["vocab"] // 2

    def batch(rows: int, *lengths: int) -> list[Tensor]:
        """Inputs and targets; a row has as many real tokens as its length, and then padding."""
        length = max(lengths)
        targets = (draw.integers(1, vocab, rows, length) + pad) % vocab
        for row in range(rows):
            targets[row, lengths[row % len(lengths)] :] = pad
        return [draw.normal(rows, length, width), targets]

    rows, n = s["rows"], s["length"]
    weights = [draw.normal(vocab, width), draw.normal(vocab)]

    def asked(batches: Batches, accumulate: int, *wrappers: str, view: Callable = _weights) -> Probe:
        module = Given("linear", weights)
        for wrapper in wrappers:
            module = Given(wrapper, [module])
        return Probe([module, batches, accumulate], {"rate": 0.7, "pad_id": pad}, view=view, look=(0,))

    even = [batch(rows, n) for _ in range(2)]
    loud = [[even[0][0] + 30, even[0][1]]]  # a gradient of norm 10 and more: whoever clips, clips it
    uneven = [batch(rows, n, 1), batch(2, 1), batch(rows, n + 3, 2)]
    padding = [batch(rows, n, 1), [uneven[1][0], torch.full_like(uneven[1][1], pad)], uneven[0]]
    five = [batch(2, n, 1), batch(1, 2), batch(rows, n), batch(1, n + 1), batch(2, 1, 3)]
    # A module whose positions look at one another: it takes rows of this length, and nothing else.
    mixer = Given("mixer", [draw.normal(n, n), draw.normal(vocab, width), 0.0, True, "plain"])
    return {
        "single": asked(loud, 1),
        "padded": asked([batch(rows, n, 1)], 1),
        "even": asked(even, 2),
        "uneven": asked(uneven, 3),
        "groups": asked([*uneven, uneven[1]], 2),
        "each": asked(uneven, 1),
        "rest": asked(five, 3),
        "few": asked(uneven[:2], 5),
        "old": asked(uneven[:2], 2, "used"),
        "empty_batch": asked(padding, 2),
        "mixing": Probe([mixer, uneven[:1], 1], {"rate": 0.7, "pad_id": pad}, view=_mixed, look=(0,)),
        "calls": asked(uneven, 3, "counting", view=_counted),
        "none": replace(asked(even, 0), view=None, refused="accumulate=0"),
        "negative": replace(asked(even, -2), view=None, refused="accumulate=-2"),
        "losses": asked(five, 3, view=_losses),
        "empty_losses": asked(padding, 2, view=_losses),
    }


TASK = Task(
    name="accumulated_gradients",
    signature="train_accumulated(module, batches, accumulate, *, rate, pad_id)",
    arguments=("module", "batches", "accumulate"),
    returns=("losses",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns a list of numbers.", ("losses",), LOOP, ("structure",)),
        Requirement(
            "values", "one batch, one step: weights move by −rate · gradient of its loss.", ("single",), LOOP
        ),
        Requirement(
            "padding",
            "the loss is the cross-entropy per real token; padding counts for nothing.",
            ("padded", "mixing"),
            LOSS,
        ),
        Requirement(
            "tokens",
            "a group's gradient is that of the mean over all its real tokens.",
            ("even", "uneven"),
            WRONG,
        ),
        Requirement(
            "groups", "each group makes one step, with its own gradients only.", ("groups", "each"), LOOP
        ),
        Requirement("rest", "batches left over make a last step.", ("rest", "few"), WRONG),
        Requirement("old", "gradients left from before the call have no effect.", ("old",), LOOP),
        Requirement(
            "empty_batch", "a batch of nothing but padding adds nothing, and no NaN.", ("empty_batch",), LOSS
        ),
        Requirement(
            "losses", "it returns each group's loss per real token.", ("losses", "empty_losses"), WRONG
        ),
        Requirement("inputs", "the batches are left unchanged.", ("uneven",), LOOP, ("inputs",)),
        Requirement(
            "refusals", "an accumulate below 1 is refused with ValueError.", ("none", "negative"), LOOP
        ),
        Requirement("calls", "each batch is computed by itself.", ("calls",), LOOP),
    ),
    sizes=_sizes,
    small=(
        {"rows": 1, "length": 1, "width": 1, "vocab": 3},
        {"rows": 2, "length": 2, "width": 1, "vocab": 3},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=14,  # which losses are returned may be wrong in its own way
)
