"""The check of `TokenEmbedding`: its requirements, the calls that probe them, and the known wrong ways."""

import math
import random
from dataclasses import replace

import torch

from transformer_lessons.checks.old.catalogue.token_embedding_mistakes import MISTAKES, Steps, assemble
from transformer_lessons.checks.old.core import Build, Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import TokenEmbedding

__all__ = ["TASK"]

LOOKUP, SCALE, INPUT, WRONG = "#ch02-lookup", "#ch02-scale", "#ch02-input", "#ch02-wrong"
STARTS = {
    "a row": "at first, a row of the weight is zeros throughout",
    "constant": "at first, all entries of the weight are the same",
    "off centre": "at first, the weight's entries have another mean than 0",
    "1": "at first, the weight's entries have variance 1, not 1/d_model",
    "1/d²": "at first, the weight's entries have variance 1/d_model², not 1/d_model",
    "0.02": "at first, the weight's entries have standard deviation 0.02, not √(1/d_model)",
    "xavier": "at first, the weight's entries have variance 2/(vocab_size + d_model), not 1/d_model",
    "larger": "at first, the weight's entries have a variance above 1/d_model",
    "smaller": "at first, the weight's entries have a variance below 1/d_model",
}


def _sizes(seed: int) -> dict[str, int]:
    batch, length, width, vocab = random.Random(seed).sample([3, 5, 7, 11, 13], 4)
    if width == 3:  # the root of which, rounded down, is 1: no factor
        batch, width = width, batch
    return {"batch": batch, "length": length, "width": width, "vocab": vocab}


