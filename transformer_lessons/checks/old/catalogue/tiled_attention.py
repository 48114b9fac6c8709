"""The check of `tiled_attention`: a softmax in passing, whose memory is linear in training too."""

import random

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention import exchanged, inputs, low_scores
from transformer_lessons.checks.old.catalogue.tiled_attention_mistakes import (
    MEASURED,
    MISTAKES,
    ONLINE,
    Steps,
    assemble,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["TASK"]


def _sizes(seed: int) -> dict[str, int]:
    order = random.Random(seed)
    keys = order.choice([11, 13, 17])
    queries, block = order.sample([3, 5, 7], 2)
    batch, heads, d_k, d_v = order.sample([2, 3, 5, 7], 4)
    return {
        "batch": batch,
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "d_k": d_k,
        "d_v": d_v,
        "block": block,
    }


SMALL = (
    {"batch": 1, "heads": 1, "queries": 1, "keys": 3, "d_k": 2, "d_v": 1, "block": 2},
    {"batch": 1, "heads": 1, "queries": 2, "keys": 5, "d_k": 2, "d_v": 1, "block": 2},
)


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, q, block = (s[name] for name in ("batch", "heads", "queries", "block"))
    plain = inputs(draw, s, b, h)
    whole = inputs(draw, s, b, h, keys=3 * block)
    query, key, value = inputs(draw, s, b, h)
    # A weight is off by what its score was rounded by, and the gradient of a key by a query times as much: with a
    # larger query, right answers would differ by more than the tolerance.
    large = [query * 25, key * 25, value]
    return {
        "one_tile": Probe([*plain, s["keys"] + 4]),
        "dividing": Probe([*whole, block]),
        "plain": Probe([*plain, block], cotangents=[draw.normal(b, h, q, s["d_v"])]),
        "single_keys": Probe([*inputs(draw, s, queries=2, keys=5), 1]),
        "flat": Probe([*inputs(draw, s), block]),
        "batch_only": Probe([*inputs(draw, s, b), block]),
        "float32": Probe([*inputs(draw, s, b, h, dtype=torch.float32), block]),
        "large": Probe([*large, block], cotangents=[draw.normal(b, h, q, s["d_v"])]),
        "rows_apart": Probe([query * 10.0 ** torch.arange(q)[:, None], key * 20, value, block]),
        "low": Probe([*low_scores(query, key, value), block]),
        "falling": Probe([*_falling(draw, s), block]),
        "exchanged": Probe(
            [*map(exchanged, plain), block], note="axes exchanged, as after a split into heads"
        ),
        **_counted(draw),
        "no_block": Probe([*plain, 0], refused="block=0"),
        "negative_block": Probe([*plain, -block], refused=f"block={-block}"),
    }


def _falling(draw: Draw, s: dict[str, int]) -> list[Tensor]:
    """Scores that fall by thousands from key to key: the first tile holds all the weight."""
    query, key, value = inputs(draw, s, s["batch"], s["heads"])
    steps = torch.arange(s["keys"], dtype=torch.float64)
    return [query.abs() + 0.5, (-steps * 3e3)[:, None].expand_as(key).contiguous(), value]


def _counted(draw: Draw) -> dict[str, Probe]:
    """For the largest tensor, few queries and many keys; for training, so many of both that a square shows.

    With very few queries, tiles may be somewhat too large before they show: whole rows are told from these. Of
    two tiles, either is told from both together, and small ones from a small number of large ones. All values
    with a column of ones, or keys and values side by side, are never too large.
    """
    few = {"d_k": 2, "d_v": 2, "queries": 11, "keys": 67}
    q, k, v = inputs(draw, few)
    narrow = {"d_k": 1, "d_v": 1}
    very_few = inputs(draw, {**narrow, "queries": 3, "keys": 129})
    many_keys = inputs(draw, {**narrow, "queries": 16, "keys": 66})
    many = {"d_k": 2, "d_v": 2, "queries": 41, "keys": 41}
    square = 41 * 41 * 8
    return {
        "wide": Probe([q, k, v, 11], meter=True, enough={"largest": k.nbytes}),
        "wider": Probe([*very_few, 29], meter=True, enough={"largest": very_few[1].nbytes * 4 // 3}),
        "two_tiles": Probe([q, k, v, 34], meter=True, enough={"largest": 11 * 34 * 8}),
        "many_tiles": Probe([*many_keys, 8], meter=True, enough={"largest": many_keys[1].nbytes * 4 // 3}),
        "training_one_tile": Probe(
            [*inputs(draw, many), 43],
            cotangents=[draw.normal(41, 2)],
            meter=True,
            enough={"saved": square // 6},
        ),
        "training": Probe(
            [*inputs(draw, many), 7],
            cotangents=[draw.normal(41, 2)],
            meter=True,
            enough={"saved": square // 6, "peak": square},
        ),
    }


TASK = Task(
    name="tiled_attention",
    signature="tiled_attention(query, key, value, block)",
    arguments=("query", "key", "value", "block"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (…, queries, d_v).",
            ("one_tile",),
            ONLINE,
            ("structure",),
        ),
        Requirement(
            "values", "output = softmax(QKᵀ/√d_k) V, with one tile or with several.", ("one_tile",), ONLINE
        ),
        Requirement("tiles", "several tiles of block keys share one softmax.", ("dividing",), ONLINE),
        Requirement(
            "remainder", "block need not divide the number of keys.", ("plain", "single_keys"), ONLINE
        ),
        Requirement(
            "axes",
            "inputs may come without heads or batch, or with their axes exchanged.",
            ("flat", "batch_only", "exchanged"),
            ONLINE,
        ),
        Requirement(
            "gradients", "gradients reach query, key and value.", ("plain",), MEASURED, ("gradients",)
        ),
        Requirement(
            "extremes",
            "scores of any size work, rising or falling from tile to tile: no overflow, no NaN, and none in "
            "gradients.",
            ("large", "rows_apart", "low", "falling"),
            ONLINE,
            ("gradients",),
        ),
        Requirement(
            "dtype", "the output has the dtype of the inputs.", ("float32", "plain"), ONLINE, ("dtype",)
        ),
        Requirement("inputs", "the caller's tensors are left unchanged.", ("plain",), ONLINE, ("inputs",)),
        Requirement(
            "largest",
            "no tensor holds more scores than queries × block, for however many keys.",
            ("wide", "wider", "two_tiles", "many_tiles"),
            ONLINE,
            ("largest",),
        ),
        Requirement(
            "saved",
            "in training too, nothing that grows with queries × keys is kept for the way back.",
            ("training", "training_one_tile"),
            MEASURED,
            ("gradients", "saved"),
        ),
        Requirement(
            "peak",
            "nor is it there at the same time on the way back: a few tiles at a time are computed again.",
            ("training",),
            MEASURED,
            ("gradients", "peak"),
        ),
        Requirement(
            "refusals",
            "a block below 1 is refused with ValueError.",
            ("no_block", "negative_block"),
            ONLINE,
        ),
    ),
    sizes=_sizes,
    small=SMALL,
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=12,  # what is neither refused nor counted
)
