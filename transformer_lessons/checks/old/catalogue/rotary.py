"""The check of `rotary`, a function `rotate(x, positions)`: it goes a little beyond the package's class."""

import random

import torch

from transformer_lessons.checks.old.catalogue.rotary_mistakes import MISTAKES, Steps, assemble
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["TASK"]

ROTARY, WRONG = "#ch03-rotary", "#ch03-wrong"


def _sizes(seed: int) -> dict[str, int]:
    pick = random.Random(seed)
    batch, heads, length = pick.sample([2, 3, 5, 7], 3)
    half = pick.choice([n for n in (3, 5, 7, 11) if n not in (batch, heads, length)])
    return {"batch": batch, "heads": heads, "length": length, "width": 2 * half}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, t, d = s["batch"], s["heads"], s["length"], s["width"]
    x, cotangent = draw.normal(b, h, t, d), draw.normal(b, h, t, d)
    later = torch.arange(t) + 11
    apart = draw.integers(1, 29, t)
    each = draw.integers(1, 29, b, t)
    thousands = 2 * draw.integers(1024, 3000, t) + 1  # odd, which float16 cannot hold here
    thousands[-1] = 5003  # on every seed, one is beyond 4,096
    return {
        "first": Probe([x.float(), torch.arange(t)]),
        "later": Probe([x.float(), later], cotangents=[cotangent.float()]),
        "apart": Probe([x.float(), apart]),
        "pair": Probe([draw.normal(b, h, t, 2, dtype=torch.float32), apart]),
        # As many heads as sentences: positions that meet the wrong axis raise no error.
        "each": Probe([draw.normal(b, b, t, d, dtype=torch.float32), each]),
        # As many sentences and heads as vectors: sizes do not tell what the axis of positions is.
        "cube": Probe([draw.normal(b, b, b, d, dtype=torch.float32), torch.arange(b) + 11]),
        "far": Probe([x, thousands], note="positions in the thousands"),
        "bfloat16": Probe([x.bfloat16(), thousands], note="positions in the thousands"),
        # Wide enough to have a second pair that turns fast: in narrow ones, float32 is hardly off.
        "far32": Probe([draw.normal(b, h, t, 22, dtype=torch.float32), thousands]),
        "odd": Probe([draw.normal(b, h, t, d + 1), later], refused=f"x of odd width {d + 1}"),
        "too_many": Probe([x, torch.arange(t + 1)], refused=f"{t + 1} positions for {t} vectors"),
        "too_few": Probe([x, torch.tensor([3])], refused=f"1 position for {t} vectors"),
        "one_each": Probe([x, each[:, :1]], refused=f"1 position for the {t} vectors of each sentence"),
        "one_less": Probe(
            [draw.normal(b, h, t + 1, d), torch.arange(t)], refused=f"{t} positions for {t + 1} vectors"
        ),
    }


TASK = Task(
    name="rotary",
    signature="rotate(x, positions)",
    arguments=("x", "positions"),
    returns=("turned",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the shape of x.", ("first",), ROTARY, ("structure",)
        ),
        Requirement(
            "values",
            "entries 2i and 2i + 1, a point of the plane, turn by t·ω_i from the first axis to the second.",
            ("first", "pair"),
            ROTARY,
        ),
        Requirement(
            "positions",
            "each vector is turned by its own position, whatever that is.",
            ("later", "apart", "cube"),
            ROTARY,
        ),
        Requirement("gradients", "gradients reach x.", ("later",), ROTARY, ("gradients",)),
        Requirement(
            "batch", "positions may have the shape (batch, length): each sentence its own.", ("each",), ROTARY
        ),
        Requirement("far", "positions in the thousands lose no digits.", ("far", "far32", "bfloat16"), WRONG),
        Requirement(
            "dtype", "the result has the dtype of x.", ("first", "far", "bfloat16"), WRONG, ("dtype",)
        ),
        Requirement(
            "inputs", "the caller's x and positions are left unchanged.", ("first",), ROTARY, ("inputs",)
        ),
        Requirement(
            "refusals",
            "an odd width, and another number of positions than of vectors, are refused with ValueError.",
            ("odd", "too_many", "too_few", "one_each", "one_less"),
            ROTARY,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "length": 2, "width": 2},
        {"batch": 1, "heads": 1, "length": 2, "width": 4},
        {"batch": 2, "heads": 2, "length": 2, "width": 2},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
