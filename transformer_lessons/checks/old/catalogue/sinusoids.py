"""The checks of `sinusoidal` and `shift_matrix`: requirements and the calls that probe them."""

import random

from transformer_lessons.checks.old.catalogue.shift_mistakes import SHIFT_MISTAKES, ShiftSteps, shift_in_steps
from transformer_lessons.checks.old.catalogue.sinusoids_mistakes import (
    TABLE_MISTAKES,
    TableSteps,
    table_in_steps,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import shift_matrix, sinusoidal

__all__ = ["SHIFT", "TABLE"]

FORMULA, CLOCKS, STEP, WRONG = "#ch03-sinusoid", "#ch03-frequencies", "#ch03-shift", "#ch03-wrong"
FLOAT32 = "its dtype should be torch's default one, torch.float32"


def _dtype(value: object) -> dict:
    return {FLOAT32: str(value.dtype)}


def _table_sizes(seed: int) -> dict[str, int]:
    length, half = random.Random(seed).sample([5, 7, 11, 13, 17], 2)
    return {"length": length, "width": 2 * half}


def _table_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    n, d = s["length"], s["width"]
    return {
        "even": Probe([n, d]),
        "two": Probe([n, 2]),
        "odd": Probe([n, d + 1]),
        "three": Probe([n, 3]),
        "width_one": Probe([n, 1]),
        "one_position": Probe([1, d]),
        "none": Probe([0, d]),
        # Wide enough to have a second pair that turns fast: in narrow tables, float32 is hardly off.
        "far": Probe([5003, 14], note="5,003 positions"),
        "dtype": Probe([n, d], view=_dtype),
        "negative": Probe([-n, d], refused=f"length={-n}"),
        "no_width": Probe([n, 0], refused="d_model=0"),
        "negative_width": Probe([n, -d], refused=f"d_model={-d}"),
    }


TABLE = Task(
    name="sinusoidal",
    signature="sinusoidal(length, d_model)",
    arguments=("length", "d_model"),
    returns=("table",),
    reference=sinusoidal,
    requirements=(
        Requirement(
            "returns", "it returns one tensor of shape (length, d_model).", ("even",), FORMULA, ("structure",)
        ),
        Requirement(
            "values",
            "row t has sin(t·ω_k) in column 2k and cos(t·ω_k) in column 2k + 1, with ω_k = 10000^(−2k/d_model).",
            ("even", "two"),
            FORMULA,
        ),
        Requirement(
            "odd",
            "an odd d_model ends with a sine that has no cosine.",
            ("odd", "three", "width_one"),
            CLOCKS,
        ),
        Requirement("lengths", "any number of positions, even 0 or 1.", ("one_position", "none"), FORMULA),
        Requirement(
            "far", "at positions in the thousands too, entries are right to 5 digits.", ("far",), WRONG
        ),
        Requirement("dtype", "the table is float32, torch's default.", ("dtype",), WRONG),
        Requirement(
            "refusals",
            "a negative length and a d_model below 1 are refused with ValueError.",
            ("negative", "no_width", "negative_width"),
            FORMULA,
        ),
    ),
    sizes=_table_sizes,
    small=({"length": 2, "width": 2}, {"length": 2, "width": 4}, {"length": 3, "width": 4}),
    probes=_table_probes,
    steps=TableSteps(),
    assemble=table_in_steps,
    mistakes=TABLE_MISTAKES,
)


def _shift_sizes(seed: int) -> dict[str, int]:
    steps, half = random.Random(seed).sample([3, 5, 7, 11], 2)
    return {"steps": steps, "width": 2 * half}


def _shift_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    k, d = s["steps"], s["width"]
    return {
        "forward": Probe([k, d]),
        "one": Probe([1, d]),
        "two": Probe([k, 2]),
        "back": Probe([-k, d]),
        "none": Probe([0, d]),
        "far": Probe([5003, 46], note="5,003 positions"),  # as wide as it may be: each pair rounds by chance
        "dtype": Probe([k, d], view=_dtype),
        "odd": Probe([k, d + 1], refused=f"an odd d_model, {d + 1}"),
        "no_width": Probe([k, 0], refused="d_model=0"),
        "negative_width": Probe([k, -d], refused=f"d_model={-d}"),
    }


SHIFT = Task(
    name="shift_matrix",
    signature="shift_matrix(k, d_model)",
    arguments=("k", "d_model"),
    returns=("matrix",),
    reference=shift_matrix,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (d_model, d_model).",
            ("forward",),
            STEP,
            ("structure",),
        ),
        Requirement(
            "values",
            "M_k PE(t) = PE(t + k) for every t, where PE(t) is a column.",
            ("forward", "one", "two"),
            STEP,
        ),
        Requirement("back", "a negative k steps back, and k = 0 stays.", ("back", "none"), STEP),
        Requirement("far", "steps of thousands of positions are right to 5 digits, too.", ("far",), WRONG),
        Requirement("dtype", "the matrix is float32, torch's default.", ("dtype",), WRONG),
        Requirement(
            "refusals",
            "a d_model that is odd or below 2 is refused with ValueError.",
            ("odd", "no_width", "negative_width"),
            STEP,
        ),
    ),
    sizes=_shift_sizes,
    small=({"steps": 1, "width": 2}, {"steps": 1, "width": 4}),
    probes=_shift_probes,
    steps=ShiftSteps(),
    assemble=shift_in_steps,
    mistakes=SHIFT_MISTAKES,
)
