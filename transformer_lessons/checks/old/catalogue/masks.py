"""The checks of `padding_mask` and `causal_mask`: requirements and the calls that probe them."""

import random

import torch

from transformer_lessons.checks.old.catalogue.causal_mask_mistakes import (
    CAUSAL_MISTAKES,
    CausalSteps,
    causal_mask_in_steps,
)
from transformer_lessons.checks.old.catalogue.masks_mistakes import (
    PADDING_MISTAKES,
    PaddingSteps,
    padding_mask_in_steps,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import causal_mask, padding_mask

__all__ = ["CAUSAL", "PADDING"]

PAD_AT = "#ch04-padding"
CAUSAL_AT = "#ch04-causal"


def _padding_sizes(seed: int) -> dict[str, int]:
    primes = [2, 3, 5, 7, 11]
    random.Random(seed).shuffle(primes)
    return {"batch": primes[0], "keys": primes[1] + 6}


def _ids(draw: Draw, s: dict[str, int], pad_id: int) -> torch.Tensor:
    """Token ids with padding at the right of every row, and the first row unpadded unless it is alone."""
    ids = draw.integers(0, 23, s["batch"], s["keys"])
    ids[ids == pad_id] += 1
    for row in range(s["batch"]):
        padding = row % (s["keys"] - 1) if s["batch"] > 1 else 1
        ids[row, s["keys"] - padding :] = pad_id
    return ids


def _padding_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    inside = _ids(draw, s, 7)
    inside[:, 0] = inside[-1] = 7  # the last row is padding alone
    other = _ids(draw, s, 5)
    other[0, 0] = 0  # an id like any other, here
    whole = draw.integers(1, 23, s["batch"], s["keys"])
    whole[0, 0] = -7
    negative = _ids(draw, s, -1)
    negative[0, 0] = 1  # no padding, whatever its sign
    return {
        "zero": Probe([_ids(draw, s, 0), 0]),
        "other": Probe([other, 5]),
        "inside": Probe([inside, 7]),
        "negative": Probe([negative, -1]),
        # As in a real vocabulary: in 8 or 16 bits, each of the first three ids may become the padding's.
        "whole": Probe([whole, 0]),
        "large": Probe([torch.tensor([[50_000, 115_792, 50_255, 50_256, 11, 50_256]]), 50_256]),
        "int32": Probe([_ids(draw, s, 3).to(torch.int32), 3]),
        "one_axis": Probe([torch.tensor([4, 5, 0]), 0], refused="ids of shape (3,), without a batch axis"),
        "float_ids": Probe([_ids(draw, s, 0).to(torch.float64), 0], refused="ids of floating-point numbers"),
        "float32_ids": Probe([_ids(draw, s, 0).to(torch.float32), 0], refused="ids of type float32"),
        "three_axes": Probe([_ids(draw, s, 0)[None], 0], refused="ids of three axes"),
    }


PADDING = Task(
    name="padding_mask",
    signature="padding_mask(ids, pad_id)",
    arguments=("ids", "pad_id"),
    returns=("mask",),
    reference=padding_mask,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, 1, 1, keys).",
            ("zero",),
            PAD_AT,
            ("structure",),
        ),
        Requirement(
            "values", "the mask is boolean, True where ids differ from pad_id.", ("zero", "whole"), PAD_AT
        ),
        Requirement(
            "pad_id", "any id can be the padding, not only 0.", ("other", "negative", "large"), PAD_AT
        ),
        Requirement("inside", "only the ids decide, not where they stand.", ("inside",), PAD_AT),
        Requirement("int32", "ids of any integer type will do.", ("int32",), PAD_AT, ("dtype",)),
        Requirement("inputs", "the caller's ids are left unchanged.", ("zero", "other"), PAD_AT, ("inputs",)),
        Requirement(
            "refusals",
            "ids that are not integers of two axes are refused.",
            ("one_axis", "float_ids", "float32_ids", "three_axes"),
            PAD_AT,
        ),
    ),
    sizes=_padding_sizes,
    small=({"batch": 1, "keys": 2}, {"batch": 2, "keys": 3}, {"batch": 3, "keys": 4}),
    probes=_padding_probes,
    steps=PaddingSteps(),
    assemble=padding_mask_in_steps,
    mistakes=PADDING_MISTAKES,
)


def _causal_sizes(seed: int) -> dict[str, int]:
    primes = [3, 5, 7, 11, 13]
    random.Random(seed).shuffle(primes)
    return {"queries": min(primes[:2]), "keys": max(primes[:2])}


def _causal_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    q, k = s["queries"], s["keys"]
    return {
        "square": Probe([q]),
        "both_given": Probe([k, k]),
        "one": Probe([1]),
        "longer": Probe([q, k]),
        "one_query": Probe([1, k]),
        "long": Probe([2, 2053]),  # more than float16 can count, and than tables of 2,048 hold
        "device": Probe([q], {"device": "meta"}),
        "device_longer": Probe([q, k], {"device": "meta"}),
        "nothing": Probe([0, k]),
        "nothing_square": Probe([0]),
        "fewer_keys": Probe([k, q], refused=f"fewer keys ({q}) than queries ({k})"),
        "negative": Probe([-q], refused=f"queries={-q}"),
        "negative_queries": Probe([-q, k], refused=f"queries={-q}, with {k} keys"),
        "both_negative": Probe([-q - 1, -q], refused=f"queries={-q - 1} and keys={-q}"),
        "no_keys": Probe([q, 0], refused=f"no keys for {q} queries"),
    }


CAUSAL = Task(
    name="causal_mask",
    signature="causal_mask(queries, keys=None, *, device=None)",
    arguments=("queries", "keys"),
    returns=("mask",),
    reference=causal_mask,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (1, 1, queries, keys).",
            ("square",),
            CAUSAL_AT,
            ("structure",),
        ),
        Requirement(
            "values",
            "the mask is boolean, True where key ≤ query.",
            ("square", "both_given", "one"),
            CAUSAL_AT,
        ),
        Requirement(
            "more_keys",
            "with more keys than queries, the last query sees the last key.",
            ("longer", "one_query", "long"),
            CAUSAL_AT,
        ),
        Requirement(
            "device", "the mask is made on the device asked for.", ("device", "device_longer"), CAUSAL_AT
        ),
        Requirement(
            "refusals",
            "negative lengths, and fewer keys than queries, are refused with ValueError.",
            (
                "nothing",
                "nothing_square",
                "fewer_keys",
                "negative",
                "negative_queries",
                "both_negative",
                "no_keys",
            ),
            CAUSAL_AT,
        ),
    ),
    sizes=_causal_sizes,
    small=({"queries": 1, "keys": 2}, {"queries": 2, "keys": 3}),
    probes=_causal_probes,
    steps=CausalSteps(),
    assemble=causal_mask_in_steps,
    mistakes=CAUSAL_MISTAKES,
)