def _one() -> dict:
    return {"weight": torch.tensor([[0.5]])}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d, v = s["batch"], s["length"], s["width"], s["vocab"]
    weight, ids = draw.normal(v, d), draw.integers(0, v - 1, b, t)
    ids[0, :2] = 0  # the first row is like any other, and it comes more than once; the last one never comes
    built = Build([v, d], state={"weight": weight.float()})
    double = Build([v, d], dtype="float64", state={"weight": weight})
    used = Build([v, d], state={"weight": weight.float()}, earlier=(("", [ids], {}),))
    trained = (("", [ids], {}), ("load_state_dict", [{"weight": weight.flip(0).float()}], {"strict": False}))
    learned = replace(built, training=False, earlier=trained)
    below, further, beyond, above = ids.clone(), ids.clone(), ids.clone(), ids.clone()
    # In the last sentence, or in the first one; in its last place, in the first one, or in the middle.
    below[-1, -1], further[0, 0], beyond[0, t // 2], above[0, -1] = -1, -2, v, v + 1
    return {
        "loaded": Probe([ids], build=built, cotangents=[draw.normal(b, t, d, dtype=torch.float32)]),
        "learned": Probe([ids], build=learned, note="in use, after the weight has changed"),
        "start": Probe([], build=Build([211, 101]), method="state", view=_drawn),
        "start_narrow": Probe([], build=Build([211, 67]), method="state", view=_drawn),
        "int32": Probe([ids[:1, :1].to(torch.int32)], build=built),
        "float64": Probe([ids], build=double),
        "again": Probe([ids], build=used, note="the second call"),
        "smallest": Probe([torch.zeros(1, 1, dtype=torch.int64)], build=Build([1, 1], state=_one())),
        "negative": Probe([below], build=built, refused="an id of -1"),
        "negative_in_use": Probe(
            [below], build=replace(built, training=False), refused="an id of -1, in use"
        ),
        "further_below": Probe([further], build=built, refused="an id of -2"),
        "beyond": Probe([beyond], build=built, refused=f"an id of {v} with vocab_size={v}"),
        "further_beyond": Probe([above], build=used, refused=f"an id of {v + 1} with vocab_size={v}"),
        "one_axis": Probe([ids[0]], build=built, refused=f"ids of shape ({t},), without a batch axis"),
        "floats": Probe([ids.float()], build=built, refused="ids of floating-point numbers"),
        "doubles": Probe([ids.double()], build=built, refused="ids of type float64"),
        "no_tokens": Probe([], build=Build([0, d]), method="state", refused="vocab_size=0"),
        "no_width": Probe([], build=Build([v, 0]), method="state", refused="d_model=0"),
        "three_axes": Probe([ids[None]], build=built, refused="ids of three axes"),
        "negative_tokens": Probe([], build=Build([-v, d]), method="state", refused=f"vocab_size={-v}"),
        "negative_width": Probe([], build=Build([v, -d]), method="state", refused=f"d_model={-d}"),
        "negative_sizes": Probe(
            [], build=Build([-v, -d]), method="state", refused=f"both sizes, {-v} and {-d}"
        ),
        "empty": Probe([ids[:0]], build=built, note="no sentences"),
        "no_ids": Probe([ids[:, :0]], build=built, note="sentences without tokens"),
    }


def _drawn(state: dict) -> dict:
    """What is wrong with a start, the usual ones first: chance forbids comparing the numbers."""
    weight = state["weight"]
    (vocab, width), spread = weight.shape, weight.std().item()
    usual = {
        "1/d": 1 / math.sqrt(width),
        "1": 1.0,
        "1/d²": 1 / width,
        "0.02": 0.02,
        "xavier": math.sqrt(2 / (vocab + width)),
    }
    other = "larger" if spread > usual["1/d"] else "smaller"
    kind = next((name for name, size in usual.items() if abs(spread / size - 1) < 0.04), other)
    kind = kind if abs(weight.mean().item()) < 0.05 * spread else "off centre"
    shown = {"constant" if spread == 0 else kind}
    if spread and not weight.any(dim=1).all():
        shown.add("a row")
    return {sentence: name in shown for name, sentence in STARTS.items()}


TASK = Task(
    name="token_embedding",
    signature="TokenEmbedding(vocab_size, d_model)(ids)",
    arguments=("ids",),
    returns=("vectors",),
    reference=TokenEmbedding,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, length, d_model); its only parameter is weight, of shape "
            "(vocab_size, d_model).",
            ("loaded",),
            LOOKUP,
            ("structure",),
        ),
        Requirement(
            "values", "a token's vector is its row of weight, times √d_model.", ("loaded", "learned"), SCALE
        ),
        Requirement(
            "gradients",
            "each row of weight gets the gradients of all places of its token, added up and times √d_model.",
            ("loaded",),
            LOOKUP,
            ("gradients", "parameters"),
        ),
        Requirement(
            "start",
            "entries of weight start with mean 0 and variance 1/d_model.",
            ("start", "start_narrow"),
            SCALE,
        ),
        Requirement(
            "ids", "int64 or int32, no id, one or many: all will do.", ("int32", "empty", "no_ids"), LOOKUP
        ),
        Requirement(
            "dtype",
            "vectors have the dtype of weight, and its digits.",
            ("loaded", "float64"),
            SCALE,
            ("dtype",),
        ),
        Requirement(
            "unchanged", "using it changes neither weight nor ids.", ("loaded", "again"), WRONG, ("inputs",)
        ),
        Requirement(
            "range",
            "ids below 0 or not below vocab_size are refused with ValueError.",
            ("negative", "negative_in_use", "further_below", "beyond", "further_beyond"),
            LOOKUP,
        ),
        Requirement(
            "refusals",
            "what is no batch of ids, and sizes below 1, are refused with ValueError.",
            (
                "smallest",
                "one_axis",
                "floats",
                "doubles",
                "no_tokens",
                "no_width",
                "three_axes",
                "negative_tokens",
                "negative_width",
                "negative_sizes",
            ),
            LOOKUP,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "length": 2, "width": 2, "vocab": 2},
        {"batch": 1, "length": 2, "width": 2, "vocab": 3},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
