"""The checks of `split_heads` and `merge_heads`, the two reshapes of multi-head attention."""

import random

from transformer_lessons.checks.old.catalogue.heads_mistakes import (
    MERGE_MISTAKES,
    SPLIT_MISTAKES,
    MergeSteps,
    SplitSteps,
    merge_in_steps,
    split_in_steps,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["MERGE", "SPLIT"]

RESHAPE, CLASS, WRONG, LOOP = "#ch07-reshape", "#ch07-class", "#ch07-wrong", "#ch07-loop"
SMALL = (
    {"batch": 1, "length": 2, "heads": 2, "d_k": 1},
    {"batch": 1, "length": 2, "heads": 2, "d_k": 2},
    {"batch": 2, "length": 3, "heads": 2, "d_k": 2},
)


def _sizes(seed: int) -> dict[str, int]:
    """Distinct primes; the number of positions is odd and above the number of heads in no fixed order."""
    batch, length, heads, d_k = random.Random(seed).sample([2, 3, 5, 7, 11], 4)
    return {"batch": batch, "length": length, "heads": heads, "d_k": d_k}


# --- Splitting


def _split_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, h, d = s["batch"], s["length"], s["heads"], s["d_k"]
    x = draw.normal(b, t, h * d)
    left_over = h * d - 1 if h * d > 2 else 3  # not 1, which divides any d_model
    return {
        "plain": Probe([x, h], cotangents=[draw.normal(b, h, t, d)]),
        "one_head": Probe([x[:1], 1], note="one sentence and one head"),
        "narrow": Probe([x, h * d]),
        "float32": Probe([x.float(), h]),
        "remainder": Probe([x, h * d + 1], refused=f"num_heads={h * d + 1} for d_model={h * d}"),
        "no_head": Probe([x, 0], refused="num_heads=0"),
        "four_axes": Probe([draw.normal(b, h, t, h * d), h], refused="x of four axes"),
        "left_over": Probe([x, left_over], refused=f"num_heads={left_over} for d_model={h * d}"),
        "negative": Probe([x, -h], refused=f"num_heads={-h}"),
        "two_axes": Probe([draw.normal(t, h * d), h], refused="x of two axes"),
    }


SPLIT = Task(
    name="split_heads",
    signature="split_heads(x, num_heads)",
    arguments=("x", "num_heads"),
    returns=("heads",),
    reference=split_in_steps(SplitSteps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, heads, length, d_k) with d_k = d_model / num_heads.",
            ("plain", "one_head", "narrow"),
            RESHAPE,
            ("structure",),
        ),
        Requirement(
            "values",
            "head i holds, for each position, the i-th d_k of its d_model features.",
            ("plain", "one_head", "narrow"),
            RESHAPE,
        ),
        Requirement("dtype", "the result has the dtype of x.", ("float32", "plain"), RESHAPE, ("dtype",)),
        Requirement("gradients", "gradients reach x.", ("plain",), CLASS, ("gradients",)),
        Requirement("inputs", "x is left unchanged.", ("plain",), RESHAPE, ("inputs",)),
        Requirement(
            "refusals",
            "a num_heads that is below 1 or does not divide d_model, and an x without exactly three axes, are "
            "refused with ValueError.",
            ("remainder", "no_head", "four_axes", "left_over", "negative", "two_axes"),
            CLASS,
        ),
    ),
    sizes=_sizes,
    small=SMALL,
    probes=_split_probes,
    steps=SplitSteps(),
    assemble=split_in_steps,
    mistakes=SPLIT_MISTAKES,
)


# --- Merging


def _merge_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, h, d = s["batch"], s["length"], s["heads"], s["d_k"]
    x = draw.normal(b, h, t, d)
    return {
        "plain": Probe([x], cotangents=[draw.normal(b, t, h * d)]),
        "as_split": Probe(
            [draw.normal(b, t, h, d).transpose(1, 2)], note="axes exchanged, not in order in memory"
        ),
        "as_stacked": Probe(
            [draw.normal(h, b, t, d).transpose(0, 1)],
            note="head after head in memory, as torch.stack makes them",
        ),
        "one_position": Probe([draw.normal(1, h, 1, d)], note="one sentence and one position"),
        "one_head": Probe([draw.normal(b, 1, t, d)]),
        "float32": Probe([x.float()]),
        "three_axes": Probe([draw.normal(h, t, d)], refused="x of three axes"),
        "five_axes": Probe([x[None]], refused="x of five axes"),
        "two_axes": Probe([x[0, 0]], refused="x of two axes"),
    }


MERGE = Task(
    name="merge_heads",
    signature="merge_heads(x)",
    arguments=("x",),
    returns=("merged",),
    reference=merge_in_steps(MergeSteps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, length, heads · d_k).",
            ("plain",),
            RESHAPE,
            ("structure",),
        ),
        Requirement(
            "values",
            "for each position, the features of head 0 come first, then those of head 1, and so on.",
            ("plain", "one_position", "one_head"),
            RESHAPE,
        ),
        Requirement(
            "memory",
            "it works whether or not the axes of x have been exchanged before.",
            ("as_split", "as_stacked"),
            RESHAPE,
        ),
        Requirement("dtype", "the result has the dtype of x.", ("float32", "plain"), RESHAPE, ("dtype",)),
        Requirement("gradients", "gradients reach x.", ("plain",), CLASS, ("gradients",)),
        Requirement("inputs", "x is left unchanged.", ("plain",), RESHAPE, ("inputs",)),
        Requirement(
            "refusals",
            "an x without exactly four axes is refused with ValueError.",
            ("three_axes", "five_axes", "two_axes"),
            CLASS,
        ),
    ),
    sizes=_sizes,
    small=SMALL,
    probes=_merge_probes,
    steps=MergeSteps(),
    assemble=merge_in_steps,
    mistakes=MERGE_MISTAKES,
)
